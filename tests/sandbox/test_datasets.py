"""The sets: columns of the contract, rows that say what their images show, the split, and the cache."""

import io
import zlib
from functools import cache

import numpy as np
import pytest
from datasets import Dataset, Image, List, Value, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError
from PIL import Image as Pillow

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.columns import COLUMNS, KIND_IDS, NEGATIVE_KINDS
from hfcomp.sandbox import (
    KIND_WEIGHTS,
    KINDS,
    choice_set,
    edited_pairs_set,
    levels_set,
    pretraining_set,
    retrieval_set,
    sandbox_clip_config,
    sandbox_processor,
    training_set,
    zero_shot_set,
)
from hfcomp.sandbox import datasets as sets
from hfcomp.sandbox import rows as drawing
from hfcomp.sandbox.hierarchy import LEVELS, levels, rival_groups
from hfcomp.sandbox.scenes import NOVEL_COMBINATIONS, is_held_out, is_novel

from .drawn import ADDING
from .eyes import differing_cells, see
from .reader import is_tags, is_true, read
from .tables import raw

# Published sandbox numbers hold for these rows: whoever changes them changes the numbers.
CRC_OF_CAPTIONS = 812860644
MAKERS = [pretraining_set, training_set, choice_set, edited_pairs_set, retrieval_set, zero_shot_set, levels_set]
NEGATIVE_LISTS = ["captions", "kinds", "keywords", "categories", "concreteness"]


@cache
def training_rows():
    return list(training_set(100, 0))


@cache
def rows_of_three():
    return list(training_set(40, 0, num_negatives=3))


@cache
def choice_rows(novel):
    return list(choice_set(3, 0, novel=novel))


def column(rows, name):
    return [row[name] for row in rows]


def names_novelty(caption):
    if is_tags(caption):
        return False
    # General mentions leave the combination open.
    exact = [said for said in read(caption).mentions if len(said.colors) == len(said.shapes) == 1]
    return any((*said.colors, *said.shapes) in NOVEL_COMBINATIONS for said in exact)


# Columns


def test_columns_of_training_are_those_of_the_contract():
    features = training_set(1, 0).features
    assert set(features) - {"noise"} == set(COLUMNS) - {"neighbor_ids", "negative_rated_words", "negative_spans"}
    assert {name for name in features if features[name] == Image()} == {"image", "negative_image", "mask"}
    texts, lists = Value("string"), List(Value("string"))
    assert {name for name in features if features[name] == texts} == {
        *("caption", "group", "generalized_caption", "image_id", "source", "license"),
        *(f"level_{level}" for level in LEVELS),
    }
    assert {name for name in features if features[name] == lists} == {
        *(f"negative_{name}" for name in NEGATIVE_LISTS[:-1]),
        *("positive_captions", "concepts", "hard_negative_groups", "noise"),
    }
    assert features["negative_concreteness"] == List(Value("float32"))
    assert features["concept_spans"] == List(List(List(Value("int32"))))


def test_columns_of_the_other_sets():
    training = set(training_set(1, 0).column_names)
    assert set(pretraining_set(1, 0).column_names) == {"image", "caption", "image_id"}
    assert set(retrieval_set(1, 0).column_names) == {"image", "caption", "positive_captions", "image_id"}
    assert set(choice_set(1, 0).column_names) == training - {"noise"} | {"kind"}
    negatives = {name for name in training if name.startswith("negative")} | {"mask"}
    assert set(levels_set(1, 0).column_names) == training - {"noise"} - negatives
    assert set(zero_shot_set(1, 0).column_names) == {
        *("image", "caption", "shape", "color", "size", "texture", "place", "image_id")
    }
    assert set(edited_pairs_set(1, 0).column_names) == {
        *("concept", "coco_caption", "coco_image", "inpaint_caption", "inpaint_image", "mask", "image_id")
    }


