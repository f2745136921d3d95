"""Hashes of files, pixels and looks that identify photographs however they were saved, kept on disk.

A look consists of the perceptual hash of Zauner 2010 (ImageHash's `phash`: the signs of the lowest 16 x 16 frequencies
relative to their median, 256 bits) and an 8 x 8 RGB thumbnail. Two images look the same if at most `MOST_BITS` bits
differ and the thumbnails differ by at most `MOST_LEVELS`, averaged over their points; a point counts with the channel
that differs most. Images without contrast match only if their pixels are equal. See docs/datasets.md for measurements
on photographs.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from datasets.arrow_dataset import Column
from numpy.typing import NDArray
from PIL import Image
from tqdm.auto import tqdm

from hfcomp.data.images import decode_image
from hfcomp.data.urls import is_url
from hfcomp.store import KEY_BYTES, Store, Table, digest, remove

logger = logging.getLogger(__name__)

SIDE, GRID = 16, 8
VERSION = 2
RECORD = np.dtype(
    [
        ("key", f"V{KEY_BYTES}"),
        ("pixels", f"V{KEY_BYTES}"),
        ("hash", "<u8", (SIDE * SIDE // 64,)),
        ("grid", "u1", (GRID * GRID, 3)),
    ]
)
# A file, identified by path, size and modification time, and the key of its content.
FILE = np.dtype([("file", f"V{KEY_BYTES}"), ("key", f"V{KEY_BYTES}")])
MOST_BITS = 56
"""Maximum number of differing bits, of 256. On 449 photographs: at most 28 if re-saved or resized, at most 49 in 99%
of cases if cropped by 4%; 90 or more for two different photographs."""
MOST_LEVELS = 16.0
"""Maximum difference in levels, of 255, averaged over the thumbnail's points. On the same photographs: at most 15.5 if
cropped by 4%."""
LEAST_CONTRAST = 8.0
"""Minimum standard deviation of the gray thumbnail, of 255; below it, the signs of the frequencies are noise."""
AT_A_TIME = 256
# Number of pairs whose distances one thread holds in memory at a time.
BLOCK = 1 << 20
# Number of pairs whose thumbnails are compared at a time.
PAIRS = 1 << 16


class HashStore:
    """Records by their first field, such as image hashes by file digest, in memory and in a store."""

    def __init__(self, folder: Path | None = None, dtype: np.dtype[Any] = RECORD) -> None:
        self.folder = None if folder is None else folder / (_version() if dtype == RECORD else f"files-v{VERSION}")
        self._by, self._lock = dtype.names[0], threading.Lock()
        self._table = Table({"records": np.uint8}, self.folder, store=Store(self.folder, name="image hashes"))
        self._records: dict[bytes, NDArray[Any]] = {}
        parts = [rows.view(dtype).reshape(-1) for (rows,) in self._table.read_all(dtype.itemsize)]
        for part in (*parts, *_older_parts(self.folder, dtype)):
            self._records |= {record[self._by].tobytes(): record for record in part}

    def get(self, key: bytes | None) -> NDArray[Any] | None:
        """Returns the record of a key, if known."""
        return None if key is None else self._records.get(key)

    def add(self, record: NDArray[Any]) -> None:
        """Adds a record; thread-safe."""
        key = record[self._by].tobytes()
        with self._lock:
            self._records[key] = record
            self._table.write_later([key], np.frombuffer(record.tobytes(), np.uint8)[None])

    def flush(self) -> None:
        """Writes new records."""
        with self._lock:
            self._table.flush()


def _version() -> str:
    from importlib.metadata import version  # package metadata, because ImageHash itself is slow to import

    # Part of the folder's name, because another version of either package may hash the same pixels differently.
    return f"v{VERSION}-imagehash-{version('imagehash')}-pillow-{PIL.__version__}"


def _older_parts(folder: Path | None, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """Yields records from raw files named by the digest of their content, which older hfcomp versions wrote."""
    for path in sorted(folder.glob("*.npy")) if folder else ():
        try:
            content = path.read_bytes()
        except OSError as error:
            logger.warning(f"{path} cannot be read, so its images are hashed again: {error}")
            continue
        if digest(content).hex() == path.stem:
            yield np.frombuffer(content, dtype)
        else:
            logger.warning(f"{path} is damaged, so its images are hashed again")
            remove(path)


def file_key(cell: Any, files: HashStore | None = None) -> bytes | None:
    """Returns a key of an image's file without downloading anything; `None` if the cell is not a file.

    The key is a digest of the file's bytes. For a member of an archive, it is a digest of its name and the archive's
    size and modification time; for a URL, a digest of the URL.
    """
    if isinstance(cell, dict):
        cell = cell.get("bytes") if cell.get("bytes") is not None else cell.get("path")
    if isinstance(cell, bytes | bytearray | memoryview):
        return digest(cell)
    if not isinstance(cell, str | os.PathLike):
        return None
    name = os.fspath(cell)
    if is_url(name):
        return digest(name.encode())
    if "://" in name:
        return _file_state(name, name.rpartition("::")[2])
    if files is None:
        return digest(Path(name).read_bytes())
    unchanged = _file_state(os.path.abspath(name), name)
    known = files.get(unchanged)
    if known is not None:
        return known["key"].tobytes()
    key = digest(Path(name).read_bytes())
    files.add(np.array((np.void(unchanged), np.void(key)), dtype=FILE))
    return key


def _file_state(name: str, path: str) -> bytes:
    state = os.stat(path)
    return digest(f"{name}\0{state.st_size}\0{state.st_mtime_ns}".encode())


def image_record(image: Image.Image, key: bytes | None = None) -> NDArray[Any]:
    import imagehash  # imports scipy, which nothing else in this module needs

    record = np.zeros((), dtype=RECORD)
    pixels = digest(b"%d %d " % image.size + image.tobytes())
    bits = imagehash.phash(image.convert("L"), hash_size=SIDE).hash
    record["key"], record["pixels"] = np.void(key or pixels), np.void(pixels)
    record["hash"] = np.packbits(bits.ravel()).view("<u8")
    record["grid"] = np.asarray(image.resize((GRID, GRID), Image.Resampling.LANCZOS)).reshape(-1, 3)
    return record


@dataclass(frozen=True)
class HashedImages:
    """Hashes of n images, deduplicated.

    Attributes:
        records: Distinct records `[m]` of type `RECORD`.
        index: Index `[n]` of each image's record; -1 if the image is missing or cannot be read.
        unreadable: Problem of each image that cannot be read.
    """

    records: NDArray[Any]
    index: NDArray[np.int64]
    unreadable: list[str]


def hash_images(
    cells: Sequence[Any],
    rows: Sequence[int],
    store: HashStore,
    *,
    name: str,
    progress: bool = False,
    files: HashStore | None = None,
    decode: bool = True,
) -> HashedImages:
    """Hashes images on several threads, each distinct file once."""
    hasher = _Hasher(store, name, files, decode)
    index, number, unreadable = np.full(len(rows), -1, dtype=np.int64), {}, []
    records: list[NDArray[Any]] = []
    bar = tqdm(total=len(rows), desc=f"hashing {name}", disable=not progress or not len(rows), leave=False, unit="img")
    with bar, ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for place, record in enumerate(_map_in_order(pool, hasher, cells, rows)):
            bar.update()
            if isinstance(record, str):
                unreadable.append(record)
            elif record is not None:
                key = record["key"].tobytes()
                if key not in number:
                    number[key] = len(records)
                    records.append(record)
                    if decode and store.get(key) is None:
                        store.add(record)
                index[place] = number[key]
    store.flush()
    if files is not None:
        files.flush()
    return HashedImages(np.stack(records) if records else np.zeros(0, dtype=RECORD), index, unreadable)


class _Hasher:
    """Hashes an image: returns its record, `None` if there is no image, or an error message. Reads each path once."""

    def __init__(self, store: HashStore, name: str, files: HashStore | None, decode: bool) -> None:
        self.store, self.name, self.files, self.decode = store, name, files, decode
        self._keys: dict[str, bytes | None] = {}

    def __call__(self, row: int, cell: Any) -> NDArray[Any] | str | None:
        if isinstance(cell, dict) and cell.get("bytes") is None:
            cell = cell.get("path")
        if cell is None:
            return None
        where = f"{self.name}, row {row}"
        try:
            if isinstance(cell, str) and cell not in self._keys:
                self._keys[cell] = file_key(cell, self.files)
            key = self._keys[cell] if isinstance(cell, str) else file_key(cell)
            if not self.decode:
                return None if key is None else _file_record(key)
            known = self.store.get(key)
            return image_record(decode_image(cell, where=where), key) if known is None else known
        except (ValueError, TypeError, OSError) as error:
            message = str(error)
            return message if message.startswith(where) else f"{where}: {message}"


def _file_record(key: bytes) -> NDArray[Any]:
    record = np.zeros((), dtype=RECORD)
    record["key"] = np.void(key)
    return record


def _map_in_order(
    pool: ThreadPoolExecutor, function: Callable[[int, Any], Any], cells: Sequence[Any], rows: Sequence[int]
) -> Iterator[Any]:
    # Keep only the cells of a few hundred images in memory at a time.
    for start in range(0, len(rows), AT_A_TIME):
        part = rows[start : start + AT_A_TIME]
        yield from pool.map(function, part, cells_of(cells, part))


def cells_of(cells: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    # `rows` ascend. Rows of a dataset that are close together are read at once, which is much faster.
    if isinstance(cells, Column) and len(rows) and rows[-1] - rows[0] < 2 * len(rows):
        part = cells[rows[0] : rows[-1] + 1]
        return [part[row - rows[0]] for row in rows]
    return [cells[row] for row in rows]


def looks_alike(images: NDArray[Any], others: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Finds for each image the nearest other image that looks the same.

    Args:
        images: Records `[n]` of type `RECORD`.
        others: Records `[m]`.

    Returns:
        Index `[n]` in `others`, or -1; and number `[n]` of differing bits, of 256.
    """
    nearest, bits = np.full(len(images), -1, dtype=np.int64), np.full(len(images), MOST_BITS + 1, dtype=np.int64)
    own, candidates = (np.flatnonzero(_has_contrast(part)) for part in (images, others))
    rows, columns, distances = close_pairs(images["hash"][own], others["hash"][candidates], MOST_BITS)
    rows, columns = own[rows], candidates[columns]
    same = _same_colors(images["grid"], others["grid"], rows, columns)
    for row, column, distance in zip(rows[same], columns[same], distances[same], strict=True):
        if distance < bits[row]:
            nearest[row], bits[row] = column, distance
    return nearest, bits


