"""What tells photographs from others however they were saved: hashes of files, of pixels and of looks, kept on disk.

A look is the perceptual hash of Zauner 2010 (ImageHash's `phash`: the signs of the lowest 16 x 16 frequencies against
their median, 256 bits) and an 8 x 8 thumbnail in grey. Two images look the same when at most `MOST_BITS` bits differ
and the thumbnails differ by at most `MOST_GREY` grey levels on average; without contrast nothing but equal pixels
counts. docs/datasets.md has what was measured on photographs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from datasets.arrow_dataset import Column
from huggingface_hub.constants import HF_HOME
from numpy.typing import NDArray
from PIL import Image
from tqdm.auto import tqdm

from hfcomp.data.images import decode_image

logger = logging.getLogger(__name__)

MOST_BITS = 56
"""Of 256. On 449 photographs: saved or resized anew 28 at most, 4 % cropped 49 in 99 %; two different ones 90 or more.
"""
MOST_GREY = 16.0
"""Of 255, on average over the thumbnail. The same: 4 % cropped 13.6 at most."""
LEAST_CONTRAST = 8.0
"""Standard deviation of the thumbnail, of 255: below it the signs of frequencies are those of noise."""
SIDE, GRID = 16, 8
VERSION = 1
KEY_BYTES = 16
FLUSH_IMAGES, FLUSH_SECONDS = 8192, 30.0
AT_A_TIME = 256
# Pairs whose distances a thread has in memory at a time.
BLOCK = 1 << 20
RECORD = np.dtype(
    [
        ("key", f"V{KEY_BYTES}"),
        ("pixels", f"V{KEY_BYTES}"),
        ("hash", "<u8", (SIDE * SIDE // 64,)),
        ("grid", "u1", (64,)),
    ]
)


def default_folder() -> Path:
    """Where hashes are kept: `$HF_HOME/hfcomp/image_hashes`."""
    return Path(HF_HOME) / "hfcomp" / "image_hashes"


def digest(content: Any) -> bytes:
    """`KEY_BYTES` bytes that tell bytes from others."""
    return hashlib.sha256(content).digest()[:KEY_BYTES]


def file_key(cell: Any) -> bytes | None:
    """What tells the file of an image: a digest of its bytes; `None` for a cell that is no file on this machine.

    Args:
        cell: as `decode_image` takes it.

    Raises:
        OSError: for a file that cannot be read.
    """
    if isinstance(cell, dict):
        cell = cell.get("bytes") if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, bytes | bytearray | memoryview):
        return digest(cell)
    if isinstance(cell, str | os.PathLike) and "://" not in os.fspath(cell):
        return digest(Path(cell).read_bytes())
    return None


def image_record(image: Image.Image, key: bytes | None = None) -> NDArray[Any]:
    """Hashes of an image, a `RECORD`.

    Args:
        image: RGB.
        key: of its file; by default that of its pixels.
    """
    import imagehash  # with scipy, which nothing else here needs

    record = np.zeros((), dtype=RECORD)
    pixels = digest(b"%d %d " % image.size + image.tobytes())
    grey = image.convert("L")
    bits = imagehash.phash(grey, hash_size=SIDE).hash
    record["key"], record["pixels"] = np.void(key or pixels), np.void(pixels)
    record["hash"] = np.packbits(bits.ravel()).view("<u8")
    record["grid"] = np.asarray(grey.resize((GRID, GRID), Image.Resampling.LANCZOS)).ravel()
    return record


@dataclass(frozen=True)
class HashedImages:
    """Hashes of the distinct ones of n images.

    Attributes:
        records: `[m]` of `RECORD`.
        index: `[n]`, which of them each image has; -1 for one that is missing or cannot be read.
        unreadable: what was wrong, for each that cannot be read.
    """

    records: NDArray[Any]
    index: NDArray[np.int64]
    unreadable: list[str]


class HashStore:
    """Hashes by the digest of a file's bytes, in memory and in a folder.

    A file in the folder is called by the digest of its content: one that was damaged is not read, and its images are
    hashed again. It is written under another name and then renamed, so that a killed process leaves none half-written.

    Args:
        folder: `None` keeps them in memory alone.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = None if folder is None else folder / _version()
        self._records: dict[bytes, NDArray[Any]] = {}
        self._pending: list[NDArray[Any]] = []
        self._flushed = time.monotonic()
        for path in sorted(self.folder.glob("*.npy")) if self.folder else ():
            for record in _read(path):
                self._records[record["key"].tobytes()] = record

    def get(self, key: bytes | None) -> NDArray[Any] | None:
        """The hashes of a file, if they are known."""
        return None if key is None else self._records.get(key)

    def add(self, record: NDArray[Any]) -> None:
        """Adds an image's hashes."""
        self._records[record["key"].tobytes()] = record
        self._pending.append(record)
        if len(self._pending) >= FLUSH_IMAGES or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is new; on a full or read-only disk that is reported, and work goes on without."""
        self._flushed = time.monotonic()
        if self.folder is None or not self._pending:
            return
        content = np.stack(self._pending)
        partial = self.folder / f".{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content.tobytes())
            os.replace(partial, self.folder / f"{digest(content.tobytes()).hex()}.npy")
        except OSError as error:
            logger.warning(f"hashes of images cannot be kept for later runs: {error}")
            self.folder = None
        self._pending = []


def _version() -> str:
    from importlib.metadata import version  # of the package: ImageHash itself takes time to import

    return f"v{VERSION}-imagehash-{version('imagehash')}-pillow-{PIL.__version__}"


def _read(path: Path) -> NDArray[Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        logger.warning(f"{path} cannot be read, its images are hashed again: {error}")
        return np.zeros(0, dtype=RECORD)
    if digest(content).hex() != path.stem:
        logger.warning(f"{path} is damaged, its images are hashed again")
        path.unlink(missing_ok=True)
        return np.zeros(0, dtype=RECORD)
    return np.frombuffer(content, dtype=RECORD)


def hash_images(
    cells: Sequence[Any], rows: Sequence[int], store: HashStore, *, name: str, progress: bool = False
) -> HashedImages:
    """Hashes images on several threads, each distinct file once.

    Args:
        cells: as `decode_image` takes them.
        rows: which of them.
        store: hashes that are known; receives the others.
        name: what messages and the bar call them.
        progress: whether to show a bar.
    """
    one = _Hasher(store, name)
    index, number, unreadable = np.full(len(rows), -1, dtype=np.int64), {}, []
    records: list[NDArray[Any]] = []
    bar = tqdm(total=len(rows), desc=f"hashing {name}", disable=not progress or not len(rows), leave=False, unit="img")
    with bar, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for place, found in enumerate(_mapped(pool, one, cells, rows)):
            bar.update()
            if isinstance(found, str):
                unreadable.append(found)
            elif found is not None:
                key = found["key"].tobytes()
                if key not in number:
                    number[key] = len(records)
                    records.append(found)
                    if store.get(key) is None:
                        store.add(found)
                index[place] = number[key]
    store.flush()
    return HashedImages(np.stack(records) if records else np.zeros(0, dtype=RECORD), index, unreadable)


class _Hasher:
    """The hashes of an image, `None` where there is none, or what is wrong with it; each path is read once."""

    def __init__(self, store: HashStore, name: str) -> None:
        self.store, self.name = store, name
        self._keys: dict[str, bytes | None] = {}

    def __call__(self, row: int, cell: Any) -> NDArray[Any] | str | None:
        if isinstance(cell, dict) and cell.get("bytes") is None:
            cell = cell.get("path")
        if cell is None:
            return None
        where = f"{self.name}, row {row}"
        try:
            if isinstance(cell, str) and cell not in self._keys:
                self._keys[cell] = file_key(cell)
            key = self._keys[cell] if isinstance(cell, str) else file_key(cell)
            known = self.store.get(key)
            return image_record(decode_image(cell, where=where), key) if known is None else known
        except (ValueError, TypeError, OSError) as error:
            said = str(error)
            return said if said.startswith(where) else f"{where}: {said}"


def _mapped(
    pool: ThreadPoolExecutor, function: Callable[[int, Any], Any], cells: Sequence[Any], rows: Sequence[int]
) -> Iterator[Any]:
    """Results in order; the cells of a few hundred images are in memory at a time."""
    for start in range(0, len(rows), AT_A_TIME):
        part = rows[start : start + AT_A_TIME]
        yield from pool.map(function, part, cells_of(cells, part))


def cells_of(cells: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """The cells of rows in ascending order; of a data set near ones in one read, which is much faster."""
    if isinstance(cells, Column) and len(rows) and rows[-1] - rows[0] < 2 * len(rows):
        part = cells[rows[0] : rows[-1] + 1]
        return [part[row - rows[0]] for row in rows]
    return [cells[row] for row in rows]


def looks_alike(images: NDArray[Any], others: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each image the other that looks the same and is the nearest.

    Args:
        images: `[n]` of `RECORD`.
        others: `[m]`.

    Returns:
        `[n]`, the place in `others`, or -1; and `[n]`, in how many of 256 bits they differ.
    """
    nearest, bits = np.full(len(images), -1, dtype=np.int64), np.full(len(images), MOST_BITS + 1, dtype=np.int64)
    here, there = (np.flatnonzero(_has_contrast(part)) for part in (images, others))
    rows, columns, distances = close_pairs(images["hash"][here], others["hash"][there], MOST_BITS)
    rows, columns = here[rows], there[columns]
    difference = np.abs(images["grid"][rows].astype(np.int16) - others["grid"][columns]).mean(axis=1)
    for row, column, distance in zip(rows, columns, np.where(difference <= MOST_GREY, distances, 257), strict=True):
        if distance < bits[row]:
            nearest[row], bits[row] = column, distance
    return nearest, bits