@pytest.mark.parametrize("rows", [training_rows, lambda: choice_rows(False)])
def test_rows_are_whole(rows):
    rows = rows()
    assert len(set(column(rows, "image_id"))) == len(rows)
    assert set(column(rows, "source")) == {"hfcomp-sandbox (synthetic)"}
    for row in rows:
        assert row["image"].size == row["negative_image"].size == row["mask"].size == (36, 36)
        assert (row["image"].mode, row["mask"].mode) == ("RGB", "L")
        assert all(len(row[f"negative_{name}"]) == 1 for name in NEGATIVE_LISTS)
        assert row["negative_kinds"][0] in NEGATIVE_KINDS
        assert row["negative_categories"][0] in ("attribute", "object", "relation")
        assert 1 <= row["negative_concreteness"][0] <= 5
        assert not row.get("noise")


# What the images show


@pytest.mark.parametrize("rows", [training_rows, lambda: choice_rows(False), lambda: choice_rows(True)])
def test_tuples_say_what_their_images_show(rows):
    for row in rows():
        image, other = see([row["image"], row["negative_image"]])
        assert is_true(row["caption"], image) and is_true(row["positive_captions"][0], image)
        assert row["positive_captions"] != [row["caption"]]
        assert not is_true(row["negative_captions"][0], image) and is_true(row["negative_captions"][0], other)
        assert is_true(row["caption"], other) == (row["negative_kinds"][0] in ADDING)
        white = differing_cells(row["mask"], np.zeros((36, 36), dtype=np.uint8))
        assert white == differing_cells(row["image"], row["negative_image"])


@pytest.mark.parametrize("rows", [training_rows, lambda: choice_rows(False), lambda: list(levels_set(60, 0))])
def test_meaning_is_that_of_the_image_and_the_caption(rows):
    rows = rows()
    for row, scene in zip(rows, see(column(rows, "image")), strict=True):
        assert tuple(row[f"level_{level}"] for level in LEVELS) == levels(scene)
        assert row["group"] == row["level_1"]
        assert row["hard_negative_groups"] == rival_groups(row["group"])
        assert is_true(row["generalized_caption"], scene)
        assert [row["caption"][start:end] for ((start, end),) in row["concept_spans"]] == row["concepts"]
        assert len(row["concepts"]) == len(read(row["caption"]).mentions)


def test_retrieval_rows_say_what_their_images_show():
    rows = list(retrieval_set(60, 0))
    for row, scene in zip(rows, see(column(rows, "image")), strict=True):
        assert is_true(row["caption"], scene)
        assert len(row["positive_captions"]) == 1 and is_true(row["positive_captions"][0], scene)
        assert row["positive_captions"][0] != row["caption"]


def test_pretraining_rows_say_what_their_images_show():
    rows = list(pretraining_set(100, 0))
    assert all(is_true(row["caption"], scene) for row, scene in zip(rows, see(column(rows, "image")), strict=True))
    assert len(set(column(rows, "image_id"))) == len(rows)


@pytest.mark.parametrize("novel", [False, True])
def test_zero_shot_labels_are_those_of_the_image(novel):
    rows = list(zero_shot_set(80, 0, novel=novel))
    for row, scene in zip(rows, see(column(rows, "image")), strict=True):
        (thing,) = scene.things
        assert (thing.shape, thing.color, thing.count) == (row["shape"], row["color"], 1)
        assert (thing.size, thing.texture) == (row["size"], row["texture"])
        assert is_true(row["caption"], scene) and f" {row['place']} on a " in row["caption"]
        assert is_novel(scene.things) == novel and is_held_out(scene)
    assert len(set(column(rows, "shape"))) == len(set(column(rows, "color"))) == 8


def test_edited_pairs_are_the_choices_of_their_kinds():
    rows = list(edited_pairs_set(3, 0))
    names = {"replace_att": "color", "replace_size": "size", "replace_obj": "object", "replace_rel": "location"}
    choices = [row for row in choice_set(3, 0) if row["kind"] in names]
    assert column(rows, "concept") == [names[kind] for kind in column(choices, "kind")]
    assert {concept: column(rows, "concept").count(concept) for concept in names.values()} == dict.fromkeys(
        names.values(), 3
    )
    assert column(rows, "coco_caption") == column(choices, "caption")
    for row in rows:
        image, other = see([row["coco_image"], row["inpaint_image"]])
        assert is_true(row["coco_caption"], image) and not is_true(row["coco_caption"], other)
        assert is_true(row["inpaint_caption"], other) and not is_true(row["inpaint_caption"], image)


