"""Choice of the image of a caption of COCO, on a folder as COCO's (about 2 s)."""

from __future__ import annotations

import json

import pytest

from hfcomp.evaluation.benchmarks.retrieval.retrieval import COCO_CAPTION_CHOICE
from tests.evaluation.benchmarks.oracle import constant, knowing, means, photo, random, run

IMAGES = 40
METRICS = ["caption image choice of 2", "caption image choice of 10"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "val2017").mkdir()
    for number in range(IMAGES):
        (tmp_path / "val2017" / f"{number}.jpg").write_bytes(photo(number))
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(IMAGES)]
    captions = [{"image_id": n, "caption": f"{which} {n}"} for n in range(IMAGES) for which in ("first", "second")]
    (tmp_path / "captions_val2017.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return tmp_path


def test_scorers_against_chance(folder):
    first = {number: [f"first {number}"] for number in range(IMAGES)}
    perfect = run(COCO_CAPTION_CHOICE, folder, knowing(first))
    assert means(perfect) == {("all", metric): 1.0 for metric in METRICS}
    assert perfect.items.groupby("metric")["chance"].first().to_dict() == dict(zip(METRICS, (0.5, 0.1), strict=True))
    inverted = run(COCO_CAPTION_CHOICE, folder, knowing(first, right=0.0, wrong=1.0))
    same = run(COCO_CAPTION_CHOICE, folder, constant(IMAGES))
    assert set(means(inverted).values()) == set(means(same).values()) == {0.0} and same.items["tie"].all()
    second = {number: [f"second {number}"] for number in range(IMAGES)}
    assert set(means(run(COCO_CAPTION_CHOICE, folder, knowing(second))).values()) == {0.0}
    drawn = run(COCO_CAPTION_CHOICE, folder, random(IMAGES)).items
    for metric, chance in zip(METRICS, (0.5, 0.1), strict=True):
        values = drawn.loc[drawn["metric"] == metric, "value"]
        assert values.mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / IMAGES) ** 0.5)