def _has_contrast(records: NDArray[Any]) -> NDArray[np.bool_]:
    return records["grid"].astype(np.float32).std(axis=1) >= LEAST_CONTRAST


def close_pairs(
    hashes: NDArray[np.uint64], others: NDArray[np.uint64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of hashes of which at most so many bits differ.

    Args:
        hashes: `[n, w]`, 64 bits each.
        others: `[m, w]`.
        most: bits.

    Returns:
        `[k]` places in `hashes`, `[k]` in `others`, `[k]` differing bits; ordered by the two places.
    """
    size = max(1, BLOCK // max(1, len(others)))
    words = np.ascontiguousarray(others.T)

    def block(start: int) -> tuple[NDArray[np.int64], ...]:
        part = hashes[start : start + size]
        count = np.zeros((len(part), len(others)), dtype=np.uint16)  # 8 bits would take 256 for 0
        for own, other in zip(part.T, words, strict=True):
            count += _bit_count(own[:, None] ^ other)
        rows, columns = np.nonzero(count <= most)
        return rows + start, columns, count[rows, columns].astype(np.int64)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = list(pool.map(block, range(0, len(hashes), size) if len(others) else ()))
    empty = np.zeros(0, dtype=np.int64)
    return tuple(np.concatenate([empty, *parts]) for parts in zip(*found, strict=True)) if found else (empty,) * 3


@cache
def _bits_of_quarters() -> NDArray[np.uint8]:
    return np.array([number.bit_count() for number in range(1 << 16)], dtype=np.uint8)


def _count_by_table(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The bits that are set in each word, for numpy 1."""
    quarters = _bits_of_quarters()[words.view(np.uint16)]
    return quarters.reshape(*words.shape, 4).sum(axis=-1, dtype=np.uint8)


_bit_count = getattr(np, "bitwise_count", _count_by_table)
