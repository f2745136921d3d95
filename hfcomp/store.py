"""The store of computed results, which later runs read from disk: embeddings, scores, image hashes, answers.

A result is found by the digest of what it was computed from. There are two kinds of files:

* A *part* (`*.safetensors`) holds arrays of many entries, with their keys, and is named by the hash of its content.
* A *document* (`*.json`) holds one result, is named by its key, and holds a checksum of its content.

Both are written whole under a temporary name, then renamed, and never changed afterwards. So processes need no lock,
which network file systems may lack: two that compute the same thing at once write it twice, no more. What is read back
is checked; a damaged file is removed and its results are computed again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from hfcomp.checksums import read_checked
from hfcomp.writing import write_bytes

logger = logging.getLogger(__name__)

KEY_BYTES = 16
FLUSH_ENTRIES, FLUSH_SECONDS = 8192, 30.0
"""When new results are written: what a killed process loses at most, and how small the files get."""
DEFAULT_LIMIT = "20GB"
LIMIT_VARIABLE = "HFCOMP_CACHE_LIMIT"
DAY = 24 * 3600.0
NEIGHBORS = "neighbors"
"""The folder of documents in the embedding cache."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
# A user may name any folder as a cache, even one with models in it. Only names that a store uses are ever removed.
_FOLDER = re.compile(rf"[0-9a-f]{{16}}|{NEIGHBORS}|neighbours")
_FILE = re.compile(r"[0-9a-f]{32}\.(safetensors|json)")

Arrays = tuple[NDArray[Any], ...]


def cache_folder(name: str) -> Path:
    """The default place of a kind of results, such as `embeddings`: `$HF_HOME/hfcomp/NAME`."""
    from huggingface_hub.constants import HF_HOME  # not needed by `hfcomp evaluate --list`

    return Path(HF_HOME) / "hfcomp" / name


def digest(content: Any) -> bytes:
    """A key of `KEY_BYTES` bytes for some bytes."""
    return hashlib.sha256(content).digest()[:KEY_BYTES]


def default_limit() -> int:
    """Bytes that the embedding cache may take: `$HFCOMP_CACHE_LIMIT`, else 20 GB."""
    return parse_size(os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT, LIMIT_VARIABLE)


def parse_size(text: str, option: str) -> int:
    """Bytes of a size such as `20GB`, `500 MB` or `0`.

    Raises:
        ValueError: for another text, naming the option.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{option}: found {text!r}, expected a size such as 20GB or 500MB.")
    return round(float(found[1]) * _UNITS[found[2].upper()])


def size_text(size: int) -> str:
    """A number of bytes as a user reads it, such as `1.2 GB`."""
    power = min(4, (len(str(size)) - 1) // 3)
    number = size / 1000**power
    return f"{number:.{int(power > 0)}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


@dataclass(frozen=True)
class StoredFile:
    """A file of a store, its size in bytes and its last use, in seconds since 1970."""

    path: Path
    size: int
    used: float


class Store:
    """Writes, reads and counts the files of a folder, and removes the oldest.

    A folder that cannot be written to costs no result, only the reuse in later runs.

    Args:
        folder: Made when something is written; None keeps nothing.
        limit: Bytes the folder may take; None for any number. Beyond it, the least recently used files are removed,
            never one that was used since this object was made.
        name: What messages call it.
    """

    def __init__(self, folder: str | Path | None, *, limit: int | None = None, name: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.limit = limit
        self._name = name
        # Files that were used since then may be in use by this run. The time of a file may lag behind the clock.
        self._opened = time.time() - 1
        self._unwritable = ""
        self._damaged: dict[Path, int] = {}
        self._evicted = (0, 0)
        self._size = 0

    @property
    def notes(self) -> list[str]:
        """What a reader of the results has to know: damaged files, a folder that cannot be written to, its limit."""
        found = []
        if self._damaged:
            entries = sum(self._damaged.values())
            found.append(
                f"{self._name}: {len(self._damaged):,} damaged files ({entries:,} readable keys) were removed and "
                "their content encoded again"
            )
        if self._unwritable:
            found.append(f"{self._name}: {self._unwritable}; results are not kept for later runs")
        if self._evicted[0]:
            number, size = self._evicted
            found.append(
                f"{self._name}: {number:,} files ({size_text(size)}) (least recently used) were removed to stay "
                f"within {size_text(self.limit or 0)} ({LIMIT_VARIABLE})"
            )
        if self.limit is not None and self._size > self.limit:
            found.append(
                f"{self._name}: {size_text(self._size)} remain, over the limit of {size_text(self.limit)} "
                f"({LIMIT_VARIABLE}): files in use by this or another run, or that cannot be removed"
            )
        return found

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file, whole or not at all. After one that cannot be written no other is tried."""
        # A full disk stays full: trying again for each part would cost a sync and a warning each time.
        if self._unwritable:
            return
        try:
            write_bytes(path, content)
        except OSError as error:
            self._unwritable = f"{self.folder} cannot be written to ({error.strerror or error})"
            logger.warning(f"{self._name}: {self._unwritable}. Results are not kept for later runs.")

    def count_damage(self, path: Path, entries: int, reason: Exception) -> None:
        """Counts a file that cannot be used, and removes it unless the disk or its permissions are at fault."""
        if not self._damaged:
            logger.warning(f"{path} is damaged ({reason}): its content is computed again, as for further such files.")
        self._damaged[path] = entries
        # A read error may be temporary, such as that of a network disk, and the file may be whole and belong to
        # another run.
        if not isinstance(reason, OSError):
            remove(path)

    def trim(self) -> None:
        """Removes files until the folder is within its limit."""
        if self.folder is None or self.limit is None:
            return
        every = [file for place in cache_folders(self.folder) for file in stored_files(place)]
        self._size, number, removed = sum(file.size for file in every), 0, 0
        for file in sorted(every, key=lambda one: one.used):
            # Sorted by last use: if one is in use, all that follow are.
            if self._size <= self.limit or file.used >= self._opened:
                break
            own = remove(file.path)
            if own:
                number, removed = number + 1, removed + file.size
            if own or not os.path.exists(file.path):  # another process was faster
                self._size -= file.size
        self._evicted = (self._evicted[0] + number, self._evicted[1] + removed)
        if number:
            logger.warning(f"{self.folder} was over {size_text(self.limit)}: {number} old files were removed.")


