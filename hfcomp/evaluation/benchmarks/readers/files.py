"""Readers for a benchmark's JSON, CSV and zip files, with errors that name the place."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.cells import LazyCells
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin
from hfcomp.reading import parse_json
from hfcomp.text_tables import open_table

Named = list[tuple[str, dict[str, Any]]]


def entries(file: Path | zipfile.Path, keys: Sequence[str], inside: str | None = None) -> Named:
    """Reads the objects of a JSON list or dictionary, each with its name, or its position in a list.

    Args:
        file: JSON file.
        keys: Keys that every object must have.
        inside: Key of the list or dictionary, if it is inside an object.
    """
    content = _parse(file.read_bytes(), str(file))
    if inside is not None:
        content = _validate(content, (inside,), str(file))[inside]
    if not isinstance(content, list | dict):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected a list or dictionary of objects.")
    entries = content if isinstance(content, dict) else {str(place): entry for place, entry in enumerate(content)}
    return [(name, _validate(entry, keys, f"{file}, entry {name!r}")) for name, entry in entries.items()]


def listed_entries(file: Path, keys: Sequence[str]) -> Named:
    """Like `entries`, for a JSON list of lists, whose values get these keys in order."""
    content = _parse(file.read_bytes(), str(file))
    if not isinstance(content, list):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected a list of lists.")
    named = []
    for place, values in enumerate(content):
        if not isinstance(values, list) or len(values) != len(keys):
            raise ValueError(f"{file}, entry {place}: expected a list of {', '.join(keys)}, found {str(values)[:80]}.")
        named.append((str(place), dict(zip(keys, values, strict=True))))
    return named


def object_in(file: Path, keys: Sequence[str]) -> dict[str, Any]:
    return _validate(_parse(file.read_bytes(), str(file)), keys, str(file))


def line_entries(file: Path, keys: Sequence[str]) -> Named:
    """Like `entries`, for a file with one object per line, named by its line number."""
    lines = enumerate(file.read_bytes().splitlines(), start=1)
    parsed = ((number, _parse(line, f"{file}, line {number}")) for number, line in lines if line.strip())
    return [(str(number), _validate(entry, keys, f"{file}, line {number}")) for number, entry in parsed]


def csv_entries(file: Path, keys: Sequence[str]) -> Named:
    """Like `entries`, for a CSV file with a header; each row is named by the number of its last line."""
    table = open_table(file)
    rows = ((line, dict(zip(table.columns, cells, strict=True))) for line, cells in table.rows())
    return [(str(line), _validate(row, keys, f"{file}, line {line}")) for line, row in rows]


def _parse(content: bytes, where: str) -> Any:
    try:
        return parse_json(content, object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"{where}: {error}. Download the file again.") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    # Python's parser would silently keep the last of two equal keys.
    if len(entry) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in entry if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate!r}")
    return entry


def _validate(entry: Any, keys: Sequence[str], where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: found a {type(entry).__name__}, expected an object with {', '.join(keys)}.")
    absent = [key for key in keys if key not in entry]
    if absent:
        raise ValueError(f"{where}: has no {', '.join(map(repr, absent))}; it has {', '.join(map(repr, entry))}.")
    return entry


def open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not a complete zip archive ({error}). Download it again.") from error


def member(path: Path, file: str) -> zipfile.Path:
    """Finds a file in a zip archive, in any folder."""
    archive = open_archive(path)
    # Archives made on a Mac contain a second, hidden copy of every name.
    names = [name for name in archive.namelist() if f"/{name}".endswith(f"/{file}") and "__MACOSX" not in name]
    if not names:
        raise ValueError(f"{path}: has no {file}. Download it again.")
    return zipfile.Path(archive, min(names, key=len))


def zipped_images(path: Path, names: Sequence[str | None]) -> LazyCells:
    """Returns images of an archive by member name; `None` for a missing one."""
    # The archive stays open, so its directory of tens of thousands of names is read once instead of per image.
    archive = open_archive(path)
    members = set(archive.namelist())

    def read(row: int) -> Any:
        name = names[row]
        return {"bytes": archive.read(name), "path": name} if name in members else None

    return LazyCells(len(names), read)


@dataclass(frozen=True)
class ZippedFiles(RawFiles):
    """A benchmark's original files, with its images in an archive whose members the rows name.

    Attributes:
        archive: Name of the archive, one of `required_files`.
        images: Image columns.
    """

    archive: str = "images.zip"
    images: tuple[str, ...] = ("image",)

    def _items(self, folder: Path, origin: Origin, folders: Folders) -> BenchmarkData:
        items = super()._items(folder, origin, folders)
        cells = {column: zipped_images(folder / self.archive, items.rows[column][:]) for column in self.images}
        return replace(items, rows=items.rows.remove_columns(list(cells)), images=cells)
