"""Reads captions from a separate file, such as new captions for WebDataset shards, and joins them by key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features, IterableDataset, Value

from hfcomp.data.columns import CONCEPT_FEATURES, LEFT_OUT, RowsLeftOut
from hfcomp.reading import parse_json, short_repr
from hfcomp.text_tables import open_table


class Entry(NamedTuple):
    """An entry as written in the file.

    Attributes:
        place: Position such as `line 3`; lines are counted from 1 as in editors, rows and entries from 0.
        key: Key of any type.
        caption: Caption of any type.
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
    # Keys stay strings, because 000012 is not a number.
    table = open_table(path)
    rows = table.rows()  # this also detects how the names are written
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
                    f"{path.name}, line {number}: {short_repr(line)} is not JSON ({error.msg}, column {error.colno}). "
                    "Correct or remove the line."
                ) from error
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}. Correct or remove the line.") from error
            yield _object_entry(row, key, caption, path, f"line {number}")


class _Object(list[tuple[str, Any]]):
    """A JSON object as a list of pairs, because a `dict` would silently keep only the last of duplicate keys."""

    def __repr__(self) -> str:
        return repr(dict(self))


def _json_entries(path: Path, key: str, caption: str) -> Iterator[Entry]:
    text = "".join(_lines(path))
    try:
        content = parse_json(text, object_pairs_hook=_Object)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path.name}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}). Correct it or, if "
            "the file has one object per line, rename it to .jsonl."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}. Correct the file.") from error
    if isinstance(content, _Object):
        yield from (Entry(f"entry {number}", *pair) for number, pair in enumerate(content))
        return
    if not isinstance(content, list):
        raise ValueError(
            f"{path.name}: found {short_repr(content)}, expected an object of captions by key, or a list."
        )
    for number, row in enumerate(content):
        row = dict(row) if isinstance(row, _Object) else row
        yield _object_entry(row, key, caption, path, f"entry {number}")


READERS: dict[str, Callable[[Path, str, str], Iterator[Entry]]] = {
    ".json": _json_entries,
    ".jsonl": _json_lines_entries,
    ".csv": _csv_entries,
    ".tsv": _csv_entries,
    ".parquet": _parquet_entries,
}
"""Readers by file extension: functions of the path and the names of key and caption. They raise ValueError."""


def _object_entry(row: Any, key: str, caption: str, path: Path, place: str) -> Entry:
    if not isinstance(row, dict):
        raise ValueError(
            f"{path.name}, {place}: found {short_repr(row)}; expected an object with {key!r} and {caption!r}."
        )
    _check_names(row, (key, caption), path, place)
    return Entry(place, row[key], row[caption])


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                # A file may start with a byte order mark.
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path.name}, line {number}: {short_repr(line)} is not UTF-8 ({error.reason}). Save it as UTF-8."
                ) from error


def _check_names(names: Iterable[str], required: Iterable[str], path: Path, place: str = "") -> None:
    missing = [name for name in required if name not in names]
    if missing:
        where = f"{path.name}, {place}:" if place else f"{path.name} has"
        raise ValueError(
            f"{where} no column {missing[0]!r}; it has: {', '.join(names) or 'none'}. Set captions_columns to the "
            "key and caption columns, such as 'url,caption'."
        )


KEY_COLUMN = "__key__"
"""Column in which `datasets` stores the sample name of a WebDataset."""
FILE_COLUMNS = ("key", "caption")
# Number of streamed rows joined at a time, and number of rows without any match after which an error is raised.
ROWS_AT_A_TIME = 64
TRIED_ROWS = 1000


@dataclass
class FileCaptions:
    """Content of a caption file.

    Attributes:
        captions: Captions by key; if a key occurs several times, the first caption.
        repeated: Number of entries with a duplicate key.
        first_repeated: Place and key of the first of these; empty if there are none.
        blank: Number of entries without a key or without a caption.
    """

    captions: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    first_repeated: str = ""
    blank: int = 0


def with_captions_of(
    dataset: Dataset | IterableDataset,
    path: str | Path,
    *,
    key_column: str | None,
    file_columns: str | None,
    column_names: Mapping[str, str] | None = None,
    log: Callable[[str], None],
) -> Dataset | IterableDataset:
    """Replaces the column `caption` with captions from a file, or None for rows that the file lacks.

    The dataset's previous captions and concepts are removed. A stream is joined while it is read: rows without a
    caption are dropped and counted in the column `left_out_rows`.

    Args:
        dataset: Dataset with its own column names.
        path: A `.json` file with one object of captions by key or a list of objects, or a `.jsonl`, `.csv`, `.tsv` or
            `.parquet` file.
        key_column: Key column of the dataset; `json.url` is the entry `url` of a column of objects. Defaults to
            `__key__`.
        file_columns: Names of key and caption in the file, separated by a comma. Defaults to `key,caption`.
        column_names: Column mapping that is applied later; it must not contain the caption.
        log: Receives a line about the joined captions, and one for each kind of entry or row that does not match.

    Raises:
        ValueError: If the file cannot be read, a column is missing, or no row has a caption. For a stream, this is
            raised after its first rows have been read.
    """
    if "caption" in (column_names or {}):
        raise ValueError("column_names maps 'caption', but captions_file provides captions. Remove one of the two.")
    join = _Join(KEY_COLUMN if key_column is None else key_column, Path(path).name)
    read = read_captions(path, file_columns)
    place = join.place(dataset.column_names)
    old = [column for column in ("caption", *CONCEPT_FEATURES) if column in dataset.column_names]
    if isinstance(dataset, IterableDataset):
        log(f"{len(read.captions):,} captions from {join.file}, joined while rows are read")
        dataset = dataset.remove_columns(old) if old else dataset
        features = Features({**dataset.features, "caption": Value("string"), LEFT_OUT: Value("int64")})
        columns = _StreamedCaptions(join, place, read.captions)
        return dataset.map(columns, batched=True, batch_size=ROWS_AT_A_TIME, features=features)
    keys = _keys(dataset, place)
    captions = [None if key is None else read.captions.get(key) for key in keys]
    if not any(caption is not None for caption in captions):
        raise join.nothing_in_common(f"the {len(keys):,} rows", keys, read.captions)
    for line in join.lines(read, keys, captions):
        log(line)
    if old:
        log(f"they replace the dataset's own {', '.join(old)}")
    return dataset.remove_columns(old).add_column("caption", captions, feature=Value("string"))