# The split


def test_training_shows_no_scene_of_evaluation():
    pretraining = pretraining_set(150, 0)["image"][:]
    tuples = [*training_rows(), *rows_of_three()]
    scenes = see([*pretraining, *column(tuples, "image"), *column(tuples, "negative_image")])
    assert not any(is_held_out(scene) for scene in scenes)
    assert not any(is_novel(scene.things) for scene in scenes)


def test_training_names_no_novel_combination():
    texts = [*column(pretraining_set(150, 0), "caption")]
    for row in [*training_rows(), *rows_of_three()]:
        texts += [row["caption"], *row["positive_captions"], *filter(None, row["negative_captions"])]
    assert len(texts) > 450 and not any(map(names_novelty, texts))


def test_evaluation_shows_scenes_of_evaluation_alone():
    usual = [*retrieval_set(60, 0)["image"], *levels_set(60, 0)["image"], *column(choice_rows(False), "image")]
    usual = see([*usual, *column(choice_rows(False), "negative_image")])
    novel = see([*column(choice_rows(True), "image"), *column(choice_rows(True), "negative_image")])
    assert all(is_held_out(scene) for scene in [*usual, *novel])
    assert not any(is_novel(scene.things) for scene in usual)


def test_novel_choices_mention_a_novel_combination():
    assert all(names_novelty(row["caption"]) for row in choice_rows(True))
    assert not any(names_novelty(row["caption"]) for row in choice_rows(False))


# Kinds and numbers


@pytest.mark.parametrize("novel", [False, True])
def test_choice_set_has_every_kind_equally_often(novel):
    rows = choice_rows(novel)
    assert column(rows, "kind") == [kind for kind in KINDS for _ in range(3)]
    attributes = ("replace_size", "replace_texture", "replace_count")
    expected = [["replace_att" if kind in attributes else kind] for kind in column(rows, "kind")]
    assert column(rows, "negative_kinds") == expected


def test_choice_set_of_one_kind():
    assert set(choice_set(2, 0, kinds=["swap_att"])["kind"]) == {"swap_att"}
    with pytest.raises(ValueError, match="swap_all"):
        choice_set(1, 0, kinds=["swap_all"])


def test_retrieval_captions_name_different_things():
    mentions = [read(caption).mentions for caption in retrieval_set(150, 0)["caption"]]
    named = {frozenset((said.colors, said.shapes) for said in pair) for pair in mentions}
    assert len(named) == 150 and {len(pair) for pair in named} == {2}


def test_default_weights_are_of_kinds_that_change_and_do_not_add():
    attributes = ("replace_size", "replace_texture", "replace_count")
    kinds = {row["negative_kinds"][0] for row in training_rows()}
    assert kinds <= {"replace_att" if kind in attributes else kind for kind in KIND_WEIGHTS}
    assert set(KIND_WEIGHTS) <= set(KINDS) - set(ADDING) and len(kinds) > 3


def test_kind_weights_choose_the_kinds():
    rows = training_set(120, 0, kind_weights={"replace_att": 3, "replace_obj": 1, "swap_att": 0})
    kinds = [kinds[0] for kinds in rows["negative_kinds"]]
    assert set(kinds) == {"replace_att", "replace_obj"}
    assert 0.6 < np.mean([kind == "replace_att" for kind in kinds]) < 0.9


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"swap_all": 1}, "swap_all"),
        ({"swap_att": 0}, "swap_att.: 0"),
        ({"swap_att": -1}, "swap_att.: -1"),
        ({}, "{}"),
    ],
)
def test_kind_weights_are_checked(weights, message):
    with pytest.raises(ValueError, match=message):
        training_set(1, 0, kind_weights=weights)


@pytest.mark.parametrize("make", MAKERS)
def test_number_of_rows_is_checked(make):
    with pytest.raises(ValueError, match="at least one"):
        make(0, 0)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="1,000"):
        retrieval_set(1001, 0)
    with pytest.raises(ValueError, match="at least one"):
        training_set(1, 0, num_negatives=0)


# Several negatives


