"""Winoground as Parquet, and as a file of examples beside a folder or an archive of images (about 2 s)."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.image_pairs import WINOGROUND
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import groups, oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_known_scorers,
    hub_folder,
    items,
    repositories,
    scores,
)

COMMIT = "b400e173549071916ad1b3d449293bc8d8b4b763"
WEB = f"https://huggingface.co/datasets/facebook/winoground/resolve/{COMMIT}/data"
TAGS = ("Object", "Relation", "Relation", "Both")
TRUE = groups.true_of(len(TAGS))


def columns() -> dict[str, list]:
    """As on the Hub; item k has the images 2k and 2k + 1."""
    number = len(TAGS)
    more = {"tag": ["Noun"] * number, "secondary_tag": [""] * number, "num_main_preds": [1] * number}
    return groups.columns(number, id=list(range(number)), collapsed_tag=list(TAGS), **more)


def on_hub(folder: Path, **changes: list) -> Path:
    return hub_folder(folder, "test", columns() | changes, images=["image_0", "image_1"])


def raw(folder: Path) -> Path:
    """The authors' examples and a folder of images."""
    names = [(f"ex_{row}_img_0", f"ex_{row}_img_1") for row in range(len(TAGS))]
    more = {name: values for name, values in columns().items() if not name.startswith(("image", "caption"))}
    return groups.examples(folder, names, **more)


def packed(folder: Path) -> Path:
    """The same with the images in an archive."""
    return groups.packed(raw(folder))


@pytest.mark.parametrize("layout", [on_hub, raw, packed])
def test_known_scorers_on_every_layout(tmp_path, layout):
    rows = items(WINOGROUND, layout(tmp_path / "winoground"))
    assert rows.rows["subset"][:] == list(TAGS) and rows.rows["item"][:] == ["0", "1", "2", "3"]
    check_known_scorers(WINOGROUND, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(WINOGROUND, groups.TEXTS)


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
    cut = packed(tmp_path / "packed")
    (cut / "images.zip").write_bytes((cut / "images.zip").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"images.zip is not a whole zip archive .*Download it again"):
        items(WINOGROUND, cut)


def test_a_real_model_reads_all_three_layouts_alike(tmp_path, clip):
    embedder = Embedder(clip)
    tables = [
        run_benchmark(WINOGROUND, items(WINOGROUND, layout(tmp_path / layout.__name__)), embedder).items["value"]
        for layout in (on_hub, raw, packed)
    ]
    assert tables[0].tolist() == tables[1].tolist() == tables[2].tolist()
