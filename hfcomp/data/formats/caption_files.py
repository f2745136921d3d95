"""Captions from a separate file, such as new ones for the images of WebDataset shards: read, and joined by key."""

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
    # Keys stay strings: 000012 is not a number.
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
                    f"{path.name}, line {number}: {short_repr(line)} is not JSON ({error.msg}, column {error.colno}). "
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
        raise ValueError(f"{path.name} holds {short_repr(content)}; expected an object of captions by key or a list.")
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
            f"{path.name}, {place}: found {short_repr(row)}; expected an object with {key!r} and {caption!r}."
        )
    _check_names(row, (key, caption), path, place)
    return Entry(place, row[key], row[caption])


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                # A file may begin with a byte order mark.
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path.name}, line {number}: {short_repr(line)} is not UTF-8 ({error.reason}). Save it as UTF-8."
                ) from error


def _check_names(there: Iterable[str], wanted: Iterable[str], path: Path, place: str = "") -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        where = f"{path.name}, {place}:" if place else f"{path.name} has"
        raise ValueError(
            f"{where} no column {missing[0]!r}; it has: {', '.join(there) or 'none'}. Set captions_columns to the "
            "key and caption columns, such as 'url,caption'."
        )


KEY_COLUMN = "__key__"
"""What `datasets` calls the name of a WebDataset's sample."""
FILE_COLUMNS = ("key", "caption")
# Number of streamed rows that are joined at a time, and number of rows after which a key that no row has is reported.
ROWS_AT_A_TIME = 64
TRIED_ROWS = 1000


