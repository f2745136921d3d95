"""Images of benchmarks: cells that are read when asked for, cut or padded, known by content, checked for damage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hfcomp.store import digest

if TYPE_CHECKING:
    from PIL import Image

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


class LazyCells(Sequence[Any]):
    """A column of images, each read when it is asked for: by file name, by row of another set, out of an archive."""

    def __init__(self, length: int, read: Callable[[int], Any]) -> None:
        # A range handles negative indices and bounds as a list does.
        self._rows = range(length)
        self._read = read

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._rows[index])

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, self._rows)


def pick_cells(column: Sequence[Any], rows: Sequence[int | None] | NDArray[np.integer]) -> LazyCells:
    """Cells of a column by row; `None` where the row is."""
    return LazyCells(len(rows), lambda row: None if rows[row] is None else column[int(rows[row])])


def map_cells(cells: Sequence[Any], change: Callable[[Any, int], Any]) -> LazyCells:
    """Cells that are changed when they are read, by a function of the cell and its row; missing ones stay `None`."""

    def read(row: int) -> Any:
        cell = cells[row]
        return None if is_missing(cell) else change(cell, row)

    return LazyCells(len(cells), read)


def files_of(folder: Path, names: Sequence[str], parts: Sequence[str] = ()) -> list[str | None]:
    """Paths of files by name, `None` for one that is not there.

    One of `parts`, sub-folders that files may be in as well, may stand in front of a name, and the file be elsewhere.
    """
    names = [name.partition("/")[2] if name.partition("/")[0] in parts else name for name in names]
    places = [place for place in (folder, *(folder / part for part in parts)) if place.is_dir()]
    # The last entry of a dict wins: the folder itself takes precedence over its parts, and these in their order.
    there = {path.name: str(path) for place in reversed(places) for path in place.iterdir()}
    return [there.get(name) or (str(folder / name) if (folder / name).is_file() else None) for name in names]


def is_missing(cell: Any) -> bool:
    """Whether a cell holds no image: nothing, an empty cell of a dataset, or a path without a file."""
    if isinstance(cell, Altered):
        return is_missing(cell.cell)
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    # The content of a URL is known only when it is fetched, so it counts as present.
    return cell is None or (isinstance(cell, str) and "://" not in cell and not Path(cell).is_file())


def distinct(keys: Iterable[bytes | None]) -> tuple[list[bytes], NDArray[np.int64], list[int]]:
    """The distinct keys, which of them each row has (-1 for none), and the row where each stands first."""
    number: dict[bytes, int] = {}
    index, first = [], []
    for row, key in enumerate(keys):
        if key is None:
            index.append(-1)
            continue
        if key not in number:
            number[key] = len(first)
            first.append(row)
        index.append(number[key])
    return list(number), np.array(index, dtype=np.int64), first


def check_text(text: Any, row: int) -> str:
    """The text; raises TypeError with its row for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"texts, entry {row}: found {text!r}, expected a text. Remove such entries.")
    return text


def text_key(text: Any, row: int) -> bytes:
    """A key that two texts share when they are the same as written."""
    return digest(check_text(text, row).encode("utf-8", "surrogatepass"))


def tokens_key(ids: Sequence[int]) -> bytes:
    """A key that two texts share when a model sees them alike: their token ids."""
    return digest(np.asarray(ids, dtype=np.int64).tobytes())


def _decode(cell: Any, where: str) -> Image.Image:
    from hfcomp.data.images import decode_image  # loads Pillow, which listing benchmarks need not

    return decode_image(cell, where=where)


