"""InpaintCOCO in the Hub's layout, imported, and built from an annotation project (about 5 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.data.images import decode_image
from hfcomp.evaluation.benchmarks.papers.inpaintcoco import INPAINTCOCO
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.factory.build import build_set
from hfcomp.factory.inpaintcoco.options import InpaintCocoOptions
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, hub_folder, items, scores
from tests.factory.inpaintcoco import sets

CONCEPTS = ("object", "object", "color", "size")
ROWS = range(len(CONCEPTS))
TRUE = {number: [f"caption {number}"] for number in range(2 * len(CONCEPTS))}
IMAGES = ("coco_image", "inpaint_image", "mask")


def on_hub(folder: Path, **changes: list | None) -> Path:
    """Row k shows the images 2k and 2k + 1; a column that is `None` is not there."""
    columns = {
        "concept": list(CONCEPTS),
        "coco_caption": [f"caption {2 * row} " for row in ROWS],
        "coco_image": [oracle.photo(2 * row) for row in ROWS],
        "inpaint_caption": [f" caption {2 * row + 1}\n" for row in ROWS],
        "inpaint_image": [oracle.photo(2 * row + 1) for row in ROWS],
        "mask": [oracle.photo(100)] * len(CONCEPTS),
        "worker": ["w"] * len(CONCEPTS),
        "coco_details": [{"id": number, "license": 4} for number in (139, 139, 285, 632)],
        "inpaint_details": [{"duration": 1}] * len(CONCEPTS),
    }
    there = {name: values for name, values in (columns | changes).items() if values is not None}
    return hub_folder(folder, "test", there, images=IMAGES, named=False)


def test_known_scorers(tmp_path):
    check_known_scorers(INPAINTCOCO, items(INPAINTCOCO, on_hub(tmp_path / "i")), TRUE)


def test_the_paper_s_score_comes_first_by_concept_and_averaged(tmp_path):
    """Nothing is known of the last item's images."""
    report = run_benchmark(
        INPAINTCOCO, items(INPAINTCOCO, on_hub(tmp_path / "i")), Sighted(oracle.knowing(TRUE | {6: [], 7: []}))
    )
    assert list(dict.fromkeys(report.items["metric"])) == ["image", "group", "text"]
    values = scores(INPAINTCOCO, report)
    assert values["object", "image"] == values["color", "image"] == 1 and values["size", "image"] == 0
    assert values["macro of 3 concepts", "image"] == pytest.approx(2 / 3)
    assert values["micro", "image"] == 3 / 4


def test_items_of_one_photograph_have_its_number(tmp_path):
    assert items(INPAINTCOCO, on_hub(tmp_path / "i")).rows["image_id"][:] == ["139", "139", "285", "632"]


def test_without_details_the_image_itself_tells_the_photograph(tmp_path):
    same = [oracle.photo(0), oracle.photo(0), oracle.photo(4), oracle.photo(6)]
    names = items(INPAINTCOCO, on_hub(tmp_path / "i", coco_details=None, coco_image=same)).rows["image_id"][:]
    assert names[0] == names[1] and len(set(names)) == 3


def test_what_is_missing_is_left_out_or_named(tmp_path):
    captions = ["caption 1", " ", None, "caption 7"]
    images = [oracle.photo(1), oracle.photo(3), oracle.photo(5), None]
    rows = items(INPAINTCOCO, on_hub(tmp_path / "holes", inpaint_caption=captions, inpaint_image=images))
    assert rows.left_out == {EMPTY_CAPTION: 2, NO_IMAGE: 1} and rows.rows["caption"][:] == ["caption 0"]
    with pytest.raises(ValueError, match="no column 'concept'.*'coco_caption'"):
        items(INPAINTCOCO, on_hub(tmp_path / "wrong", concept=None))


def test_from_the_hub_with_a_real_model(tmp_path, monkeypatch, clip):
    hub = oracle.HubOnDisk(monkeypatch, **{"phiyodr/InpaintCOCO": on_hub(tmp_path / "i")})
    report = run_benchmark(INPAINTCOCO, items(INPAINTCOCO, None), Embedder(clip))
    assert hub.asked == [("phiyodr/InpaintCOCO", {"split": "test", "revision": None})]
    assert report.images == 8 and report.texts == 1  # the tiny tokenizer knows none of their words


def build(source: Path, folder: Path, **options) -> Path:
    """A set of `hfcomp build inpaintcoco`."""
    return build_set(InpaintCocoOptions(source=str(source), output=folder, **options), log=lambda line: None).folder


def test_chance_is_that_of_a_random_scorer():
    texts = [[f"{name} {row}" for row in range(1500)] for name in ("true", "other")]
    check_chance(INPAINTCOCO, {"caption": texts[0], "negative_captions": [[text] for text in texts[1]]})


def test_an_imported_copy_gives_the_same_items_and_scores(tmp_path):
    """Flags say what is wrong with a row; which rows are left out is the benchmark's own rule in both."""
    captions = ["caption 1", " ", "caption 5", "caption 7"]
    source = on_hub(tmp_path / "hub", inpaint_caption=captions)
    folder = build(source, tmp_path / "built", any_license=True)
    copies = [items(INPAINTCOCO, place) for place in (source, folder)]
    assert [data.left_out for data in copies] == [{EMPTY_CAPTION: 1}] * 2
    for name in ("caption", "negative_captions", "subset", "image_id", "item"):
        assert copies[0].rows[name][:] == copies[1].rows[name][:]
    assert copies[1].rows["image_id"][:] == ["139", "285", "632"]
    check_known_scorers(INPAINTCOCO, copies[1], TRUE)


def test_a_set_of_an_annotation_project(tmp_path, monkeypatch):
    folder = build(sets.project(tmp_path / "project", 6), tmp_path / "built")
    rows = items(INPAINTCOCO, folder)
    assert rows.rows["subset"][:] == ["object", "color", "size"] * 2
    assert rows.rows["image_id"][:] == ["139", "139", "140", "140", "141", "141"]
    cells = [cell for row in rows.rows for cell in (row["image"], row["negative_image"])]
    photos = [sets.encode(decode_image(cell)) for cell in cells]
    monkeypatch.setattr(oracle, "photo", photos.__getitem__)
    captions = [text for row in rows.rows for text in (row["caption"], *row["negative_captions"])]
    check_known_scorers(INPAINTCOCO, rows, {number: [text] for number, text in enumerate(captions)})


def test_a_damaged_set_is_refused(tmp_path):
    folder = build(on_hub(tmp_path / "hub"), tmp_path / "built", any_license=True)
    (folder / "data/test-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="test-00000-of-00001.parquet .*damaged"):
        items(INPAINTCOCO, folder)
