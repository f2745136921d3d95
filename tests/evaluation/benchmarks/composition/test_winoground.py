"""Winoground as Parquet, and as a file of examples beside a folder or an archive of images (about 2 s)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.winoground import WINOGROUND
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_known_scorers,
    hub_folder,
    items,
    photos,
    repositories,
    scores,
)

COMMIT = "b400e173549071916ad1b3d449293bc8d8b4b763"
WEB = f"https://huggingface.co/datasets/facebook/winoground/resolve/{COMMIT}/data"
TAGS = ("Object", "Relation", "Relation", "Both")
TRUE = {number: [f"caption {number}"] for number in range(2 * len(TAGS))}


def columns() -> dict[str, list]:
    """As on the Hub; item k has the images 2k and 2k + 1."""
    numbers = range(len(TAGS))
    return {
        "id": list(numbers),
        "image_0": [oracle.photo(2 * row) for row in numbers],
        "image_1": [oracle.photo(2 * row + 1) for row in numbers],
        "caption_0": [f"caption {2 * row}" for row in numbers],
        "caption_1": [f"caption {2 * row + 1}" for row in numbers],
        "tag": ["Noun"] * len(TAGS),
        "secondary_tag": [""] * len(TAGS),
        "num_main_preds": [1] * len(TAGS),
        "collapsed_tag": list(TAGS),
    }


def on_hub(folder: Path, **changes: list) -> Path:
    return hub_folder(folder, "test", columns() | changes, images=["image_0", "image_1"])


def raw(folder: Path) -> Path:
    """The authors' examples and a folder of images."""
    names = [(f"ex_{row}_img_0", f"ex_{row}_img_1") for row in range(len(TAGS))]
    plain = columns() | {"image_0": [first for first, _ in names], "image_1": [second for _, second in names]}
    files = {f"{name}.png": 2 * row + side for row, pair in enumerate(names) for side, name in enumerate(pair)}
    photos(folder / "images", files)
    examples = [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)) + "\n")
    return folder


def packed(folder: Path) -> Path:
    """The same with the images in an archive."""
    raw(folder)
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for file in sorted((folder / "images").iterdir()):
            archive.write(file, f"images/{file.name}")
            file.unlink()
    (folder / "images").rmdir()
    return folder


@pytest.mark.parametrize("layout", [on_hub, raw, packed])
def test_known_scorers_on_every_layout(tmp_path, layout):
    rows = items(WINOGROUND, layout(tmp_path / "winoground"))
    assert rows.rows["subset"][:] == list(TAGS) and rows.rows["item"][:] == ["0", "1", "2", "3"]
    check_known_scorers(WINOGROUND, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    texts = {
        "caption": [f"a {row}" for row in range(1500)],
        "negative_captions": [[f"b {row}"] for row in range(1500)],
    }
    check_chance(WINOGROUND, texts)


def test_scores_by_tag_and_of_all(tmp_path):
    """Item 0's second caption fits both images: its text score is lost, its image score and all others are not."""
    encoder = Sighted(oracle.knowing(TRUE | {0: ["caption 0", "caption 1"]}))
    found = scores(WINOGROUND, run_benchmark(WINOGROUND, items(WINOGROUND, on_hub(tmp_path / "w")), encoder))
    assert found["Object", "text"] == found["Object", "image"] == found["Object", "group"] == 0
    assert found["Relation", "group"] == found["Both", "group"] == 1
    assert found["all items", "group"] == 3 / 4


def test_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    hub = oracle.HubOnDisk(monkeypatch, **{"facebook/winoground": on_hub(tmp_path / "w")})
    rows = items(WINOGROUND, None)
    assert hub.asked == [("facebook/winoground", {"split": "test", "revision": COMMIT})]
    assert rows.origin.commit == COMMIT


def test_a_loading_script_leads_to_the_files_beside_it(tmp_path, monkeypatch):
    def script(name, **options):
        raise RuntimeError("Dataset scripts are no longer supported, but found winoground.py")

    monkeypatch.setattr(hub, "load_dataset", script)
    asked = repositories(monkeypatch, {WEB: packed(tmp_path / "w")})
    rows = items(WINOGROUND, None)
    assert asked == [(WEB, ("examples.jsonl", "images.zip"))] and rows.origin.commit == COMMIT
    check_known_scorers(WINOGROUND, rows, TRUE)


def test_without_consent_it_says_where_to_give_it(monkeypatch):
    def refused(name, **options):
        raise datasets.exceptions.DatasetNotFoundError("'facebook/winoground' is a gated dataset on the Hub.")

    monkeypatch.setattr(hub, "load_dataset", refused)
    repositories(monkeypatch, {})
    with pytest.raises(Unavailable, match="is gated.*Accept its terms at https://huggingface.co/datasets/facebook"):
        load_items(WINOGROUND)


def test_what_is_missing_is_left_out_or_named(tmp_path):
    texts = ["caption 0", "", "caption 4", "caption 6"]
    images = [oracle.photo(1), oracle.photo(3), None, oracle.photo(7)]
    rows = items(WINOGROUND, on_hub(tmp_path / "holes", caption_0=texts, image_1=images))
    assert rows.left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}
    with pytest.raises(ValueError, match="has the item 'Relation/1' in rows 1 and 2"):
        items(WINOGROUND, on_hub(tmp_path / "twice", id=[0, 1, 1, 3]))
    place = raw(tmp_path / "raw")
    (place / "images" / "ex_2_img_1.png").unlink()
    assert items(WINOGROUND, place).left_out == {NO_IMAGE: 1}
    (place / "examples.jsonl").write_text('{"id": 0}\n')
    with pytest.raises(ValueError, match="examples.jsonl, line 1: has no 'image_0'"):
        items(WINOGROUND, place)


def test_a_real_model_reads_all_three_layouts_alike(tmp_path, clip):
    embedder = Embedder(clip)
    tables = [
        run_benchmark(WINOGROUND, items(WINOGROUND, layout(tmp_path / layout.__name__)), embedder).items["value"]
        for layout in (on_hub, raw, packed)
    ]
    assert tables[0].tolist() == tables[1].tolist() == tables[2].tolist()
