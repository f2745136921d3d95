"""Choice of an image by a concept's name, on folders of one's own (about 2 s)."""

from __future__ import annotations

import json
import re

import pytest
from datasets import Dataset, Image

from hfcomp.data.loading import load_training_set
from hfcomp.evaluation.benchmarks.papers.magic import LEVELS, MAGIC, MAGIC_BY_CONCEPT, MAGIC_CAPTIONS
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.sandbox import levels_set
from tests.evaluation.benchmarks.oracle import constant, knowing, means, photo, random, run
from tests.factory.magic.sets import build_magic

IMAGES = 60
KINDS = ("choice of 2", "choice of 10", "retrieval")
METRICS = [f"level {level} image {kind}" for kind in KINDS for level in (1, 2, 3, 4)]


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
    # of 60 images, 1, 5, 10 and 20 bear the anchor's name
    chances = dict(zip(METRICS, [0.5] * 4 + [0.1] * 4 + [1 / 60, 1 / 56, 1 / 51, 1 / 41], strict=True))
    assert perfect.items.groupby("metric")["chance"].agg(set).to_dict() == {m: {c} for m, c in chances.items()}
    assert list(perfect.items["metric"].unique()) == METRICS
    assert set(perfect.items["image_id"]) == {f"m{n}" for n in range(IMAGES)}
    inverted = run(MAGIC, folder, knowing(truth, right=0.0, wrong=1.0))
    same = run(MAGIC, folder, constant(IMAGES))
    assert set(means(inverted).values()) == set(means(same).values()) == {0.0}
    assert same.items["tie"].all() and not inverted.items["tie"].any()
    drawn = run(MAGIC, folder, random(IMAGES)).items
    for kind, chance in zip(KINDS, (0.5, 0.1, 1 / 52), strict=True):
        values = drawn.loc[drawn["metric"].str.endswith(kind), "value"]
        assert values.mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / (4 * IMAGES)) ** 0.5)


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
    items = validate(MAGIC, load_items(MAGIC, Folders(own={"magic": tmp_path})))
    assert len(items.rows) == 24
    optional = {"caption", "group", "hard_negative_groups"}
    assert set(items.rows.column_names) == {"image", "image_id", "item", "subset", *LEVELS, *optional}
    notes = list(MAGIC.protocol.notes(items))
    assert re.fullmatch(r"level_4: for 24 of 24 rows.*\(.* per row\); .*choice of 2, 0% of the wrong .*", notes[3])
    assert re.search(r"choice of 2, \d+% of .*; .*choice of 10, \d+% of .*", notes[0])


def test_an_image_under_two_concepts_stands_against_neither(tmp_path):
    """Every name is true of half of the images, of two of them by another row than that of their own group."""
    (tmp_path / "images").mkdir()
    concepts = [{"concept": name, "hard_negative": ["b", "a"], "test_images": []} for name in ("a", "b")]
    truth = {}
    for number in range(12):
        (tmp_path / "images" / f"{number}.jpg").write_bytes(photo(number))
        truth[number] = ("a", "b") if number < 2 else ("ab"[number % 2],)
        for own in truth[number]:
            image = {"image": f"{number}.jpg", "new_captions": [f"new {number}"], "old_captions": ["old"]}
            image |= {level.replace("_", ""): own for level in LEVELS}
            concepts["ab".index(own)]["test_images"].append(image)
    (tmp_path / "magic.json").write_text(json.dumps(concepts))
    items = validate(MAGIC, load_items(MAGIC, Folders(own={"magic": tmp_path})))
    assert items.rows["caption"][:2] == ["new 0", "new 1"] and items.rows["group"][0] == "a"
    report = run(MAGIC, tmp_path, knowing(truth))
    # ten others at most: no choice of 10, and every image under a name beats the five that are not
    metrics = [metric for metric in METRICS if "of 10" not in metric]
    assert means(report) == {("all", metric): 1.0 for metric in metrics}
    assert set(report.items.loc[report.items["metric"] == metrics[-1], "chance"]) == {1 / 6}
    note = list(MAGIC.protocol.notes(items))[0]
    assert re.search(r"^level_1: .*14 of 14 .*6\.0 .*choice of 2, 100% .*; 14 .* choice of 10$", note)


