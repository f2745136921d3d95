"""Columns of images that are read when they are asked for: by file name, by row of another set, or cut out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Crop:
    """A part of an image."""

    cell: Any  # the whole image, as `decode_image` takes it
    box: Box  # left, upper, right and lower edge, in pixels; right and lower are outside


@dataclass(frozen=True)
class Fitted:
    """A whole image, resized into the middle of a white square."""

    cell: Any  # the image, as `decode_image` takes it
    side: int  # of the square, in pixels


@dataclass(frozen=True)
class Inset:
    """An image without the pixels at its edges."""

    cell: Any  # the whole image, as `decode_image` takes it
    edge: int  # pixels that go at each side


Altered = Crop | Fitted | Inset
"""Cells that are changed when they are decoded; `cell` is the whole image."""


class PooledImages(Sequence[Any]):
    """Cells of a column by row; `None` where the row is."""

    def __init__(self, column: Sequence[Any], rows: Sequence[int | None] | NDArray[np.integer]) -> None:
        self._column = column
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        row = self._rows[index]
        return None if row is None else self._column[int(row)]


class MappedImages(Sequence[Any]):
    """Cells that are changed when they are read, by a function of the cell and its row; missing ones stay `None`."""

    def __init__(self, cells: Sequence[Any], change: Callable[[Any, int], Any]) -> None:
        self._cells = cells
        self._change = change

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, index: Any) -> Any:
        cell = self._cells[index]
        return None if is_missing(cell) else self._change(cell, index)


def files_of(folder: Path, names: Sequence[str], parts: Sequence[str] = ()) -> list[str | None]:
    """Paths of files by name, `None` for one that is not there.

    Args:
        folder: where they are.
        names: of the files; one of `parts` in front of a name says where the file may be, and it may be elsewhere.
        parts: sub-folders that files may be in as well, no two of which have files of one name.
    """
    names = [name.partition("/")[2] if name.partition("/")[0] in parts else name for name in names]
    places = [place for place in (folder, *(folder / part for part in parts)) if place.is_dir()]
    there = {path.name: str(path) for place in reversed(places) for path in place.iterdir()}
    return [there.get(name) or (str(folder / name) if (folder / name).is_file() else None) for name in names]


def is_missing(cell: Any) -> bool:
    """Whether a cell holds no image: nothing, an empty cell of a data set, or a path without a file."""
    if isinstance(cell, Altered):
        return is_missing(cell.cell)
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    return cell is None or (isinstance(cell, str) and "://" not in cell and not Path(cell).is_file())


def box_digest(content: bytes, box: Box) -> bytes:
    """The key of a crop, given the key of its image."""
    return hashlib.sha256(content + repr(tuple(map(int, box))).encode()).digest()[: len(content)]
