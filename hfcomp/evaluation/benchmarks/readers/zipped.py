"""Images in a zip archive, which is not unpacked."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin


def open_archive(path: Path) -> zipfile.ZipFile:
    """A zip archive.

    Raises:
        ValueError: for a file that is none, or not all of one.
    """
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is not a whole zip archive ({error}). Download it again.") from error


def member(path: Path, file: str) -> zipfile.Path:
    """A file of a zip archive, in whatever folder it is there.

    Raises:
        ValueError: for an archive without it.
    """
    archive = open_archive(path)
    found = [name for name in archive.namelist() if f"/{name}".endswith(f"/{file}") and "__MACOSX" not in name]
    if not found:
        raise ValueError(f"{path}: has no {file}. Download it again.")
    return zipfile.Path(archive, min(found, key=len))


class ZippedImages(Sequence[Any]):
    """Images of an archive, read when they are asked for; `None` for one that is not there.

    The archive stays open: its directory, of tens of thousands of names, is read once and not with every image.

    Args:
        archive: its path.
        names: of members, or `None`.
    """

    def __init__(self, archive: Path, names: Sequence[str | None]) -> None:
        self._archive = open_archive(archive)
        there = set(self._archive.namelist())
        self._names = [name if name in there else None for name in names]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        name = self._names[index]
        return None if name is None else {"bytes": self._archive.read(name), "path": name}


@dataclass(frozen=True)
class ZippedFiles(RawFiles):
    """A benchmark's own files, with its images in an archive: the rows name its members.

    Attributes:
        archive: its name, one of `required_files`.
        images: the columns of images.
    """

    archive: str = "images.zip"
    images: tuple[str, ...] = ("image",)

    def _items(self, folder: Path, origin: Origin, folders: Folders) -> BenchmarkData:
        items = super()._items(folder, origin, folders)
        cells = {column: ZippedImages(folder / self.archive, items.rows[column][:]) for column in self.images}
        return replace(items, rows=items.rows.remove_columns(list(cells)), images=cells)
