"""What'sUp in its authors' files (about 1 s)."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation.benchmarks.composition.whatsup import CONTROLLED, WHATSUP
from hfcomp.evaluation.engine import NO_IMAGE, run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import BenchmarkData, Origin, Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Drawn, Sighted, check_known_scorers, items, photos, scores

CONTROLLED_IMAGES, COCO, GQA = WHATSUP
PLACES = {"A": ("left_of", "right_of", "on", "under"), "B": ("left_of", "right_of", "in-front_of", "behind")}
OBJECTS = ("mug", "tea-box")
METRICS = ("caption choice", "pair accuracy", "set accuracy")


def caption(subset: str, thing: str, place: str) -> str:
    return f"{subset}: a {thing} {place} a plate"


SCENES = [(subset, thing, place) for subset, places in PLACES.items() for thing in OBJECTS for place in places]
TRUE = {number: [caption(*scene)] for number, scene in enumerate(SCENES)}


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two sets of four photographs in each part; the right caption is the first."""
    for subset, (file, images) in CONTROLLED.items():
        rows = []
        for number, (part, thing, place) in enumerate(SCENES):
            if part != subset:
                continue
            name = f"{thing}_{place}_plate.jpeg"
            photos(tmp_path / images, {name: number})
            others = [caption(subset, thing, other) for other in PLACES[subset] if other != place]
            options = [caption(subset, thing, place), *others]
            rows.append({"image_path": f"data/{images}/{name}", "caption_options": options})
        (tmp_path / file).write_text(json.dumps(rows))
    return tmp_path


def test_known_scorers_on_photographs_pairs_and_sets(folder):
    rows = items(CONTROLLED_IMAGES, folder)
    check_known_scorers(CONTROLLED_IMAGES, rows, TRUE)
    report = run_benchmark(CONTROLLED_IMAGES, rows, Sighted(oracle.knowing(TRUE))).items
    assert report["metric"].value_counts().to_dict() == dict(zip(METRICS, (16, 8, 4), strict=True))
    chances = report.groupby("metric")["chance"].first()
    assert [chances[metric] for metric in METRICS] == [1 / 4, 1 / 16, 1 / 256]
    assert set(rows.rows["image_id"]) == {f"{part} {thing} plate" for part in PLACES for thing in OBJECTS}


def test_a_random_scorer_is_at_chance():
    """750 sets of four rows, which share neither captions nor images, so that their outcomes are independent."""
    number = 3000
    columns = {
        "caption": [f"a {row}" for row in range(number)],
        "negative_captions": [[f"{slot} of {row}" for slot in range(3)] for row in range(number)],
        "pair": [str(row // 2) for row in range(number)],
        "set": [str(row // 4) for row in range(number)],
    }
    images = {"image": [{"bytes": str(row).encode(), "path": None} for row in range(number)]}
    rows = BenchmarkData(datasets.Dataset.from_dict(columns), Origin("memory"), images=images)
    for _, part in run_benchmark(CONTROLLED_IMAGES, validate(CONTROLLED_IMAGES, rows), Drawn()).items.groupby(
        "metric"
    ):
        chance = part["chance"].iloc[0]
        assert part["value"].mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / len(part)) ** 0.5)


def test_one_wrong_photograph_loses_its_pair_and_its_set(folder):
    encoder = Sighted(oracle.knowing(TRUE | {0: []}))
    values = scores(CONTROLLED_IMAGES, run_benchmark(CONTROLLED_IMAGES, items(CONTROLLED_IMAGES, folder), encoder))
    assert [values["A", metric] for metric in METRICS] == [7 / 8, 3 / 4, 1 / 2]
    assert [values["B", metric] for metric in METRICS] == [1, 1, 1]
    assert [values["macro of A and B", metric] for metric in METRICS] == [15 / 16, 7 / 8, 3 / 4]


def test_a_group_that_lacks_a_photograph_is_not_scored_together_and_noted(folder):
    (folder / "controlled_images" / "mug_on_plate.jpeg").unlink()
    rows = items(CONTROLLED_IMAGES, folder)
    assert rows.left_out == {NO_IMAGE: 1}
    assert list(CONTROLLED_IMAGES.protocol.notes(rows)) == [
        "pair accuracy leaves out 1 groups that do not have 2 rows",
        "set accuracy leaves out 1 groups that do not have 4 rows",
    ]
    report = run_benchmark(CONTROLLED_IMAGES, rows, Sighted(oracle.knowing(TRUE))).items
    assert report["metric"].value_counts().to_dict() == dict(zip(METRICS, (15, 7, 3), strict=True))


SPATIAL = [(COCO, "coco", "val2017", "{:012}.jpg"), (GQA, "vg", "visual_genome", "{}.jpg")]


def spatial(folder: Path, source: str, pool: str, form: str) -> Path:
    for place, number in enumerate(("one", "two")):
        own = range(2 * place, 2 * place + 2)
        rows = [[row, f"a dog on the left {row}", f"a dog on the right {row}"] for row in own]
        (folder / f"{source}_qa_{number}_obj.json").write_text(json.dumps(rows))
        photos(folder / pool, {form.format(row): row for row in own})
    return folder


@pytest.mark.parametrize(("benchmark", "source", "pool", "form"), SPATIAL, ids=["coco", "gqa"])
def test_known_scorers_of_one_object_and_two(benchmark, source, pool, form, tmp_path):
    rows = items(benchmark, spatial(tmp_path, source, pool, form))
    true = {row: [f"a dog on the left {row}"] for row in range(4)}
    check_known_scorers(benchmark, rows, true)
    assert rows.rows["image_id"][:] == [form.format(row) for row in range(4)]
    values = scores(benchmark, run_benchmark(benchmark, rows, Sighted(oracle.knowing(true | {3: []}))))
    assert values["two_obj", "caption choice"] == 1 / 2
    assert values["macro of one and two objects", "caption choice"] == 3 / 4


def test_what_is_wrong_in_a_file_is_named(tmp_path, folder):
    spatial(tmp_path, "coco", "val2017", "{:012}.jpg")
    (tmp_path / "coco_qa_two_obj.json").write_text('[[1, "a dog"]]')
    with pytest.raises(ValueError, match="coco_qa_two_obj.json, entry 0: .*image, caption, negative"):
        items(COCO, tmp_path)
    (folder / "controlled_clevr_dataset.json").write_text('[{"image_path": "data/controlled_clevr/a.jpeg"}]')
    with pytest.raises(ValueError, match="controlled_clevr_dataset.json, entry '0': .*'caption_options'"):
        items(CONTROLLED_IMAGES, folder)


def test_without_the_files_it_says_where_they_are():
    for benchmark in WHATSUP:
        with pytest.raises(Unavailable, match="https://drive.google.com.*--data whatsup=DIR"):
            load_items(benchmark)