def test_several_negatives_are_false_and_padded_at_the_end():
    rows, lengths = rows_of_three(), set()
    for row, scene in zip(rows, see(column(rows, "image")), strict=True):
        texts = list(filter(None, row["negative_captions"]))
        lengths.add(len(texts))
        assert row["negative_captions"] == texts + [""] * (3 - len(texts))
        assert len(set(texts)) == len(texts) and not any(is_true(text, scene) for text in texts)
        for name in NEGATIVE_LISTS[1:]:
            values, padding = row[f"negative_{name}"], None if name == "concreteness" else ""
            assert [value != padding for value in values] == [bool(text) for text in row["negative_captions"]]
    assert {1, 2, 3} >= lengths > {3}


def test_collator_reads_the_rows():
    collator = CompositionalCollator(
        sandbox_processor(), sandbox_clip_config(), num_negatives=3, negative_image=True, max_concepts=3
    )
    rows = rows_of_three()[:32]
    batch = collator(rows)
    expected = [[bool(text) for text in row["negative_captions"]] for row in rows]
    assert batch["negative_text_mask"].tolist() == expected
    assert (~batch["negative_concreteness"].isnan()).tolist() == expected
    assert len(batch["negative_input_ids"]) == sum(map(sum, expected))
    assert batch["negative_kind"][0, 0] == KIND_IDS[rows[0]["negative_kinds"][0]]
    assert batch["negative_image_mask"].all() and not batch["truncated"].any() and not batch["cut_concepts"].any()
    assert (batch["concept_image_index"] >= 0).sum() == sum(len(row["concepts"]) for row in rows)


# The same rows again


@pytest.mark.parametrize("make", MAKERS)
def test_same_seed_same_bytes_and_another_seed_other_rows(make, request):
    first, other = raw(make(2, 5)), raw(make(2, 6))
    request.getfixturevalue("empty_cache")
    assert raw(make(2, 5)) == first
    image = "coco_image" if make is edited_pairs_set else "image"
    assert not set(first[image]) & set(other[image])


def test_sets_of_one_seed_show_different_scenes():
    images = [image for make in MAKERS if make is not edited_pairs_set for image in raw(make(2, 5))["image"]]
    assert len(set(images)) == len(images)


def test_rows_are_the_same_in_every_process():
    dataset = training_set(40, 1)
    texts = [*dataset["caption"], *(captions[0] for captions in dataset["negative_captions"])]
    assert zlib.crc32("\n".join(texts).encode()) == CRC_OF_CAPTIONS


def no_image(scenes):
    raise RuntimeError("an image is made")


def test_second_call_reads_the_cache(monkeypatch):
    first = raw(training_set(5, 77))
    monkeypatch.setattr(drawing, "render", no_image)
    assert raw(training_set(5, 77)) == first
    for settings in ({"num_negatives": 2}, {"edit_noise": 0.5}, {"kind_weights": {"swap_att": 1}}):
        with pytest.raises(DatasetGenerationError):
            training_set(5, 77, **settings)


def test_cache_is_not_read_by_other_code(monkeypatch):
    training_set(5, 77)
    monkeypatch.setattr(sets, "_source_digest", lambda: "another version")
    monkeypatch.setattr(drawing, "render", no_image)
    with pytest.raises(DatasetGenerationError):
        training_set(5, 77)


# On disk


def to_parquet(dataset, folder):
    dataset.to_parquet(folder / "train.parquet")
    return load_dataset(str(folder), split="train")


def to_disk(dataset, folder):
    dataset.save_to_disk(folder)
    return load_from_disk(folder)


@pytest.mark.parametrize("write", [to_parquet, to_disk])
def test_sets_are_read_back_as_they_were(tmp_path, write):
    dataset = training_set(6, 0, num_negatives=3, edit_noise=0.5)
    loaded = write(dataset, tmp_path)
    assert isinstance(loaded, Dataset) and loaded.features == dataset.features
    assert raw(loaded) == raw(dataset)
    for name in ("image", "negative_image", "mask"):
        file = Pillow.open(io.BytesIO(raw(dataset)[name][0]))
        assert np.array_equal(np.asarray(loaded[0][name]), np.asarray(file))
