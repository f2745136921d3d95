"""VALSE in its authors' files, with the images of some of its sources (about 3 s)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.valse import INSTRUMENTS, NOT_VALID, VALSE
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, check_known_scorers, hub_folder, items, photos, repositories, scores

FILES = {
    "existence": ("visual7w", "v7w_1.jpg"),
    "plurals": ("val2017", "000000000002.jpg"),
    "counting-hard": ("visual7w", "v7w_3.jpg"),
    "counting-small-quant": ("visual7w", "v7w_4.jpg"),
    "counting-adversarial": ("visual7w", "v7w_5.jpg"),
    "relations": ("val2017", "000000000006.jpg"),
    "action-replacement": ("swig", "exercising_255.jpg"),
    "actant-swap": ("swig", "pulling_8.jpg"),
    "coreference-standard": ("train2014", "COCO_train2014_000000000009.jpg"),
    "coreference-hard": ("visdial_val2018", "VisualDialog_val2018_000000000010.jpg"),
    "foil-it": ("val2014", "COCO_val2014_000000000006.jpg"),
}
"""The pool and file of each instrument's image; the last is the photograph of `relations`."""
NUMBERS = {instrument: place + 1 for place, instrument in enumerate(FILES)}
TRUE = {number: [f"true {number}"] if number else [] for number in range(12)}
WEB = "https://raw.githubusercontent.com/Heidelberg-NLP/VALSE/2152d90d4aecd11f7f74cf03420abcb63efff9c5/data"


def entry(instrument: str, votes: int = 3, **changes: object) -> dict[str, object]:
    number = NUMBERS[instrument]
    texts = {"caption": f"true {number}", "foil": f"false {number}", "classes_foil": ["no", 1][number % 2]}
    return {"image_file": FILES[instrument][1], **texts, "mturk": {"foil": 0, "caption": votes, "other": 0}, **changes}


@pytest.fixture
def folder(tmp_path) -> Path:
    """Instrument k has k items that annotators agreed on and one that they did not, all of image k."""
    place = tmp_path / "valse"
    place.mkdir()
    for instrument, number in NUMBERS.items():
        rows = {f"{instrument}_{row}": entry(instrument, votes=2 + row % 2) for row in range(number)}
        (place / f"{instrument}.json").write_text(json.dumps(rows | {"doubtful": entry(instrument, votes=1)}))
    for instrument, (pool, file) in FILES.items():
        photos(place / pool, {file: NUMBERS[instrument]})
    return place


def away(folder: Path, *pools: str) -> None:
    for pool in pools:
        (folder / pool).rename(folder / f"no {pool}")


def test_known_scorers_on_valid_items(folder):
    rows = items(VALSE, folder)
    assert rows.left_out == {NOT_VALID: 11}
    assert Counter(rows.rows["subset"]) == NUMBERS
    assert len(rows.origin.pools) == 6
    check_known_scorers(VALSE, rows, TRUE)


def test_every_average_in_use(folder):
    """Only the three instruments of Counting are right, which have 3, 4 and 5 of 66 items."""
    known = {number: own if number in (3, 4, 5) else [] for number, own in TRUE.items()}
    values = scores(VALSE, run_benchmark(VALSE, items(VALSE, folder), Sighted(oracle.knowing(known))))
    assert values["mean of 11 instruments", "caption choice"] == pytest.approx(3 / 11)
    assert values["mean of 9 columns (Counting is one)", "caption choice"] == pytest.approx(1 / 9)
    assert values["pooled", "caption choice"] == pytest.approx(12 / 66)


def test_a_photograph_of_coco_is_the_same_in_all_its_releases(folder):
    rows = items(VALSE, folder).rows
    of_subset = dict(zip(rows["subset"], rows["image_id"], strict=True))
    assert of_subset["relations"] == of_subset["foil-it"] == "COCO 6"
    assert len(set(rows["image_id"])) == 10


def test_an_instrument_without_images_is_left_out_by_name_and_so_are_averages_of_it(folder):
    away(folder, "swig", "visdial_val2018")
    rows = items(VALSE, folder)
    assert rows.left_out == {NOT_VALID: 11, "no images of swig": 15, "no images of visdial_val2018": 10}
    values = scores(VALSE, run_benchmark(VALSE, rows, Sighted(oracle.knowing(TRUE))))
    assert {subset for subset, _ in values} == set(INSTRUMENTS) - {
        "action-replacement",
        "actant-swap",
        "coreference-hard",
    }


def test_images_may_lie_in_folders_of_their_own(folder, tmp_path):
    away(folder, "swig")
    rows = items(VALSE, folder, swig=folder / "no swig")
    assert rows.left_out == {NOT_VALID: 11}


def test_texts_of_the_repository_and_images_of_the_hub(folder, tmp_path, monkeypatch):
    columns = {"question_id": ["000000000002.jpg"], "image": [oracle.photo(2)]}
    repo = "lmms-lab/COCO-Caption2017"
    oracle.HubOnDisk(monkeypatch, **{repo: hub_folder(tmp_path / "coco", "val", columns, images=["image"])})
    asked = repositories(monkeypatch, {WEB: folder})
    rows = items(VALSE, None, val2014=folder / "val2014")
    assert asked == [(WEB, tuple(f"{instrument}.json" for instrument in INSTRUMENTS))]
    assert [pool.place for pool in rows.origin.pools] == [repo, str(folder / "val2014")]
    assert Counter(rows.rows["subset"]) == {"plurals": 2, "foil-it": 11}
    assert rows.left_out[NO_IMAGE] == 6
    check_known_scorers(VALSE, rows, TRUE)


def test_without_any_images_it_says_how_to_get_them(folder, monkeypatch):
    oracle.HubOnDisk(monkeypatch)
    away(folder, *{pool for pool, _ in FILES.values()})
    with pytest.raises(Unavailable, match="swig .*missing.*val2014.zip"):
        items(VALSE, folder)
    repositories(monkeypatch, {})
    with pytest.raises(Unavailable, match="cannot be reached"):
        load_items(VALSE)


def test_what_is_missing_in_a_file(folder):
    (folder / "plurals.json").write_text(json.dumps({"a": entry("plurals", foil=""), "b": entry("plurals")}))
    assert items(VALSE, folder).left_out == {NOT_VALID: 10, EMPTY_CAPTION: 1}
    (folder / "plurals.json").write_text('{"a": {"image_file": "1.jpg", "caption": "a", "mturk": {"caption": 3}}}')
    with pytest.raises(ValueError, match="plurals.json, entry 'a': .*'foil'"):
        items(VALSE, folder)


def test_the_real_files(clip):
    """All 7,702 valid items are found; on a tiny model, the 100 of them whose image is here."""
    data = os.environ.get("HFCOMP_REAL_DATA")
    if data is None:
        pytest.skip("needs HFCOMP_REAL_DATA")
    folders = {"val2017": Path(data) / "coco" / "open_256"}
    rows = items(VALSE, Path(data) / "valse", **folders)
    assert rows.left_out == {
        NOT_VALID: 8782 - 7702,
        "no images of visual7w": 505 + 868 + 900 + 691,
        "no images of swig": 648 + 949,
        "no images of val2014": 943 + 215,
        "no images of train2014": 708 - 215,
        "no images of visdial_val2018": 104,
        NO_IMAGE: 851 + 535 - 100,
    }
    assert Counter(rows.rows["subset"]) == {"plurals": 64, "relations": 36} and rows.unsolvable == 0
    report = run_benchmark(VALSE, rows, Embedder(clip))
    assert len(report.items) == 100 and report.images == 90
