"""Files of others: bombs, deep nesting, halves of characters and long fields are refused by file and line, at once."""

from __future__ import annotations

import gc
import json
import sys
import time

import pytest

from hfcomp.data.formats.caption_files import READERS, read_captions
from hfcomp.evaluation.benchmarks.readers.files import entries, line_entries
from hfcomp.experiments.recipes import read_recipe
from hfcomp.negatives.keywords import read_keyword_table
from hfcomp.reading import csv_rows, parse_json, read_json, read_yaml

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
DEEP = 200_000
YAML = {
    "bomb": (BOMB, "line 5: found more than 100,000 values"),
    "deep lists": ("objective: " + "[" * DEEP, "line 1: found more than 50 levels"),
    "deep mappings": ("objective: " + "{a: " * DEEP, "line 1: found more than 50"),
    "an alias inside itself": ("a: &a [*a]", r"line 1: \*a refers to itself"),
    "half a character": ('caption: "\\ud800"', "line 1: found a NUL or lone surrogate"),
    "a NUL": ('dataset: "a\\0b"', "line 1: found a NUL"),
    "a file too large": ("#" + "x" * 2**20, "1,048,576"),
    "a number too long": ("seed: " + "9" * 5000, "a value in it cannot be read"),
    "a day that is not": ("seed: 2001-99-99", "a value in it cannot be read"),
    "a key twice": ("a: 1\na: 2", "'a', first used in line 1"),
    "another encoding": ("a: é".encode("latin-1"), "not UTF-8"),
}


@pytest.mark.parametrize("read", [read_yaml, read_keyword_table, lambda path: read_recipe(str(path), [])])
@pytest.mark.parametrize("name", YAML)
def test_hostile_yaml_is_refused_by_file_and_place(tmp_path, name, read):
    content, message = YAML[name]
    path = tmp_path / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.monotonic()
    with pytest.raises(ValueError, match=f"file.yaml.*{message}"):
        read(path)
    assert time.monotonic() - start < 10


def test_aliases_and_merges_of_ordinary_size_are_read(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("base: &base {a: 1, b: [1, 2]}\nother: {<<: *base, a: 2}\nsame: *base\n")
    assert read_yaml(path)["other"] == {"a": 2, "b": [1, 2]}


def test_a_key_that_a_merge_overrides_is_not_there_twice(tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nouter:\n  b: &b {<<: *a, x: 3}\nc: {<<: *b, z: 1}\n")
    assert read_yaml(path)["c"] == {"x": 3, "y": 2, "z": 1}
    path.write_text("a: &a {x: 1}\nb: {<<: *a, z: 1, z: 2}\n")
    with pytest.raises(ValueError, match="duplicate key 'z'"):
        read_yaml(path)


JSON = {
    "deep lists": ("[" * DEEP, "nested too deeply"),
    "half a character": ('{"key": "1", "caption": "a \\ud800 dog"}', r"lone surrogate '\\ud800'"),
    "a number too long": ('{"key": ' + "9" * 5000 + "}", "4300 digits"),
}


@pytest.mark.parametrize("name", JSON)
def test_hostile_json_is_refused_by_file_and_line(tmp_path, name):
    content, message = JSON[name]
    for ending in ("json", "jsonl"):
        path = tmp_path / f"a.{ending}"
        path.write_text(content if ending == "json" else '{"key": "0", "caption": "a"}\n' + content)
        place = "a.json" if ending == "json" else "a.jsonl, line 2"
        with pytest.raises(ValueError, match=f"{place}.*{message}"):
            read_captions(path)
    with pytest.raises(ValueError, match=f"a.json.*{message}"):
        read_json(tmp_path / "a.json")
    with pytest.raises(ValueError, match=f"a.json.*{message}"):
        entries(tmp_path / "a.json", ("caption",))
    with pytest.raises(ValueError, match=f"a.jsonl, line 2.*{message}"):
        line_entries(tmp_path / "a.jsonl", ("caption",))


class Collected:
    """Garbage whose finalizer needs some stack."""

    def __init__(self, ends: list[int]) -> None:
        self.itself, self.ends = self, ends

    def __del__(self) -> None:
        self.ends.append(sum_to(100))


def sum_to(number: int) -> int:
    return number and number + sum_to(number - 1)


def test_no_finalizer_runs_deep_inside_nested_json(monkeypatch):
    """On Python 3.11 it would fail with a RecursionError of its own, which nobody catches."""
    unraisable, ends, thresholds = [], [], gc.get_threshold()
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(args.exc_type))
    starts = range(600, 900, 10)  # of a collection, in allocated lists
    for start in starts:
        gc.collect()
        Collected(ends)
        gc.set_threshold(start)
        try:
            with pytest.raises(ValueError, match="nested too deeply"):
                parse_json("[" * DEEP)
            assert gc.isenabled()
        finally:
            gc.set_threshold(*thresholds)
    gc.collect()
    assert (unraisable, ends) == ([], [5050] * len(starts))


def test_values_nested_as_deeply_as_json_reads_are_refused_too(tmp_path):
    path = tmp_path / "a.json"
    for depth in range(300, 1000, 10):
        path.write_text("[" * depth + "]" * depth)
        with pytest.raises(ValueError, match="a.json"):
            read_captions(path)


def test_whole_characters_written_as_two_halves_are_read():
    assert parse_json(json.dumps("🐕")) == "🐕"


def test_a_file_with_whole_characters_is_not_written_out_to_check_it(monkeypatch):
    content = json.dumps(["🐕", "é", "a dog 🐕🐕"])
    monkeypatch.setattr(json, "dumps", lambda *_, **__: pytest.fail("written out again"))
    assert parse_json(content) == ["🐕", "é", "a dog 🐕🐕"]


@pytest.mark.parametrize(
    "text", [r"\ud83d", r"\ude00", r"\ud83d\ud83d\ude00", r"\ude00\ud83d", r"\\ud83d\ude00", r"\uD83Dx\uDE00"]
)
def test_every_half_of_a_character_is_found(text):
    with pytest.raises(ValueError, match="lone surrogate"):
        parse_json(f'["{text}"]')
    assert parse_json(r'["\\ud83d \ud83d\ude00"]') == ["\\ud83d \U0001f600"]


@pytest.mark.parametrize(("name", "between"), [("a.csv", ","), ("a.tsv", "\t")])
def test_a_field_that_is_too_long_names_file_and_line(tmp_path, name, between):
    path = tmp_path / name
    path.write_text(f'key{between}caption\n1{between}a dog\n2{between}"' + "x" * 200_000 + '"\n')
    with pytest.raises(ValueError, match=f"{name}, line 3: .* 131,072 .*quote"):
        read_captions(path)
    with pytest.raises(ValueError, match="own.csv, line 2: a field"):
        list(csv_rows(["a,b\n", '1,"' + "x" * 200_000 + '"\n'], "own.csv"))


def test_all_kinds_of_files_of_captions_are_covered():
    assert set(READERS) == {".json", ".jsonl", ".csv", ".tsv", ".parquet"}
