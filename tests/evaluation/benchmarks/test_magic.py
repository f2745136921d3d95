"""Choice of an image by a concept's name, on folders of one's own (about 2 s)."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset, Image

from hfcomp.evaluation.benchmarks.magic import LEVELS, MAGIC
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, checked
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.sandbox import levels_set
from tests.evaluation.benchmarks.oracle import constant, knowing, means, photo, random, run

IMAGES = 60
METRICS = [f"level {level} image choice" for level in (1, 2, 3, 4)]


def names(number: int) -> dict[str, str]:
    """Level 4 has three concepts, level 1 one for each image."""
    return {level: f"{level} {number % parts}" for level, parts in zip(LEVELS, (IMAGES, 12, 6, 3), strict=True)}


@pytest.fixture
def folder(tmp_path):
    rows = [{"image": {"bytes": photo(n)}, "image_id": f"m{n}", **names(n)} for n in range(IMAGES)]
    for part in (0, 1):
        half = Dataset.from_list(rows[part * 30 :][:30]).cast_column("image", Image())
        half.to_parquet(tmp_path / f"magic-{part}.parquet")
    return tmp_path


def test_scorers_against_chance(folder):
    truth = {number: names(number).values() for number in range(IMAGES)}
    perfect = run(MAGIC, folder, knowing(truth))
    assert means(perfect) == {("all", metric): 1.0 for metric in METRICS}
    assert set(perfect.items["chance"]) == {0.5} and set(perfect.items["image_id"]) == {f"m{n}" for n in range(IMAGES)}
    inverted = run(MAGIC, folder, knowing(truth, right=0.0, wrong=1.0))
    same = run(MAGIC, folder, constant(IMAGES))
    assert set(means(inverted).values()) == set(means(same).values()) == {0.0}
    assert same.items["tie"].all() and not inverted.items["tie"].any()
    drawn = run(MAGIC, folder, random(IMAGES)).items["value"]
    assert drawn.mean() == pytest.approx(0.5, abs=4 * 0.5 / (4 * IMAGES) ** 0.5)


def test_the_authors_json_holds_the_same_items(tmp_path, folder):
    raw = tmp_path / "raw"
    (raw / "images").mkdir(parents=True)
    concepts = []
    for number in range(IMAGES):
        (raw / "images" / f"{number}.jpg").write_bytes(photo(number))
        image = {"image": f"{number}.jpg", "old_captions": [], "new_captions": []}
        levels = {level.replace("_", ""): name for level, name in names(number).items()}
        concept = {"concept": f"c{number % 5}", "hard_negative": [], "train_images": []}
        concepts.append({**concept, "test_images": [{**image, **levels}]})
    (raw / "magic.json").write_text(json.dumps(concepts))
    truth = {number: names(number).values() for number in range(IMAGES)}
    report, other = run(MAGIC, raw, random(IMAGES)), run(MAGIC, folder, random(IMAGES))
    assert report.items[["metric", "value"]].equals(other.items[["metric", "value"]])
    assert report.items["item"][1] == "c1/1.jpg" and report.items["image_id"][1] == "1.jpg"
    assert means(run(MAGIC, raw, knowing(truth))) == {("all", metric): 1.0 for metric in METRICS}


def test_the_sandboxs_levels_are_such_a_folder(tmp_path):
    levels_set(24, seed=0).to_parquet(tmp_path / "levels.parquet")
    items = checked(MAGIC, load_items(MAGIC, Folders(own={"magic": tmp_path})))
    assert len(items.rows) == 24 and set(items.rows.column_names) == {"image", "image_id", "item", "subset", *LEVELS}


def test_rows_without_an_image_or_a_name_are_left_out_and_others_refused(tmp_path):
    rows = [{"image": {"bytes": photo(n)}, "image_id": str(n), **names(n)} for n in range(6)]
    rows[0]["level_2"], rows[1]["image"] = "", None
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    items = checked(MAGIC, load_items(MAGIC, Folders(own={"magic": tmp_path})))
    assert len(items.rows) == 4 and items.left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}
    Dataset.from_list(rows).remove_columns("level_3").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no column 'level_3'"):
        load_items(MAGIC, Folders(own={"magic": tmp_path}))


def test_it_is_not_released():
    with pytest.raises(Unavailable, match="MAGIC is not released.*--data magic=FOLDER"):
        load_items(MAGIC)
