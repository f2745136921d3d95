"""What is wrong in a file is one line: place, what was found, what is expected, and the nearest known key."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt

from hfcomp.schemas import Strict, convert, parse, plain_name


class Part(Strict):
    """Of a file."""

    size: PositiveInt
    kind: Literal["red", "blue"] = "red"
    numbers: list[int] = Field(default=[], description="a list of numbers, as [1, 2]")
    ratio: Annotated[float, Field(le=1)] = 0.5


class Whole(Strict):
    """A file."""

    parts: dict[Annotated[str, plain_name("base")], Part]
    first: Part | None = None
    on: bool = False
    texts: list[str] = []


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"part": {}}, "file: unknown key 'part'. Did you mean 'parts'? Known: parts, first, on, texts."),
        ({"parts": {"a": {"sise": 1}}}, "file: parts: a: unknown key 'sise'. Did you mean 'size'? Known: size, "),
        ({"parts": {}, "first": {"size": 1, "knid": "red"}}, "file: first: unknown key 'knid'. Did you mean 'kind'?"),
        ({}, "file: parts is missing. Expected a value."),
        ([1], "file: found [1], expected a mapping."),
        (None, "file: found nothing, expected a mapping."),
        ({"parts": {"a": {"size": 0}}}, "file: parts: a: size: found 0, expected more than 0."),
        ({"parts": {"a": {"size": 1.5}}}, "file: parts: a: size: found 1.5, expected a whole number."),
        ({"parts": {"a": {"size": 8.0}}}, "file: parts: a: size: found 8.0, expected a whole number."),
        ({"parts": {"a": {"size": True}}}, "file: parts: a: size: found True, expected a whole number."),
        ({"parts": {"a": {"size": "8"}}}, "file: parts: a: size: found '8', expected a whole number."),
        ({"parts": {"a": [1]}}, "file: parts: a: found [1], expected a mapping."),
        ({"parts": {"a": {"size": 1, "kind": "bleu"}}}, "'bleu', expected one of red, blue. Did you mean 'blue'?"),
        ({"parts": {"a": {"size": 1, "numbers": 5}}}, "numbers: found 5, expected a list of numbers, as [1, 2]."),
        ({"parts": {"a": {"size": 1, "numbers": [1, "x"]}}}, "numbers: entry 2: found 'x', expected a whole number."),
        ({"parts": {"a": {"size": 1, "ratio": 1.5}}}, "ratio: found 1.5, expected at most 1.0."),
        ({"parts": {"a": {"size": 1, "ratio": float("nan")}}}, "ratio: found nan, expected a finite number."),
        ({"parts": {}, "on": 1}, "file: on: found 1, expected true or false."),
        ({"parts": {}, "texts": [False]}, "texts: entry 1: found False, expected a string. YAML reads yes, no"),
        ({"parts": {}, "texts": [7]}, "entry 1: found 7, expected a string. Put a string that looks like a number in"),
        ({"parts": {True: {}}}, "file: parts: found True, expected a string. YAML reads yes, no"),
        ({"parts": {"../evil": {"size": 1}}}, "file: parts: '../evil' is not a plain name."),
        ({"parts": {"Base": {"size": 1}}}, "file: parts: 'Base' is reserved, as are base."),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(values, line):
    with pytest.raises(ValueError) as caught:
        parse(Whole, values, "file")
    assert line in str(caught.value) and "\n" not in str(caught.value) and str(caught.value).startswith("file: ")


def test_what_is_right_is_read_and_does_not_change():
    whole = parse(Whole, {"parts": {"a b-1": {"size": 2, "ratio": 1}}}, "file")
    assert whole.parts["a b-1"] == Part(size=2, ratio=1.0)
    with pytest.raises(ValueError, match="frozen"):
        whole.on = True


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "-a", " a", "a ", "a\nb", "x" * 101, "/a"])
def test_a_name_is_no_path(name):
    with pytest.raises(ValueError, match="plain name"):
        parse(Annotated[str, plain_name()], name, "file")


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, "8", 8),
        (int | None, "8", 8),
        (float, "1e-3", 0.001),
        (float, 1, 1.0),
        (bool, "true", True),
        (str | int, "8", "8"),
        (list[int], ["1", "2"], [1, 2]),
        (float | None, None, None),
    ],
)
def test_a_text_spells_the_value_of_a_field(hint, value, expected):
    assert repr(convert(value, hint, "file")) == repr(expected)


@pytest.mark.parametrize(
    ("hint", "value", "line"),
    [
        (int, "3.5", "file: found '3.5', expected a whole number."),
        (int, True, "file: found True, expected a whole number."),
        (int, 3.0, "file: found 3.0, expected a whole number."),
        (float, "abc", "file: found 'abc', expected a number."),
        (bool, 1, "file: found 1, expected true or false."),
        (str, ["a"], "file: found ['a'], expected a string."),
        (str | list[str] | None, 5, "file: found 5, expected a string or a list."),
        (Annotated[int | None, Field(ge=1)], "0", "file: found '0', expected at least 1."),
    ],
)
def test_a_value_of_another_type_is_refused(hint, value, line):
    with pytest.raises(ValueError) as caught:
        convert(value, hint, "file")
    assert str(caught.value) == line
