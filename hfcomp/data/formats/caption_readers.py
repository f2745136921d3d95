"""Entries of a file of captions, one by one; what cannot be read is named by file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from hfcomp.reading import parse_json
from hfcomp.text_tables import open_table


class Entry(NamedTuple):
    """One entry as it stands in the file.

    Attributes:
        place: such as `line 3`; lines are counted from 1 as editors do, rows and entries from 0.
        key: of any type.
        caption: of any type.
    """

    place: str
    key: Any
    caption: Any


def _parquet_entries(path: Path, key: str, caption: str) -> Iterator[Entry]:
    try:
        with pq.ParquetFile(path) as file:
            _check_names(file.schema_arrow.names, (key, caption), path)
            row = 0
            for batch in file.iter_batches(columns=[key, caption]):
                for entry in zip(batch.column(key).to_pylist(), batch.column(caption).to_pylist(), strict=True):
                    yield Entry(f"row {row}", *entry)
                    row += 1
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read as Parquet: {' '.join(str(error).split())}") from error


def _csv_entries(path: Path, key: str, caption: str) -> Iterator[Entry]:
    """Keys stay strings: 000012 is not a number."""
    table = open_table(path)
    rows = table.rows()  # which finds out how the names are written
    _check_names(table.columns, (key, caption), path)
    key_place, caption_place = table.columns.index(key), table.columns.index(caption)
    for line, row in rows:
        yield Entry(f"line {line}", row[key_place], row[caption_place])


def _json_lines_entries(path: Path, key: str, caption: str) -> Iterator[Entry]:
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            try:
                row = parse_json(line)
            except json.JSONDecodeError as error:
                raise ValueError(
                    f"{path.name}, line {number}: {shortened(line)} is not JSON ({error.msg}, column {error.colno}). "
                    "Fix or remove the line."
                ) from error
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}. Correct or remove the line.") from error
            yield _of_object(row, key, caption, path, f"line {number}")


class _Object(list[tuple[str, Any]]):
    """A JSON object as its pairs: a `dict` would silently keep the last of several entries of one key."""

    def __repr__(self) -> str:
        return repr(dict(self))


def _json_entries(path: Path, key: str, caption: str) -> Iterator[Entry]:
    text = "".join(_lines(path))
    try:
        content = parse_json(text, object_pairs_hook=_Object)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path.name}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}). Fix it, or rename a "
            "file with one object per line to .jsonl."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}. Correct the file.") from error
    if isinstance(content, _Object):
        yield from (Entry(f"entry {number}", *pair) for number, pair in enumerate(content))
        return
    if not isinstance(content, list):
        raise ValueError(f"{path.name} holds {shortened(content)}; expected an object of captions by key or a list.")
    for number, row in enumerate(content):
        row = dict(row) if isinstance(row, _Object) else row
        yield _of_object(row, key, caption, path, f"entry {number}")


READERS: dict[str, Callable[[Path, str, str], Iterator[Entry]]] = {
    ".json": _json_entries,
    ".jsonl": _json_lines_entries,
    ".csv": _csv_entries,
    ".tsv": _csv_entries,
    ".parquet": _parquet_entries,
}
"""By the end of a file's name: functions of its path and the names of key and caption. They raise ValueError."""


def _of_object(row: Any, key: str, caption: str, path: Path, place: str) -> Entry:
    if not isinstance(row, dict):
        raise ValueError(
            f"{path.name}, {place}: found {shortened(row)}; expected an object with {key!r} and {caption!r}."
        )
    _check_names(row, (key, caption), path, place)
    return Entry(place, row[key], row[caption])


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                # a file may begin with a byte order mark
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path.name}, line {number}: {shortened(line)} is not UTF-8 ({error.reason}). Save it as UTF-8."
                ) from error


def shortened(value: Any) -> str:
    """A value as an error shows it."""
    try:
        text = repr(value)
    except RecursionError:
        return "lists or objects that are nested too deeply to be shown"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_names(there: Iterable[str], wanted: Iterable[str], path: Path, place: str = "") -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        where = f"{path.name}, {place}:" if place else f"{path.name} has"
        raise ValueError(
            f"{where} no column {missing[0]!r}; it has: {', '.join(there) or 'none'}. Set captions_columns to the "
            "key and caption columns, such as 'url,caption'."
        )