@dataclass(frozen=True)
class _Join:
    """Key column and file of a join, with its messages."""

    key_column: str
    file: str

    def place(self, columns: Sequence[str]) -> tuple[str, str]:
        """Returns the key column and the entry in its objects; the entry is empty if the column contains the keys."""
        name = self.key_column
        parents = (column for column in columns if name.startswith(f"{column}."))
        column = name if name in columns else next(parents, None)
        if column is None:
            raise ValueError(
                f"key_column={name!r}: the dataset has no column {name.partition('.')[0]!r}; it has: "
                f"{', '.join(columns)}."
            )
        return column, name.removeprefix(column).removeprefix(".")

    def nothing_in_common(self, rows: str, keys: Iterable[Any], captions: Iterable[str]) -> ValueError:
        key, other = next((key for key in keys if key is not None), None), next(iter(captions), None)
        return ValueError(
            f"no {self.key_column!r} of {rows} occurs in {self.file}: keys look like {key!r} in the dataset and like "
            f"{other!r} in the file. Set key_column (dataset) and captions_columns (file) to matching keys."
        )

    def lines(self, read: FileCaptions, keys: list[str | None], captions: list[str | None]) -> Iterator[str]:
        name, key, matched = self.file, self.key_column, len(captions) - captions.count(None)
        yield (
            f"captions from {name}, joined by {key}: {matched:,} rows have one; {len(keys) - matched:,} have "
            "none and are left out"
        )
        joined = {row_key for row_key, caption in zip(keys, captions, strict=True) if caption is not None}
        if matched > len(joined):
            yield f"{matched - len(joined):,} of these rows repeat the {key} of an earlier row and share its caption"
        if len(read.captions) > len(joined):
            yield f"captions from {name} without a row: {len(read.captions) - len(joined):,}"
        if read.repeated:
            yield (
                f"{read.repeated:,} entries of {name} have the same key as an earlier entry, whose caption is used; "
                f"the first: {read.first_repeated}"
            )
        if read.blank:
            yield f"{read.blank:,} entries of {name} have no key or no caption"


class _StreamedCaptions(RowsLeftOut):
    """Adds captions to a batch of rows and drops rows without a caption."""

    def __init__(self, join: _Join, place: tuple[str, str], captions: dict[str, str]) -> None:
        self.join, self.place, self.captions = join, place, captions
        self.tried = self.joined = 0

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        column, entry = self.place
        keys = [cell.get(entry) if entry and cell is not None else cell for cell in batch[column]]
        captions = [None if key is None else self.captions.get(str(key)) for key in keys]
        self.tried += len(captions)
        self.joined += len(captions) - captions.count(None)
        # Keys of different kinds (URL and file name) never match. Without this check, a stream would be read to its
        # end, for hours, in search of the first row with a caption.
        if not self.joined and self.tried >= TRIED_ROWS:
            raise self.join.nothing_in_common(f"the first {self.tried:,} rows", keys, self.captions)
        return self.select(batch | {"caption": captions}, [caption is not None for caption in captions])


def read_captions(path: str | Path, columns: str | None = None) -> FileCaptions:
    """Reads captions by key; blank ones are skipped, and the first of several is used."""
    names = tuple(name.strip() for name in columns.split(",")) if columns else FILE_COLUMNS
    if len(names) != 2 or not all(names):
        raise ValueError(
            f"captions_columns: found {columns!r}, expected the names of key and caption, such as 'url,caption'."
        )
    path = Path(path)
    if path.suffix not in READERS:
        raise ValueError(
            f"captions_file: found {path.name}, expected a file with one of the extensions {', '.join(READERS)}."
        )
    read = FileCaptions()
    for place, key, caption in READERS[path.suffix](path, *names):
        if not (caption is None or isinstance(caption, str)):
            raise ValueError(f"{path.name}, {place}: the caption is {short_repr(caption)}; expected one string.")
        if isinstance(key, bool) or not (key is None or isinstance(key, str | int)):
            raise ValueError(
                f"{path.name}, {place}: the key is {short_repr(key)}; expected a string or a whole number."
            )
        if key is None or key == "" or not caption or not caption.strip():
            read.blank += 1
        elif (key := str(key)) not in read.captions:
            read.captions[key] = caption
        else:
            read.first_repeated = read.first_repeated or f"{place}, {key!r}"
            read.repeated += 1
    return read


def _keys(dataset: Dataset, place: tuple[str, str]) -> list[str | None]:
    column, entry = place
    # Flatten objects to columns: as Python objects, the entries of millions of rows would take gigabytes.
    columns = dataset.select_columns([column])
    name = f"{column}.{entry}" if entry else column
    if entry and name not in (columns := columns.flatten()).column_names:
        known = ", ".join(child.removeprefix(f"{column}.") for child in columns.column_names if child != column)
        raise ValueError(f"key_column={name!r}: column {column!r} has no entry {entry!r}; it has: {known or 'none'}.")
    cells = columns.select_columns([name])[name][:]
    return [None if cell is None else str(cell) for cell in cells]
