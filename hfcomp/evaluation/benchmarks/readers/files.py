"""A benchmark's JSON, CSV and zip files, read with errors that name the place."""

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
    """The objects of a JSON list or dictionary, each with its name; in a list, its place.

    Args:
        keys: what every object has to have.
        inside: the key of the file's own object under which the list or dictionary stands, if it does.
    """
    content = _parse(file.read_bytes(), str(file))
    if inside is not None:
        content = _validate(content, (inside,), str(file))[inside]
    if not isinstance(content, list | dict):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected a list or dictionary of objects.")
    named = content.items() if isinstance(content, dict) else ((str(place), one) for place, one in enumerate(content))
    return [(name, _validate(one, keys, f"{file}, entry {name!r}")) for name, one in named]


def listed_entries(file: Path, keys: Sequence[str]) -> Named:
    """As `entries`, of a JSON list of lists, whose values get these keys in their order."""
    content = _parse(file.read_bytes(), str(file))
    if not isinstance(content, list):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected a list of lists.")
    found = []
    for place, values in enumerate(content):
        if not isinstance(values, list) or len(values) != len(keys):
            raise ValueError(f"{file}, entry {place}: expected a list of {', '.join(keys)}, found {str(values)[:80]}.")
        found.append((str(place), dict(zip(keys, values, strict=True))))
    return found


def object_in(file: Path, keys: Sequence[str]) -> dict[str, Any]:
    return _validate(_parse(file.read_bytes(), str(file)), keys, str(file))


def line_entries(file: Path, keys: Sequence[str]) -> Named:
    """As `entries`, of a file with an object in every line, named by the line's number."""
    lines = enumerate(file.read_bytes().splitlines(), start=1)
    parsed = ((number, _parse(line, f"{file}, line {number}")) for number, line in lines if line.strip())
    return [(str(number), _validate(one, keys, f"{file}, line {number}")) for number, one in parsed]


def csv_entries(file: Path, keys: Sequence[str]) -> Named:
    """As `entries`, of a CSV file with a header, each row named by its last line's number."""
    table = open_table(file)
    rows = ((line, dict(zip(table.columns, cells, strict=True))) for line, cells in table.rows())
    return [(str(line), _validate(row, keys, f"{file}, line {line}")) for line, row in rows]


def _parse(content: bytes, where: str) -> Any:
    try:
        return parse_json(content, object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"{where}: {error}. Download the file again.") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Python's parser would silently keep the last of two equal keys.
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"duplicate key {twice!r}")
    return found


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
        raise ValueError(f"{path} is not a whole zip archive ({error}). Download it again.") from error


def member(path: Path, file: str) -> zipfile.Path:
    """A file of a zip archive, in whatever folder it is there."""
    archive = open_archive(path)
    # Archives made on a Mac hold a second, hidden copy of every name.
    found = [name for name in archive.namelist() if f"/{name}".endswith(f"/{file}") and "__MACOSX" not in name]
    if not found:
        raise ValueError(f"{path}: has no {file}. Download it again.")
    return zipfile.Path(archive, min(found, key=len))


def zipped_images(path: Path, names: Sequence[str | None]) -> LazyCells:
    """Images of an archive by the names of its members; `None` for one that is not there."""
    # The archive stays open, so its directory of tens of thousands of names is read once and not for every image.
    archive = open_archive(path)
    there = set(archive.namelist())

    def read(row: int) -> Any:
        name = names[row]
        return {"bytes": archive.read(name), "path": name} if name in there else None

    return LazyCells(len(names), read)


@dataclass(frozen=True)
class ZippedFiles(RawFiles):
    """A benchmark's own files, with its images in an archive: the rows name its members.

    Attributes:
        archive: its name, one of `required_files`.
    """

    archive: str = "images.zip"
    images: tuple[str, ...] = ("image",)

    def _items(self, folder: Path, origin: Origin, folders: Folders) -> BenchmarkData:
        items = super()._items(folder, origin, folders)
        cells = {column: zipped_images(folder / self.archive, items.rows[column][:]) for column in self.images}
        return replace(items, rows=items.rows.remove_columns(list(cells)), images=cells)
