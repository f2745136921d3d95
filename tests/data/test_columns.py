"""Names of columns and kinds, and the messages for wrong ones."""

from __future__ import annotations

import datasets
import pytest

from hfcomp.data.columns import (
    BATCH_KEYS,
    COLUMNS,
    KIND_IDS,
    NEGATIVE_KINDS,
    RESERVED_KEYS,
    kind_id,
    nearest,
    rename_columns,
    require_columns,
)


@pytest.fixture
def dataset():
    return datasets.Dataset.from_dict({"picture": [1, 2], "text": ["a", "b"], "image": [3, 4]})


def test_ids_of_kinds_are_their_places():
    assert [kind_id(kind, where="here") for kind in NEGATIVE_KINDS] == list(range(len(NEGATIVE_KINDS)))
    # saved thresholds are indexed by these: a new kind goes to the end
    assert KIND_IDS["replace_att"] == 0
    assert KIND_IDS["other"] == 16


@pytest.mark.parametrize(("kind", "near"), [("swap_attr", "swap_att"), ("replace_object", "replace_obj")])
def test_an_unknown_kind_names_its_place_and_the_nearest(kind, near):
    with pytest.raises(ValueError, match=rf"'negative_kinds', row 7: '{kind}' .*'{near}'"):
        kind_id(kind, where="column 'negative_kinds', row 7")


def test_an_unknown_kind_like_nothing_lists_all():
    with pytest.raises(ValueError, match="'zzz' .*replace_att, .*other"):
        kind_id("zzz", where="here")


def test_nearest_is_empty_where_nothing_is_near():
    assert nearest("zzz", COLUMNS) == ""
    assert nearest("captoin", COLUMNS) == " Did you mean 'caption'?"


def test_no_batch_key_is_reserved():
    assert not set(BATCH_KEYS) & set(RESERVED_KEYS)


def test_columns_are_renamed_and_a_namesake_makes_way(dataset):
    renamed = rename_columns(dataset, {"caption": "text", "image": "picture"})
    assert renamed.to_dict() == {"image": [1, 2], "caption": ["a", "b"]}


def test_nothing_to_rename_changes_nothing(dataset):
    assert rename_columns(dataset, None) is dataset
    assert rename_columns(dataset, {"image": "image"}).column_names == dataset.column_names


def test_a_name_that_is_not_ours_is_refused_and_the_nearest_named(dataset):
    with pytest.raises(ValueError, match=r"'captions' .*'caption'"):
        rename_columns(dataset, {"captions": "text"})


def test_a_name_that_the_set_lacks_is_refused_and_its_own_named(dataset):
    with pytest.raises(ValueError, match="'caption' to 'sentence', .*: picture, text, image"):
        rename_columns(dataset, {"caption": "sentence"})


def test_missing_columns_are_named_with_those_that_are_there(dataset):
    require_columns(dataset, ["image", "text"], needed_by="MyTrainer")
    dataset = dataset.rename_column("text", "words")
    with pytest.raises(ValueError, match="MyTrainer .*column 'caption', .*'picture', 'words', 'image'") as error:
        require_columns(dataset, ["image", "caption"], needed_by="MyTrainer")
    assert "column_names={'caption': '<its name in your dataset>'}" in str(error.value)
    with pytest.raises(ValueError, match="needs .*columns 'caption', 'negative_captions'"):
        require_columns(dataset, ["caption", "negative_captions"], needed_by="MyTrainer")


LEVELS = {"level_1": ["dog", "cat"], "level_2": ["pet", "pet"], "text": ["a", "b"], "other": ["c", "d"]}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"group": "level_1"}, {**LEVELS, "group": LEVELS["level_1"]}),
        (
            {"level_1": "level_2", "level_2": "level_1"},
            {**LEVELS, "level_1": LEVELS["level_2"], "level_2": LEVELS["level_1"]},
        ),
        (
            {"caption": "text", "generalized_caption": "text"},
            {
                **{k: v for k, v in LEVELS.items() if k != "text"},
                "caption": ["a", "b"],
                "generalized_caption": ["a", "b"],
            },
        ),
        (
            {"group": "level_1", "level_1": "other"},
            {"group": LEVELS["level_1"], "level_1": LEVELS["other"], "level_2": LEVELS["level_2"], "text": ["a", "b"]},
        ),
    ],
)
def test_a_column_may_have_two_names_and_two_may_change_places(names, expected, streamed):
    rows = datasets.Dataset.from_dict(LEVELS)
    renamed = rename_columns(rows.to_iterable_dataset() if streamed else rows, names)
    assert {*renamed.column_names} == {*expected}
    assert list(renamed) == datasets.Dataset.from_dict(expected).to_list()