class Table:
    """Arrays by key, in memory and in the parts of a folder.

    Args:
        columns: Types of the arrays by name. The first is `[n, width]`, the others `[n]`.
        folder: With the parts; None keeps everything in memory.
        store: Writes parts, and counts what is wrong with them.
        check: Raises ValueError for a first array that cannot have been stored.
    """

    def __init__(
        self,
        columns: Mapping[str, type],
        folder: Path | None = None,
        *,
        store: Store | None = None,
        check: Callable[[NDArray[Any]], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self._columns, self._check = columns, check
        self._store = store or Store(folder, name="store")
        # Arrays on disk stay there until they are looked up. Only the keys of all parts are in memory.
        self._parts: list[Arrays | Path] = []
        self._place: dict[bytes, tuple[int, int]] = {}
        self._pending: list[tuple[Sequence[bytes], Arrays]] = []
        self._waiting = 0
        self._flushed = time.monotonic()
        for path in part_files(folder) if folder else ():
            self._read_keys(path)

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    def add(self, keys: Sequence[bytes], *arrays: NDArray[Any], own: bool = True) -> None:
        """Adds entries; `own` says that this process computed them, and so is the one to write them down."""
        self._take(keys, arrays)
        if own:
            self.write_later(keys, *arrays)

    def write_later(self, keys: Sequence[bytes], *arrays: NDArray[Any]) -> None:
        """Writes entries with the next part, without keeping them in memory after that."""
        if self.folder is None or not len(keys):
            return
        self._pending.append((keys, arrays))
        self._waiting += len(keys)
        if self._waiting >= FLUSH_ENTRIES or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def look_up(self, keys: Sequence[bytes], width: int) -> Arrays:
        """The arrays, zeros where a key is missing, and which keys are there `[n]`: in a part that proves whole."""
        shapes = [(len(keys), width), *[(len(keys),)] * (len(self._columns) - 1)]
        arrays = tuple(np.zeros(shape, kind) for shape, kind in zip(shapes, self._columns.values(), strict=True))
        nowhere = (-1, -1)
        places = np.array([self._place.get(key, nowhere) for key in keys], dtype=np.int64).reshape(-1, 2)
        there = places[:, 0] >= 0
        for number in np.unique(places[there, 0]):
            chosen = np.flatnonzero(places[:, 0] == number)
            part = self._read(int(number), width)
            if part is None:
                there[chosen] = False
                continue
            for array, stored in zip(arrays, part, strict=True):
                array[chosen] = stored[places[chosen, 1]]
        return *arrays, there

    def read_all(self, width: int) -> list[Arrays]:
        """The arrays of every part that proves whole."""
        parts = [self._read(number, width) for number in range(len(self._parts))]
        return [part for part in parts if part is not None]

    def flush(self) -> None:
        """Writes a part of what has been added since the last time."""
        self._flushed = time.monotonic()
        pending, self._pending, self._waiting = self._pending, [], 0
        if not pending or self.folder is None:
            return
        keys = np.frombuffer(b"".join(key for part, _ in pending for key in part), dtype=np.uint8)
        arrays = map(np.concatenate, zip(*(part for _, part in pending), strict=True))
        content = save({"keys": keys.reshape(-1, KEY_BYTES), **dict(zip(self._columns, arrays, strict=True))})
        self._store.write(self.folder / f"{checksum(content)}.safetensors", content)
        self._store.trim()

    def _read_keys(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                keys = file.get_tensor("keys")
            if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
                raise ValueError(f"keys of shape {list(keys.shape)}")
        except FileNotFoundError:  # removed by another process
            return
        except (OSError, SafetensorError, ValueError) as error:
            self._store.count_damage(path, 0, error)
            return
        content = keys.tobytes()
        self._take([content[at : at + KEY_BYTES] for at in range(0, len(content), KEY_BYTES)], path)

    def _read(self, number: int, width: int) -> Arrays | None:
        """The arrays of a part; None, and the part is forgotten, if its file is not what was written."""
        part = self._parts[number]
        if not isinstance(part, Path):
            return part
        try:
            arrays = self._read_part(part, width)
        except FileNotFoundError:  # removed by another process
            pass
        except (OSError, SafetensorError, ValueError) as error:
            self._store.count_damage(part, sum(own == number for own, _ in self._place.values()), error)
        else:
            mark_used(part)
            return arrays
        self._place = {key: place for key, place in self._place.items() if place[0] != number}
        return None

    def _read_part(self, path: Path, width: int) -> Arrays:
        content = path.read_bytes()
        if checksum(content) != path.stem:
            raise ValueError("its content does not match the checksum in its name")
        # A checksum shows that the file is as it was written, not that what was written is right: a broken library or
        # GPU may have computed it. Shapes and values are checked for that.
        tensors = load(content)
        keys, first, *others = (tensors.get(name, np.empty(0)) for name in ("keys", *self._columns))
        kinds, length = [*self._columns.values()], len(keys)
        if first.dtype != kinds[0] or first.shape != (length, width) or any(a.shape != (length,) for a in others):
            raise ValueError(f"arrays of shape {list(first.shape)} for {length} keys, expected {width} columns")
        self._check(first)
        return first, *(array.astype(kind) for array, kind in zip(others, kinds[1:], strict=True))

    def _take(self, keys: Sequence[bytes], part: Arrays | Path) -> None:
        self._parts.append(part)
        for row, key in enumerate(keys):
            # Two processes may have written the same key. The first part that is read serves it.
            self._place.setdefault(key, (len(self._parts) - 1, row))


def checksum(content: bytes) -> str:
    """The name of a part with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def read_document(path: Path) -> Any:
    """The content of a document; None if it is missing or damaged, and then removed."""
    try:
        return read_checked(path, "")
    except FileNotFoundError:
        return None
    except ValueError:  # such as a file that a power failure cut off
        remove(path)
        return None


def remove(path: Path) -> bool:
    """Removes a file where that is possible, and returns whether this process did."""
    try:
        path.unlink()
    except OSError:  # another process was faster, or the folder is read-only
        return False
    return True


def mark_used(path: Path) -> None:
    """Notes that a file is used now; a read-only store goes without."""
    with suppress(OSError):
        os.utime(path)


def cache_folders(folder: Path) -> list[Path]:
    """The folders of a cache, in the order of their names; none if it does not exist or cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(Path(one.path) for one in entries if _FOLDER.fullmatch(one.name) and one.is_dir())
    return []


def stored_files(folder: Path) -> Iterator[StoredFile]:
    """The parts and documents in a folder; none if it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if _FILE.fullmatch(entry.name)]
    except OSError:
        return
    for entry in found:
        with suppress(OSError):  # removed by another process
            facts = entry.stat()
            yield StoredFile(Path(entry.path), facts.st_size, facts.st_mtime)


def part_files(folder: Path) -> list[Path]:
    """The parts in a folder, in the order of their names; none if it does not exist or cannot be read."""
    return sorted(file.path for file in stored_files(folder) if file.path.suffix == ".safetensors")


def unused_files(folder: Path, *, older_than: float | None = None) -> list[Path]:
    """All files below a folder of hfcomp's own; none if one of them was used in the last `older_than` seconds."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    used = max((path.stat().st_mtime for path in found), default=0.0)
    return [] if older_than is not None and used >= time.time() - older_than else found
