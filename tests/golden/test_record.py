"""The comparison with a golden file: what it finds, and how it says so."""

from __future__ import annotations

import json
import math

import pytest

from tests.golden import record

FOUND = {
    "results.json": {
        "lines": [{"value": 0.25, "p": 1.0, "name": "swap"}, {"value": math.nan}],
        "stages": {"loss": 0.5},
    }
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    record.check("mine", FOUND, write=True)
    return tmp_path


def change_contents(**line: object) -> dict:
    contents = json.loads(json.dumps(FOUND))
    contents["results.json"]["lines"][0].update(line)
    return contents


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (change_contents(value=0.250001), "/results.json/lines/0/value: 0.25 -> 0.250001"),
        (change_contents(value=math.nan), "/results.json/lines/0/value: 0.25 -> NaN"),
        (change_contents(p=1), "/results.json/lines/0/p: 1.0 -> 1"),
        (change_contents(name="add"), '/results.json/lines/0/name: "swap" -> "add"'),
        (change_contents(q=0.5), "/results.json/lines/0/q: nothing -> 0.5"),
        ({"results.json": {"lines": []}}, "/results.json/lines: 2 entries -> 0"),
        (
            {"results.json": dict(reversed(FOUND["results.json"].items()))},
            "/results.json: the order of the keys, lines, stages -> stages, lines",
        ),
    ],
)
def test_a_difference_is_named_with_its_place_and_both_values(folder, actual, expected):
    with pytest.raises(AssertionError) as caught:
        record.check("mine", actual, write=False)
    assert expected in str(caught.value).splitlines()


def test_the_same_and_other_roundings_pass(folder):
    actual = change_contents(value=0.25 + 1e-12)
    actual["results.json"]["stages"]["loss"] += 1e-5
    record.check("mine", actual, write=False)
    actual["results.json"]["stages"]["loss"] += 1e-2
    with pytest.raises(AssertionError, match=r"stages/loss: 0\.5 -> 0\.51"):
        record.check("mine", actual, write=False)


def test_many_differences_are_cut_to_twenty_lines(folder):
    record.check("many", [0] * 99, write=True)
    with pytest.raises(AssertionError) as caught:
        record.check("many", [1] * 99, write=False)
    assert str(caught.value).splitlines()[1:] == [*(f"/{place}: 0 -> 1" for place in range(19)), "... and 80 more"]


def test_what_is_written_anew_differs_in_nothing_but_what_moved(folder):
    before = (folder / "mine.json").read_text().splitlines()
    actual = change_contents(p=0.5, value=0.25 + 1e-12)
    actual["results.json"]["stages"]["loss"] += 1e-5
    record.check("mine", actual, write=True)
    after = (folder / "mine.json").read_text().splitlines()
    assert [line for line in after if line not in before] == ['   {"value": 0.25, "p": 0.5, "name": "swap"},']
