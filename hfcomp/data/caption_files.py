"""Captions from a file beside a data set, such as new ones for the images of WebDataset shards, joined by key."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import Dataset, Value

from hfcomp.data.features import CONCEPT_FEATURES

KEY_COLUMN = "__key__"
"""What `datasets` calls the name of a WebDataset's sample."""
FILE_COLUMNS = ("key", "caption")


def with_captions_of(
    dataset: Dataset,
    path: str | Path,
    *,
    key_column: str | None,
    file_columns: str | None,
    column_names: Mapping[str, str] | None = None,
    tell: Callable[[str], None],
) -> Dataset:
    """The rows with the captions of a file as their column `caption`; None where the file has none for a row.

    Captions and concepts that the data set had are taken out.

    Args:
        dataset: under its own column names.
        path: a `.json` file with one object of captions by key or a list of objects, or a `.jsonl`, `.csv` or
            `.parquet` file.
        key_column: of the data set; `json.url` is the entry `url` of a column of objects. By default `__key__`.
        file_columns: names of key and caption in the file, apart by a comma. By default `key,caption`.
        column_names: how columns are renamed later; the caption has to be left out.
        tell: receives a line about what was joined.

    Raises:
        ValueError: for a column that is not there, or if no row has a caption.
    """
    if "caption" in (column_names or {}):
        raise ValueError("column_names names a caption, and captions_file gives other ones. Leave one of the two out.")
    key_column = KEY_COLUMN if key_column is None else key_column
    captions, repeated = read_captions(path, file_columns)
    keys = _keys(dataset, key_column)
    found = [captions.get(key) if key is not None else None for key in keys]
    there = sum(caption is not None for caption in found)
    name = Path(path).name
    if not there:
        raise ValueError(
            f"none of the {len(keys):,} rows has its {key_column!r} in {name}: they are as "
            f"{next((key for key in keys if key is not None), None)!r} there, and as {next(iter(captions), None)!r} "
            "in the file. Name what both have: key_column for the data set, captions_columns for the file."
        )
    tell(
        f"captions of {name}, joined by {key_column}: {there:,} rows have one; {len(keys) - there:,} have none and "
        "are left out"
    )
    if repeated:
        tell(f"{repeated:,} entries of {name} have the key of an earlier one, which is used")
    old = [column for column in ("caption", *CONCEPT_FEATURES) if column in dataset.column_names]
    if old:
        tell(f"they take the place of the data set's own {', '.join(old)}")
    return dataset.remove_columns(old).add_column("caption", found, feature=Value("string"))


def read_captions(path: str | Path, columns: str | None = None) -> tuple[dict[str, str], int]:
    """Captions by key; blank ones are left out, and of several under one key the first is taken.

    Args:
        path: see `with_captions_of`.
        columns: names of key and caption, apart by a comma.

    Returns:
        The captions, and how many entries had a key that was there already.

    Raises:
        ValueError: for a file of another kind, or without these columns.
    """
    names = tuple(name.strip() for name in columns.split(",")) if columns else FILE_COLUMNS
    if len(names) != 2 or not all(names):
        raise ValueError(f"captions_columns={columns!r}: expected two names, of key and caption, as 'url,caption'.")
    captions: dict[str, str] = {}
    repeated = 0
    for key, caption in _entries(Path(path), *names):
        if key is None or not caption or not caption.strip():
            continue
        repeated += str(key) in captions
        captions.setdefault(str(key), caption)
    return captions, repeated


def _entries(path: Path, key: str, caption: str) -> Iterator[tuple[Any, Any]]:
    if path.suffix == ".parquet":
        _check_names(pq.read_schema(path).names, (key, caption), path)
        table = pq.read_table(path, columns=[key, caption])
        yield from zip(table.column(key).to_pylist(), table.column(caption).to_pylist(), strict=True)
        return
    if path.suffix not in (".json", ".jsonl", ".csv"):
        raise ValueError(f"captions_file={path.name}: expected a .json, .jsonl, .csv or .parquet file.")
    with path.open(encoding="utf-8", newline="") as file:
        rows: Iterable[Mapping[str, Any]]
        if path.suffix == ".csv":
            rows = csv.DictReader(file)  # keys stay texts: 000012 is no number
        elif path.suffix == ".jsonl":
            rows = (json.loads(line) for line in file if line.strip())
        elif isinstance(content := json.load(file), dict):
            yield from content.items()
            return
        else:
            rows = content
        for row in rows:
            _check_names(row, (key, caption), path)
            yield row[key], row[caption]


def _check_names(there: Iterable[str], wanted: Iterable[str], path: Path) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"{path.name} has no column {missing[0]!r}; it has: {', '.join(there)}. Name those of key and caption: "
            "captions_columns, as 'url,caption'."
        )


def _keys(dataset: Dataset, name: str) -> list[str | None]:
    outer, _, inner = (name, "", "") if name in dataset.column_names else name.partition(".")
    if outer not in dataset.column_names:
        raise ValueError(
            f"key_column={name!r}: the data set has no column {outer!r}; it has: {', '.join(dataset.column_names)}."
        )
    cells = dataset.select_columns([outer])[outer][:]
    if inner:
        entries = next((list(cell) for cell in cells if isinstance(cell, dict)), [])
        if inner not in entries:
            known = ", ".join(entries) or "none"
            raise ValueError(f"key_column={name!r}: column {outer!r} has no entry {inner!r}; it has: {known}.")
        cells = [cell and cell[inner] for cell in cells]
    return [None if cell is None else str(cell) for cell in cells]