def like_another(images: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each image `[n]` looks like another image with different pixels; look cannot distinguish such images."""
    is_alike = np.zeros(len(images), dtype=bool)
    contrasting = np.flatnonzero(_has_contrast(images))
    rows, columns, _ = close_pairs(images["hash"][contrasting], images["hash"][contrasting], MOST_BITS)
    rows, columns = contrasting[rows], contrasting[columns]
    others = images["pixels"][rows] != images["pixels"][columns]
    rows, columns = rows[others], columns[others]
    is_alike[rows[_same_colors(images["grid"], images["grid"], rows, columns)]] = True
    return is_alike


def _same_colors(
    grids: NDArray[np.uint8], others: NDArray[np.uint8], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    is_same = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), PAIRS):
        part = slice(start, start + PAIRS)
        difference = np.abs(grids[rows[part]].astype(np.int16) - others[columns[part]])
        is_same[part] = difference.max(axis=2).mean(axis=1) <= MOST_LEVELS
    return is_same


def _has_contrast(records: NDArray[Any]) -> NDArray[np.bool_]:
    return (records["grid"] @ np.array([0.299, 0.587, 0.114])).std(axis=1) >= LEAST_CONTRAST


def close_pairs(
    hashes: NDArray[np.uint64], others: NDArray[np.uint64], max_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Finds pairs of hashes that differ in at most `max_bits` bits.

    Returns:
        Indices `[k]` in `hashes`, indices `[k]` in `others`, and differing bits `[k]`, ordered by the two indices.
    """
    # Compare block by block, because the distances of all pairs at once would not fit into memory.
    size = max(1, BLOCK // max(1, len(others)))
    words = np.ascontiguousarray(others.T)

    def block(start: int) -> tuple[NDArray[np.int64], ...]:
        part = hashes[start : start + size]
        count = np.zeros((len(part), len(others)), dtype=np.uint16)  # in 8 bits, 256 would overflow to 0
        for own, other in zip(part.T, words, strict=True):
            count += _bit_count(own[:, None] ^ other)
        rows, columns = np.nonzero(count <= max_bits)
        return rows + start, columns, count[rows, columns].astype(np.int64)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        blocks = list(pool.map(block, range(0, len(hashes), size) if len(others) else ()))
    empty = np.zeros(0, dtype=np.int64)
    return tuple(np.concatenate([empty, *parts]) for parts in zip(*blocks, strict=True)) if blocks else (empty,) * 3


@cache
def _bits_of_quarters() -> NDArray[np.uint8]:
    return np.array([number.bit_count() for number in range(1 << 16)], dtype=np.uint8)


def _count_by_table(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    # Fallback for numpy 1, which has no bitwise_count.
    quarters = _bits_of_quarters()[words.view(np.uint16)]
    return quarters.reshape(*words.shape, 4).sum(axis=-1, dtype=np.uint8)


_bit_count = getattr(np, "bitwise_count", _count_by_table)