def test_images_are_asked_for_by_their_captions_too(tmp_path):
    groups = {"group": "even", "hard_negative_groups": ["odd"]}, {"group": "odd", "hard_negative_groups": ["even"]}
    rows = [
        {"image": {"bytes": photo(n)}, "image_id": f"m{n}", "caption": f"caption {n}", **groups[n % 2]}
        for n in range(24)
    ]
    Dataset.from_list(rows).cast_column("image", Image()).to_parquet(tmp_path / "a.parquet")
    truth = {number: (f"caption {number}",) for number in range(24)}
    report = run(MAGIC_CAPTIONS, tmp_path, knowing(truth))
    assert means(report) == {("all", f"caption image {kind}"): 1.0 for kind in KINDS}
    assert set(means(run(MAGIC_CAPTIONS, tmp_path, knowing(truth, right=0.0, wrong=1.0))).values()) == {0.0}
    items = validate(MAGIC_CAPTIONS, load_items(MAGIC_CAPTIONS, Folders(own={"magic": tmp_path})))
    (note,) = MAGIC_CAPTIONS.protocol.notes(items)
    assert re.search("choice of 2, 100% .* choice of 10, 100%", note)
    Dataset.from_list(rows).remove_columns("caption").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no column 'caption'"):
        load_items(MAGIC_CAPTIONS, Folders(own={"magic": tmp_path}))


def test_crops_of_one_photograph_are_images_of_their_own(tmp_path):
    """Every two rows have one `image_id`, and each its own image and name."""
    rows = [{"image": {"bytes": photo(n)}, "image_id": f"m{n // 2}", **names(n)} for n in range(24)]
    Dataset.from_list(rows).cast_column("image", Image()).to_parquet(tmp_path / "a.parquet")
    report = run(MAGIC, tmp_path, knowing({number: names(number).values() for number in range(24)}))
    assert set(means(report).values()) == {1.0}
    assert set(report.items.loc[report.items["metric"] == "level 1 image retrieval", "chance"]) == {1 / 24}


def test_a_level_of_one_name_is_left_out_and_data_of_one_name_refused(tmp_path):
    rows = [{"image": {"bytes": photo(n)}, "image_id": str(n), **names(n), "level_4": "all"} for n in range(12)]
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    metrics = run(MAGIC, tmp_path, random(12)).items["metric"].unique()
    assert "level 3 image choice of 2" in metrics and not any("level 4" in metric for metric in metrics)
    alike = [row | dict.fromkeys(LEVELS, "all") for row in rows]
    Dataset.from_list(alike).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="level_1, level_2, level_3, level_4 .*images"):
        run(MAGIC, tmp_path, random(12))


def test_rows_without_an_image_or_a_name_are_left_out_and_others_refused(tmp_path):
    rows = [{"image": {"bytes": photo(n)}, "image_id": str(n), **names(n)} for n in range(6)]
    rows[0]["level_2"], rows[1]["image"] = "", None
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    items = validate(MAGIC, load_items(MAGIC, Folders(own={"magic": tmp_path})))
    assert len(items.rows) == 4 and items.left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}
    Dataset.from_list(rows).remove_columns("level_3").to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no column 'level_3'"):
        load_items(MAGIC, Folders(own={"magic": tmp_path}))


def test_it_is_not_released():
    with pytest.raises(Unavailable, match="MAGIC .*--data magic=FOLDER"):
        load_items(MAGIC)


@pytest.fixture(scope="module")
def built_set(tmp_path_factory):
    return build_magic(tmp_path_factory.mktemp("built")).folder


@pytest.mark.parametrize(
    ("benchmark", "view", "texts"),
    [
        (MAGIC, "levels", LEVELS),
        (MAGIC_CAPTIONS, "levels", ["caption"]),
        (MAGIC_BY_CONCEPT, "levels_by_concept", LEVELS),
    ],
)
def test_of_a_built_set_the_test_rows_are_read(built_set, benchmark, view, texts):
    expected = load_training_set(str(built_set), split="test", config=view)
    items = validate(benchmark, load_items(benchmark, Folders(own={"magic": built_set})))
    assert items.rows["image_id"][:] == expected["image_id"][:] and len(expected) in (8, 10)
    assert items.rows["caption"][:] == expected["generalized_caption"][:]
    for text in texts:
        assert items.rows[text][:] == (expected["generalized_caption"] if text == "caption" else expected[text])[:]
    groups = {name: expected[name][:] for name in ("group", "hard_negative_groups")}
    assert {name: items.rows[name][:] for name in groups} == groups


def test_unseen_concepts_need_a_built_set(folder):
    with pytest.raises(ValueError, match="`hfcomp build magic`"):
        load_items(MAGIC_BY_CONCEPT, Folders(own={"magic": folder}))
