"""Texts of others in CSV files: no spreadsheet runs them, and they come back as they were."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

import hfcomp
from hfcomp.csv_cells import plain_cell, safe_cell
from hfcomp.writing import write_csv

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x","y")']
PLAIN = ["a dog", "-3.5", "+1", "-1e-5", "3", "", "a = b", "'quoted'", "a-b", "5 - 3"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_a_text(text):
    assert safe_cell(text) == f"'{text}"
    assert plain_cell(safe_cell(text)) == text
    assert safe_cell(f"'{text}") == f"''{text}"  # so one apostrophe less is always the original


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_and_numbers_stay(text):
    assert safe_cell(text) == plain_cell(text) == text


@pytest.mark.parametrize("value", [-3.5, -1, None, True])
def test_values_that_are_not_texts_stay(value):
    assert safe_cell(value) is value


def test_a_written_table_has_no_cell_that_begins_like_a_formula(tmp_path):
    table = pd.DataFrame({"text": [*FORMULAS, "a dog"], "score": [-0.5] * (len(FORMULAS) + 1)})
    write_csv(tmp_path / "a.csv", table)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [*(f"'{text}" for text in FORMULAS), "a dog"]
    assert {row["score"] for row in rows} == {"-0.5"}
    assert list(table["text"]) == [*FORMULAS, "a dog"]


def test_numbers_and_missing_values_are_written_as_pandas_does(tmp_path):
    table = pd.DataFrame({"a": pd.Series([1, None, -2.5], dtype=object), "b": [1, 2, 3], "c": [None, None, None]})
    write_csv(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").read_text() == table.to_csv(index=False)


def test_every_csv_file_is_written_by_write_csv():
    package = Path(hfcomp.__file__).parent
    writers = {
        path.name
        for path in package.rglob("*.py")
        for word in ("to_csv(", "csv.writer", "csv.DictWriter")
        if word in path.read_text()
    }
    assert writers == {"writing.py"}
