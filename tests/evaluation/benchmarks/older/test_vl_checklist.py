"""VL-CheckList in its authors' files, with the images of some of its sources (about 3 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.older.vl_checklist import ATTRIBUTES, COMMIT, OBJECTS, RELATIONS, TESTS, VL_CHECKLIST
from hfcomp.evaluation.engine import run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import NO_IMAGE, Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, items, photos, repositories, scores

SOURCES = {
    "vg": "VG_100K_2/3968.jpg",
    "vaw": "VG_100K_2/3968.jpg",
    "swig": "dialing_8.jpg",
    "hake": "openimages/a.jpg",
}
NUMBERS = {"vg": 0, "vaw": 0, "swig": 1, "hake": 2}
TRUE = {number: [f"{source} true" for source, of in NUMBERS.items() if of == number] for number in range(3)}


def source_of(test: str) -> str:
    return test.rpartition("/")[2].partition("_")[0]


def raw(folder: Path) -> Path:
    """An item a test; those of SWiG have three phrases, of which the first counts."""
    for test, file in TESTS.items():
        source = source_of(test)
        texts = {"POS": [f"{source} true"], "NEG": [f"{test} false"]}
        if source == "swig":
            texts = {"POS": [*texts["POS"], "other"], "NEG": [*texts["NEG"], "another"]}
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(json.dumps([[SOURCES[source], texts]]))
    photos(folder / "visual_genome" / "VG_100K_2", {"3968.jpg": 0})
    photos(folder / "swig", {"dialing_8.jpg": 1})
    photos(folder / "hake" / "openimages", {"a.jpg": 2})
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return raw(tmp_path / "vl_checklist")


def test_it_has_the_tests_of_the_authors_corpus():
    """Counted in their `corpus/v1`: 10 of attributes, 42 of objects, 4 of relations."""
    assert [len(part) for part in (ATTRIBUTES, OBJECTS, RELATIONS)] == [10, 42, 4] and len(set(TESTS.values())) == 56
    assert TESTS["Object/Size/small/swig_tool"] == "data/Object/Size/swig_size/swig_tool/swig_tool_small.json"
    assert TESTS["Object/Location/mid/hake"] == "data/Object/Location/hake_location/hake_obj_mid.json"


def test_known_scorers(folder):
    rows = items(VL_CHECKLIST, folder)
    assert len(rows.rows) == 56 and len(rows.origin.pools) == 3
    check_known_scorers(VL_CHECKLIST, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(VL_CHECKLIST, {"caption": [f"a {n}" for n in range(1500)], "negative_captions": [["b"]] * 1500})


def test_averages_of_the_parts(folder):
    """Only what has Visual Genome's image is right: all attributes, 12 of 42 tests of objects, 2 of 4 of relations."""
    known = TRUE | {1: [], 2: []}
    averages = scores(
        VL_CHECKLIST, run_benchmark(VL_CHECKLIST, items(VL_CHECKLIST, folder), Sighted(oracle.knowing(known)))
    )
    values = {
        name: averages[name, "caption choice"] for name in ("attribute", "object", "relation", "mean of 3 parts")
    }
    expected = {"attribute": 1, "object": 12 / 42, "relation": 2 / 4}
    assert values == pytest.approx(expected | {"mean of 3 parts": sum(expected.values()) / 3})
    # without HAKE's tests: 6 of objects, 1 of relations
    without = averages["mean of 3 parts without HAKE", "caption choice"]
    assert without == pytest.approx((1 + 12 / 36 + 2 / 3) / 3)


def test_a_source_without_images_is_left_out_and_averages_that_need_it(folder):
    (folder / "hake").rename(folder / "away")
    rows = items(VL_CHECKLIST, folder)
    assert rows.left_out == {"no images of hake": 7} and "folder hake" in rows.notes[0]
    values = scores(VL_CHECKLIST, run_benchmark(VL_CHECKLIST, rows, Sighted(oracle.knowing(TRUE))))
    assert values["mean of 3 parts without HAKE", "caption choice"] == pytest.approx(1)
    assert ("mean of 3 parts", "caption choice") not in values


@pytest.mark.parametrize("part", ["", "VG_100K"])
def test_photographs_of_visual_genome_may_be_in_one_folder_or_in_the_other(folder, part):
    """Its files name `VG_100K_2/3968.jpg`; HAKE's folders hold equal names, so that a folder stays part of these."""
    whole = folder / "visual_genome"
    (whole / part).mkdir(exist_ok=True)
    (whole / "VG_100K_2" / "3968.jpg").rename(whole / part / "3968.jpg")
    (whole / "VG_100K_2").rmdir()
    (folder / "hake" / "openimages" / "a.jpg").rename(folder / "hake" / "a.jpg")
    rows = items(VL_CHECKLIST, folder)
    assert len(rows.rows) == 49 and rows.left_out == {NO_IMAGE: 7}
    assert {Path(cell).name for cell in rows.images["image"]} == {"3968.jpg", "dialing_8.jpg"}


def test_texts_come_from_the_authors_repository(folder, monkeypatch):
    web = f"https://raw.githubusercontent.com/om-ai-lab/VL-CheckList/{COMMIT}"
    asked = repositories(monkeypatch, {web: folder})
    with pytest.raises(Unavailable, match="visual_genome .*missing"):
        load_items(VL_CHECKLIST)
    assert asked == [(web, tuple(TESTS.values()))]
    assert len(items(VL_CHECKLIST, None, swig=folder / "swig").rows) == 25


def test_another_form_is_named(folder):
    file = folder / "data" / "Attribute" / "vg" / "color.json"
    file.write_text('[["VG_100K_2/3968.jpg", {"POS": [], "NEG": ["b"]}]]')
    with pytest.raises(ValueError, match="color.json, entry 0: found .*lists"):
        items(VL_CHECKLIST, folder)
    file.write_text('{"a": 1}')
    with pytest.raises(ValueError, match="color.json: found a dict"):
        items(VL_CHECKLIST, folder)
