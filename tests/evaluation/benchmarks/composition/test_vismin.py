"""VisMin in the layout that its readers use (about 1 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.image_pairs import VISMIN
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

KINDS = ("object", "counting", "counting", "relation")
TRUE = {number: [f"caption {number}"] for number in range(2 * len(KINDS))}


def on_hub(folder: Path, **changes: list) -> Path:
    """Item k has the images 2k and 2k + 1; questions for generative models are not read."""
    rows = range(len(KINDS))
    columns = {
        "image_0": [oracle.photo(2 * row) for row in rows],
        "text_0": [f"caption {2 * row}" for row in rows],
        "image_1": [oracle.photo(2 * row + 1) for row in rows],
        "text_1": [f"caption {2 * row + 1}" for row in rows],
        "text_question_0": ["Which?"] * len(KINDS),
        "category": list(KINDS),
    }
    return hub_folder(folder, "test", columns | changes, images=["image_0", "image_1"], named=False)


def test_known_scorers_of_the_folder_and_of_the_hub(tmp_path, monkeypatch):
    check_folder_and_hub(VISMIN, on_hub(tmp_path / "vismin"), "mair-lab/vismin-bench", TRUE, monkeypatch)


def test_a_random_scorer_is_at_chance():
    check_chance(VISMIN, numbered_texts("negative_captions"))


def test_each_kind_of_change_counts_once(tmp_path):
    encoder = Sighted(oracle.knowing(TRUE | {2: []}))
    found = scores(VISMIN, run_benchmark(VISMIN, items(VISMIN, on_hub(tmp_path / "v")), encoder))
    assert [found[kind, "group"] for kind in ("object", "counting", "relation")] == [1, 1 / 2, 1]
    assert found["macro of categories", "group"] == pytest.approx(5 / 6)
    assert found["all items", "group"] == 3 / 4


def test_what_is_missing_is_left_out_or_named(tmp_path):
    holes = on_hub(tmp_path / "holes", text_1=["caption 1", "caption 3", "", "caption 7"])
    assert items(VISMIN, holes).left_out == {EMPTY_CAPTION: 1}
    images = [None, *(oracle.photo(2 * row) for row in range(1, 4))]
    assert items(VISMIN, on_hub(tmp_path / "none", image_0=images)).left_out == {NO_IMAGE: 1}
    other = hub_folder(tmp_path / "other", "test", {"image_0": [oracle.photo(0)], "text_0": ["a"]}, images=["image_0"])
    with pytest.raises(ValueError, match="has no column 'image_1', 'text_1', 'category'"):
        items(VISMIN, other)