@dataclass
class FileCaptions:
    """What a file of captions holds.

    Attributes:
        captions: By key; the first of several.
        repeated: Entries with a duplicate key.
        first_repeated: The first of these: its place and key. Empty if none.
        blank: Entries without a key or without a caption.
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
    """The rows with the captions of a file as their column `caption`; None where the file has none for a row.

    Captions and concepts that the dataset had are taken out. A stream is joined as it is read: rows without a caption
    are left out of it and counted in the column `left_out_rows`.

    Args:
        dataset: under its own column names.
        path: a `.json` file with one object of captions by key or a list of objects, or a `.jsonl`, `.csv`,
            `.tsv` or `.parquet` file.
        key_column: of the dataset; `json.url` is the entry `url` of a column of objects. By default `__key__`.
        file_columns: names of key and caption in the file, apart by a comma. By default `key,caption`.
        column_names: how columns are renamed later; the caption has to be left out.
        log: receives a line about what was joined, and one for each kind of entry or row that does not fit.

    Raises:
        ValueError: for a file that cannot be read, a column that is not there, or if no row has a caption; of a
            stream when its first rows have been read.
    """
    if "caption" in (column_names or {}):
        raise ValueError("column_names maps 'caption', but captions_file provides captions. Remove one of the two.")
    join = _Join(KEY_COLUMN if key_column is None else key_column, Path(path).name)
    read = read_captions(path, file_columns)
    place = join.place(dataset.column_names)
    old = [column for column in ("caption", *CONCEPT_FEATURES) if column in dataset.column_names]
    if isinstance(dataset, IterableDataset):
        log(f"{len(read.captions):,} captions of {join.file}, joined as rows are read")
        dataset = dataset.remove_columns(old) if old else dataset
        features = Features({**dataset.features, "caption": Value("string"), LEFT_OUT: Value("int64")})
        columns = _StreamedCaptions(join, place, read.captions)
        return dataset.map(columns, batched=True, batch_size=ROWS_AT_A_TIME, features=features)
    keys = _keys(dataset, place)
    found = [None if key is None else read.captions.get(key) for key in keys]
    if not any(caption is not None for caption in found):
        raise join.nothing_in_common(f"the {len(keys):,} rows", keys, read.captions)
    for line in join.lines(read, keys, found):
        log(line)
    if old:
        log(f"they replace the dataset's own {', '.join(old)}")
    return dataset.remove_columns(old).add_column("caption", found, feature=Value("string"))


@dataclass(frozen=True)
class _Join:
    """What captions are joined by, for messages."""

    key_column: str
    file: str

    def place(self, columns: Sequence[str]) -> tuple[str, str]:
        """The column of keys, and the entry of its objects; an empty one where the column holds the keys."""
        name = self.key_column
        column = name if name in columns else next((one for one in columns if name.startswith(f"{one}.")), None)
        if column is None:
            raise ValueError(
                f"key_column={name!r}: the dataset has no column {name.partition('.')[0]!r}; it has: "
                f"{', '.join(columns)}."
            )
        return column, name.removeprefix(column).removeprefix(".")

    def nothing_in_common(self, rows: str, keys: Iterable[Any], captions: Iterable[str]) -> ValueError:
        key, other = next((key for key in keys if key is not None), None), next(iter(captions), None)
        return ValueError(
            f"none of {rows} has its {self.key_column!r} in {self.file}: keys look like {key!r} in the dataset and "
            f"like {other!r} in the file. Set key_column (dataset) and captions_columns (file) to matching keys."
        )

    def lines(self, read: FileCaptions, keys: list[str | None], found: list[str | None]) -> Iterator[str]:
        name, key, there = self.file, self.key_column, len(found) - found.count(None)
        yield (
            f"captions of {name}, joined by {key}: {there:,} rows have one; {len(keys) - there:,} have "
            "none and are left out"
        )
        joined = {one for one, caption in zip(keys, found, strict=True) if caption is not None}
        if there > len(joined):
            yield f"{there - len(joined):,} of these rows have the {key} of an earlier one, and so its caption"
        if len(read.captions) > len(joined):
            yield f"{len(read.captions) - len(joined):,} captions of {name} match no row"
        if read.repeated:
            yield (
                f"{read.repeated:,} entries of {name} have the key of an earlier one, which is used; the first: "
                f"{read.first_repeated}"
            )
        if read.blank:
            yield f"{read.blank:,} entries of {name} have no key or no caption"


class _StreamedCaptions(RowsLeftOut):
    """Gives captions to a batch of rows and leaves out those without."""

    def __init__(self, join: _Join, place: tuple[str, str], captions: dict[str, str]) -> None:
        self.join, self.place, self.captions = join, place, captions
        self.tried = self.joined = 0

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        column, entry = self.place
        keys = [cell.get(entry) if entry and cell is not None else cell for cell in batch[column]]
        found = [None if key is None else self.captions.get(str(key)) for key in keys]
        self.tried += len(found)
        self.joined += len(found) - found.count(None)
        # Keys of different kinds (URL and file name) match nowhere. Without this check a stream would be read to its
        # end, for hours, in search of the first row with a caption.
        if not self.joined and self.tried >= TRIED_ROWS:
            raise self.join.nothing_in_common(f"the first {self.tried:,} rows", keys, self.captions)
        return self.select(batch | {"caption": found}, [caption is not None for caption in found])


def read_captions(path: str | Path, columns: str | None = None) -> FileCaptions:
    """Captions by key; blank ones are skipped, and the first of several is used."""
    names = tuple(name.strip() for name in columns.split(",")) if columns else FILE_COLUMNS
    if len(names) != 2 or not all(names):
        raise ValueError(
            f"captions_columns={columns!r}: expected two names, of key and caption, such as 'url,caption'."
        )
    path = Path(path)
    if path.suffix not in READERS:
        raise ValueError(f"captions_file={path.name}: expected a {', '.join(READERS)} file.")
    read = FileCaptions()
    for place, key, caption in READERS[path.suffix](path, *names):
        if not (caption is None or isinstance(caption, str)):
            raise ValueError(f"{path.name}, {place}: the caption is {short_repr(caption)}; expected one text.")
        if isinstance(key, bool) or not (key is None or isinstance(key, str | int)):
            raise ValueError(f"{path.name}, {place}: the key is {short_repr(key)}; expected a text or a whole number.")
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
    # Columns of entries: as Python objects, the entries of millions of rows would take gigabytes.
    columns = dataset.select_columns([column])
    name = f"{column}.{entry}" if entry else column
    if entry and name not in (columns := columns.flatten()).column_names:
        known = ", ".join(one.removeprefix(f"{column}.") for one in columns.column_names if one != column)
        raise ValueError(f"key_column={name!r}: column {column!r} has no entry {entry!r}; it has: {known or 'none'}.")
    cells = columns.select_columns([name])[name][:]
    return [None if cell is None else str(cell) for cell in cells]
