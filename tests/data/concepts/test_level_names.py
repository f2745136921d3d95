"""Names of concepts among the texts to train on, in columns of any set and in the sandbox's. 1 second."""

from __future__ import annotations

import pytest
from datasets import Dataset

from hfcomp.data.concepts.level_names import LEVEL_COLUMNS, LevelName, level_columns, level_names
from hfcomp.data.loading import TrainingRows
from hfcomp.sandbox import training_set


def rows(**columns) -> TrainingRows:
    return TrainingRows(Dataset.from_dict(columns), list(columns))


def test_names_of_any_row_and_column_are_found_in_the_order_of_rows():
    texts = {"caption": ["red ball", "a dog", "cat"], "generalized_caption": ["toy", "ball", "Animal"]}
    names = {"group": ["ball", "Pet", "Pet"], "level_1": [["Ball"], ["animal", "toy"], []]}
    mapping = level_names(rows(**texts, **names), ("caption", "generalized_caption"))
    assert list(mapping.items()) == [
        (0, LevelName("generalized_caption", "toy", "level_1")),
        (1, LevelName("generalized_caption", "ball", "group")),
        (2, LevelName("generalized_caption", "Animal", "level_1")),
    ]
    assert level_names(rows(**texts, **names), ("caption",)) == {}
    # the first text of a row, though the other is a name as well
    both = rows(caption=["dog", "toy"], generalized_caption=["toy", "toy"], level_4=["toy", "toy"])
    assert [said.column for said in level_names(both, tuple(texts)).values()] == ["generalized_caption", "caption"]


@pytest.mark.parametrize(
    "text", ["Birthday Party", " birthday  party.", "\u201cbirthday party\u201d", "birthday party!"]
)
def test_a_name_is_one_in_any_case_and_with_any_stop(text):
    assert list(level_names(rows(caption=["x", text], level_2=["Birthday party", None]), ("caption",))) == [1]


@pytest.mark.parametrize("text", ["a birthday party", "birthday-party", "birthday parties", "", " ", ".", None])
def test_a_text_that_says_more_or_nothing_is_no_name(text):
    mapping = level_names(rows(caption=["x", text], level_2=["Birthday party", "."], level_3=["", None]), ("caption",))
    assert mapping == {}


def test_columns_are_found_by_their_own_names():
    dataset = Dataset.from_dict({"level_2": ["a"], "concept": ["b"], "caption": ["c"]})
    assert level_columns(dataset, None) == ["level_2"]
    assert level_columns(dataset, {"group": "concept"}) == ["group", "level_2"]
    assert level_columns(dataset, {"group": "level_2"}) == ["group", "level_2"]
    assert level_columns(None, None) == level_columns([], {}) == []


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_no_text_of_the_sandbox_is_a_name(noise):
    columns = ["caption", "generalized_caption", *LEVEL_COLUMNS]
    dataset = training_set(600, 0, caption_noise=noise).select_columns(columns)
    assert level_names(TrainingRows(dataset, columns), columns[:2]) == {}
    # what would be one says that it is there
    said = [text.removeprefix("there are ") for text in dataset["generalized_caption"]]
    assert len(set(said) & set(dataset["level_1"])) > 3