def decoded(value: Any, where: str) -> Image.Image:
    """The image of a cell, a part of it, or all of it padded to a square."""
    if isinstance(value, Crop):
        return _decode(value.cell, where).crop(value.box)
    if isinstance(value, Fitted):
        from PIL import Image, ImageOps

        # Of Pillow's filters this one comes nearest to the files of HierarCaps' authors.
        image, side = _decode(value.cell, where), (value.side, value.side)
        return ImageOps.pad(image, side, Image.Resampling.HAMMING, color="white")
    if isinstance(value, Inset):
        image, edge = _decode(value.cell, where), value.edge
        if min(image.size) <= 2 * edge:
            raise ValueError(f"{where}: {image.width} x {image.height} pixels are all within {edge} of an edge.")
        return image.crop((edge, edge, image.width - edge, image.height - edge))
    return _decode(value, where)


def image_key(value: Any, where: str) -> bytes | None:
    """A key equal for equal images: of the file's bytes, else of the pixels; for a part, of where it is too."""
    if isinstance(value, Crop):
        own = image_key(value.cell, where)
        return digest(own + repr(tuple(map(int, value.box))).encode())
    if isinstance(value, Fitted | Inset):
        own, how = image_key(value.cell, where), type(value).__name__.lower()
        size = value.side if isinstance(value, Fitted) else value.edge
        return None if own is None else digest(own + f"{how} {size}".encode())
    if isinstance(value, dict):
        # Bytes take precedence: a path next to them is often only the name on the machine that made the file.
        value = value.get("bytes") if value.get("bytes") is not None else value.get("path")
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return digest(value)
    if isinstance(value, str | os.PathLike) and Path(value).is_file():
        return digest(Path(value).read_bytes())
    # The size is included: images of 2 x 8 and of 4 x 4 pixels may have the same bytes.
    image = _decode(value, where)
    return digest(b"%d %d " % image.size + image.tobytes())


DAMAGED = "image damaged"
"""Why a row is left out on request."""
THREADS = 8


def damaged_images(cells: Sequence[Any], column: str, *, progress: bool = False) -> dict[int, str]:
    """Decodes each distinct image of a column once; no more images are in memory than threads decode.

    An empty cell is not damaged, a missing file is.

    Returns:
        By row why its image cannot be decoded, in the order of rows.
    """
    from hfcomp.data.images import Unreadable

    found: dict[int, str] = {}

    def key(row: int, cell: Any) -> bytes | None:
        try:
            return None if _is_empty(cell) else image_key(cell, _where(column, row))
        except Unreadable as error:
            # A file that cannot be read has no key, so it is not decoded below either.
            found[row] = str(error)
            return None

    _, index, first = distinct(key(row, cell) for row, cell in enumerate(cells))
    with ThreadPoolExecutor(THREADS) as pool:
        tried = pool.map(lambda row: _problem(cells[row], _where(column, row)), first)
        reasons = list(tqdm(tried, total=len(first), desc="decoding images", disable=not progress, leave=False))
    found |= {row: reasons[place] for row, place in enumerate(index.tolist()) if place >= 0 and reasons[place]}
    return dict(sorted(found.items()))


def _is_empty(cell: Any) -> bool:
    cell = cell.cell if isinstance(cell, Altered) else cell
    return cell is None or (isinstance(cell, dict) and cell.get("bytes") is None and not cell.get("path"))


def _where(column: str, row: int) -> str:
    return f"column {column!r}, row {row}"


def _problem(cell: Any, where: str) -> str:
    from hfcomp.data.images import Unreadable

    try:
        decoded(cell, where)
    except Unreadable as error:
        return str(error)
    return ""


class CellsWithout(Sequence[Any]):
    """A column of images in which those of some rows are `None`."""

    def __init__(self, cells: Sequence[Any], rows: Iterable[int]) -> None:
        self._cells, self._rows = cells, set(rows)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, row: Any) -> Any:
        return None if row in self._rows else self._cells[row]

    def __iter__(self) -> Iterator[Any]:
        if 2 * len(self._rows) > len(self):  # reading row by row is slower, reading most in vain slower still
            return (self[row] for row in range(len(self)))
        return (None if row in self._rows else value for row, value in enumerate(self._cells))
