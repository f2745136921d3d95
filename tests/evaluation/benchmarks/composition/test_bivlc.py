"""BiVLC in the layout of its card (about 1 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.image_pairs import BIVLC
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_folder_and_hub,
    hub_folder,
    items,
    numbered_texts,
    scores,
)

KINDS = (("replace", "obj"), ("replace", "obj"), ("swap", "att"), ("add", "obj"))
TRUE = {number: [f"caption {number}"] for number in range(2 * len(KINDS))}


def on_hub(folder: Path, **changes: list) -> Path:
    """Item k has the images 2k and 2k + 1."""
    rows = range(len(KINDS))
    columns = {
        "image": [oracle.photo(2 * row) for row in rows],
        "caption": [f"caption {2 * row}" for row in rows],
        "negative_caption": [f"caption {2 * row + 1}" for row in rows],
        "negative_image": [oracle.photo(2 * row + 1) for row in rows],
        "type": [kind for kind, _ in KINDS],
        "subtype": [part for _, part in KINDS],
    }
    return hub_folder(folder, "test", columns | changes, images=["image", "negative_image"], named=False)


def test_known_scorers_of_the_folder_and_of_the_hub(tmp_path, monkeypatch):
    check_folder_and_hub(BIVLC, on_hub(tmp_path / "bivlc"), "imirandam/BiVLC", TRUE, monkeypatch)


def test_a_random_scorer_is_at_chance():
    check_chance(BIVLC, numbered_texts("negative_captions"))


def test_subsets_have_sugarcrepe_s_names_and_a_caption_of_both_images_loses_both_directions(tmp_path):
    encoder = Sighted(oracle.knowing(TRUE | {4: ["caption 4", "caption 5"]}))
    found = scores(BIVLC, run_benchmark(BIVLC, items(BIVLC, on_hub(tmp_path / "b")), encoder))
    assert [found["swap_att", metric] for metric in ("text", "image", "group")] == [0, 0, 0]
    assert found["replace_obj", "group"] == found["add_obj", "group"] == 1
    assert found["all items", "group"] == 3 / 4
    assert found["macro of subsets", "group"] == pytest.approx(2 / 3)


def test_what_is_missing_is_left_out_or_named(tmp_path):
    texts, images = (
        ["caption 1", "", "caption 5", "caption 7"],
        [oracle.photo(0), oracle.photo(2), None, oracle.photo(6)],
    )
    assert items(BIVLC, on_hub(tmp_path / "holes", negative_caption=texts, image=images)).left_out == {
        EMPTY_CAPTION: 1,
        NO_IMAGE: 1,
    }
    other = hub_folder(tmp_path / "other", "test", {"caption": ["a"], "image": [oracle.photo(0)]}, images=["image"])
    with pytest.raises(ValueError, match="has no column 'negative_image', 'negative_caption', 'type', 'subtype'"):
        items(BIVLC, other)
