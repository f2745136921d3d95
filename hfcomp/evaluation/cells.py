"""Benchmark images: cells that are read lazily, cropped or padded, identified by content, and checked for damage."""

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
    """A crop of an image."""

    cell: Any  # the whole image, as `decode_image` takes it
    box: Box  # left, upper, right and lower edge in pixels; right and lower are exclusive


@dataclass(frozen=True)
class Fitted:
    """A whole image, resized and centered in a white square."""

    cell: Any  # the image, as `decode_image` takes it
    side: int  # side of the square in pixels


@dataclass(frozen=True)
class Inset:
    """An image without the pixels at its edges."""

    cell: Any  # the whole image, as `decode_image` takes it
    edge: int  # pixels to cut at each side


Altered = Crop | Fitted | Inset
"""Cells that are transformed when decoded; `cell` is the whole image."""


class LazyCells(Sequence[Any]):
    """An image column whose cells are read on access: by file name, by row of another dataset, or from an archive."""

    def __init__(self, length: int, read: Callable[[int], Any]) -> None:
        # A range handles negative indices and bounds like a list.
        self._rows = range(length)
        self._read = read

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._rows[index])

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, self._rows)


def pick_cells(column: Sequence[Any], rows: Sequence[int | None] | NDArray[np.integer]) -> LazyCells:
    """Selects cells of a column by row; `None` for the row `None`."""
    return LazyCells(len(rows), lambda row: None if rows[row] is None else column[int(rows[row])])


def map_cells(cells: Sequence[Any], change: Callable[[Any, int], Any]) -> LazyCells:
    """Applies a function of cell and row to the cells when they are read; missing ones stay `None`."""

    def read(row: int) -> Any:
        cell = cells[row]
        return None if is_missing(cell) else change(cell, row)

    return LazyCells(len(cells), read)


def files_of(folder: Path, names: Sequence[str], parts: Sequence[str] = ()) -> list[str | None]:
    """Finds files by name; `None` for a missing one.

    Files may also be in the subfolders `parts`. A name may start with one of them although the file is elsewhere.
    """
    names = [name.partition("/")[2] if name.partition("/")[0] in parts else name for name in names]
    places = [place for place in (folder, *(folder / part for part in parts)) if place.is_dir()]
    # The last entry of a dict wins, so the folder takes precedence over its parts, and earlier parts over later ones.
    paths = {path.name: str(path) for place in reversed(places) for path in place.iterdir()}
    return [paths.get(name) or (str(folder / name) if (folder / name).is_file() else None) for name in names]


def is_missing(cell: Any) -> bool:
    """Whether a cell contains no image: None, an empty cell of a dataset, or a path without a file."""
    if isinstance(cell, Altered):
        return is_missing(cell.cell)
    if isinstance(cell, dict):
        cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
    # A URL's content is known only after the download, so it counts as present.
    return cell is None or (isinstance(cell, str) and "://" not in cell and not Path(cell).is_file())


def distinct(keys: Iterable[bytes | None]) -> tuple[list[bytes], NDArray[np.int64], list[int]]:
    """Returns the distinct keys, the number of each row's key (-1 for none), and the first row of each key."""
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
    """Returns the text; raises TypeError with the row for anything else."""
    if not isinstance(text, str):
        raise TypeError(f"texts, entry {row}: found {text!r}, expected a string. Remove such entries.")
    return text


def text_key(text: Any, row: int) -> bytes:
    """Returns a key that two texts share if they are spelled the same."""
    return digest(check_text(text, row).encode("utf-8", "surrogatepass"))


def tokens_key(ids: Sequence[int]) -> bytes:
    """Returns a key that two texts share if a model reads them the same way: a hash of the token ids."""
    return digest(np.asarray(ids, dtype=np.int64).tobytes())


def _decode(cell: Any, where: str) -> Image.Image:
    from hfcomp.data.images import decode_image  # loads Pillow, which listing benchmarks does not need

    return decode_image(cell, where=where)


def decoded(value: Any, where: str) -> Image.Image:
    """Decodes a cell to its image, a crop of it, or the whole image padded to a square."""
    if isinstance(value, Crop):
        return _decode(value.cell, where).crop(value.box)
    if isinstance(value, Fitted):
        from PIL import Image, ImageOps

        # Among Pillow's filters, this one is closest to the files of HierarCaps' authors.
        image, side = _decode(value.cell, where), (value.side, value.side)
        return ImageOps.pad(image, side, Image.Resampling.HAMMING, color="white")
    if isinstance(value, Inset):
        image, edge = _decode(value.cell, where), value.edge
        if min(image.size) <= 2 * edge:
            raise ValueError(f"{where}: {image.width} x {image.height} pixels are all within {edge} of an edge.")
        return image.crop((edge, edge, image.width - edge, image.height - edge))
    return _decode(value, where)


def image_key(value: Any, where: str) -> bytes | None:
    """Returns a key that equal images share: a hash of the file's bytes or of the pixels; for a crop, with its box."""
    if isinstance(value, Crop):
        own = image_key(value.cell, where)
        return digest(own + repr(tuple(map(int, value.box))).encode())
    if isinstance(value, Fitted | Inset):
        own, how = image_key(value.cell, where), type(value).__name__.lower()
        size = value.side if isinstance(value, Fitted) else value.edge
        return None if own is None else digest(own + f"{how} {size}".encode())
    if isinstance(value, dict):
        # Bytes take precedence, because a path next to them is often only valid on the machine that made the file.
        value = value.get("bytes") if value.get("bytes") is not None else value.get("path")
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return digest(value)
    if isinstance(value, str | os.PathLike) and Path(value).is_file():
        return digest(Path(value).read_bytes())
    # The size is included, because images of 2 x 8 and 4 x 4 pixels may have the same bytes.
    image = _decode(value, where)
    return digest(b"%d %d " % image.size + image.tobytes())


DAMAGED = "image damaged"
"""Reason for a row that is left out on request."""
THREADS = 8


def damaged_images(cells: Sequence[Any], column: str, *, progress: bool = False) -> dict[int, str]:
    """Decodes each distinct image of a column once, with one image in memory per thread.

    An empty cell is not damaged, but a missing file is.

    Returns:
        The reason why an image cannot be decoded, by row, in the order of rows.
    """
    from hfcomp.data.images import Unreadable

    damaged: dict[int, str] = {}

    def key(row: int, cell: Any) -> bytes | None:
        try:
            return None if _is_empty(cell) else image_key(cell, _where(column, row))
        except Unreadable as error:
            # An unreadable file has no key, so it is not decoded below.
            damaged[row] = str(error)
            return None

    _, index, first = distinct(key(row, cell) for row, cell in enumerate(cells))
    with ThreadPoolExecutor(THREADS) as pool:
        tried = pool.map(lambda row: _problem(cells[row], _where(column, row)), first)
        reasons = list(tqdm(tried, total=len(first), desc="decoding images", disable=not progress, leave=False))
    damaged |= {row: reasons[place] for row, place in enumerate(index.tolist()) if place >= 0 and reasons[place]}
    return dict(sorted(damaged.items()))


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
    """An image column in which the cells of some rows are `None`."""

    def __init__(self, cells: Sequence[Any], rows: Iterable[int]) -> None:
        self._cells, self._rows = cells, set(rows)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, row: Any) -> Any:
        return None if row in self._rows else self._cells[row]

    def __iter__(self) -> Iterator[Any]:
        if 2 * len(self._rows) > len(self):  # reading row by row is slow, but reading mostly unused cells is slower
            return (self[row] for row in range(len(self)))
        return (None if row in self._rows else value for row, value in enumerate(self._cells))
