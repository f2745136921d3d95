"""Stores computed results on disk for later runs: embeddings, scores, image hashes and answers.

The key of a result is the digest of its inputs. There are two kinds of files:

* A *part* (`*.safetensors`) contains arrays of many entries with their keys, and is named by the hash of its content.
* A *document* (`*.json`) contains one result and a checksum of its content, and is named by its key.

Both are written under a temporary name, then renamed, and never changed afterwards. Processes therefore need no lock,
which network file systems may lack: if two processes compute the same result at once, it is only written twice.
Content is verified when it is read; a damaged file is removed and its results are computed again.
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
"""Triggers for writing new results: they bound the loss if a process is killed, and the number of small files."""
DEFAULT_LIMIT = "20GB"
LIMIT_VARIABLE = "HFCOMP_CACHE_LIMIT"
DAY = 24 * 3600.0
NEIGHBORS = "neighbors"
"""Name of the document folder in the embedding cache."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
# A user may choose any folder as a cache, even one with models in it. Only names that a store uses are ever removed.
_FOLDER = re.compile(rf"[0-9a-f]{{16}}|{NEIGHBORS}|neighbours")
_FILE = re.compile(r"[0-9a-f]{32}\.(safetensors|json)")

Arrays = tuple[NDArray[Any], ...]


def cache_folder(name: str) -> Path:
    """The default folder for a kind of results, such as `embeddings`: `$HF_HOME/hfcomp/NAME`."""
    from huggingface_hub.constants import HF_HOME  # not needed by `hfcomp evaluate --list`

    return Path(HF_HOME) / "hfcomp" / name


def digest(content: Any) -> bytes:
    """The key of some bytes, `KEY_BYTES` long."""
    return hashlib.sha256(content).digest()[:KEY_BYTES]


def default_limit() -> int:
    """Size limit of the embedding cache in bytes: `$HFCOMP_CACHE_LIMIT`, otherwise 20 GB."""
    return parse_size(os.environ.get(LIMIT_VARIABLE) or DEFAULT_LIMIT, LIMIT_VARIABLE)


def parse_size(text: str, option: str) -> int:
    """Parses a size such as `20GB`, `500 MB` or `0` into bytes.

    Raises:
        ValueError: For any other text. The error names the option.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{option}: found {text!r}, expected a size such as 20GB or 500MB.")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def size_text(size: int) -> str:
    """A number of bytes in readable form, such as `1.2 GB`."""
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
    """Writes, reads and counts the files of a folder, and removes the least recently used ones.

    If the folder is not writable, no result is lost, but later runs cannot reuse them.

    Args:
        folder: Folder of the files, created on the first write; None to keep nothing.
        limit: Maximum size of the folder in bytes; None for no limit. Beyond it, the least recently used files are
            removed, except files that were used since this object was created.
        name: Name of the store in messages.
    """

    def __init__(self, folder: str | Path | None, *, limit: int | None = None, name: str) -> None:
        self.folder = None if folder is None else Path(folder)
        self.limit = limit
        self._name = name
        # Files used since then may be in use by this run. The time of a file may lag behind the clock.
        self._opened = time.time() - 1
        self._unwritable = ""
        self._damaged: dict[Path, int] = {}
        self._evicted = (0, 0)
        self._size = 0

    @property
    def notes(self) -> list[str]:
        """Remarks for readers of the results: damaged files, a folder that is not writable, and its size limit."""
        notes = []
        if self._damaged:
            entries = sum(self._damaged.values())
            notes.append(
                f"{self._name}: {len(self._damaged):,} damaged files ({entries:,} readable keys) were removed and "
                "their content encoded again"
            )
        if self._unwritable:
            notes.append(f"{self._name}: {self._unwritable}; results are not kept for later runs")
        if self._evicted[0]:
            number, size = self._evicted
            notes.append(
                f"{self._name}: removed the least recently used files to stay within {size_text(self.limit or 0)} "
                f"({LIMIT_VARIABLE}): {number:,} ({size_text(size)})"
            )
        if self.limit is not None and self._size > self.limit:
            notes.append(
                f"{self._name}: {size_text(self._size)} remain, over the limit of {size_text(self.limit)} "
                f"({LIMIT_VARIABLE}), because files are in use by this or another run or cannot be removed"
            )
        return notes

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file atomically. After the first failure, no further file is tried."""
        # A full disk stays full, so trying again for each part would cost a sync and a warning each time.
        if self._unwritable:
            return
        try:
            write_bytes(path, content)
        except OSError as error:
            self._unwritable = f"{self.folder} is not writable ({error.strerror or error})"
            logger.warning(f"{self._name}: {self._unwritable}. Results are not kept for later runs.")

    def count_damage(self, path: Path, entries: int, reason: Exception) -> None:
        """Counts a file that cannot be used, and removes it unless the disk or its permissions are at fault."""
        if not self._damaged:
            logger.warning(f"{path} is damaged ({reason}). Its content, and that of other such files, is recomputed.")
        self._damaged[path] = entries
        # A read error may be temporary, for example on a network disk, and the file may be intact and belong to
        # another run.
        if not isinstance(reason, OSError):
            remove(path)

    def trim(self) -> None:
        """Removes files until the folder is within its limit."""
        if self.folder is None or self.limit is None:
            return
        files = [file for place in cache_folders(self.folder) for file in stored_files(place)]
        self._size, number, removed = sum(file.size for file in files), 0, 0
        for file in sorted(files, key=lambda file: file.used):
            # The files are sorted by last use: if one is in use, all that follow are too.
            if self._size <= self.limit or file.used >= self._opened:
                break
            own = remove(file.path)
            if own:
                number, removed = number + 1, removed + file.size
            if own or not os.path.exists(file.path):  # another process removed it first
                self._size -= file.size
        self._evicted = (self._evicted[0] + number, self._evicted[1] + removed)
        if number:
            logger.warning(f"{self.folder} was over {size_text(self.limit)}: {number} old files were removed.")


class Table:
    """Arrays by key, in memory and in the parts of a folder.

    Args:
        columns: Types of the arrays by name. The first has shape `[n, width]`, the others `[n]`.
        folder: Folder of the parts; None to keep everything in memory.
        store: Store that writes the parts and counts damaged ones.
        check: Function that raises ValueError if the first array has invalid values.
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
        # Arrays stay on disk until they are looked up. Only the keys of all parts are in memory.
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
        """Adds entries; with `own`, this process computed them and therefore also writes them."""
        self._take(keys, arrays)
        if own:
            self.write_later(keys, *arrays)

    def write_later(self, keys: Sequence[bytes], *arrays: NDArray[Any]) -> None:
        """Queues entries for the next part, without keeping them in memory after it is written."""
        if self.folder is None or not len(keys):
            return
        self._pending.append((keys, arrays))
        self._waiting += len(keys)
        if self._waiting >= FLUSH_ENTRIES or time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def look_up(self, keys: Sequence[bytes], width: int) -> Arrays:
        """Returns the arrays, with zeros for missing keys, and a mask `[n]` of the keys that an intact part has."""
        shapes = [(len(keys), width), *[(len(keys),)] * (len(self._columns) - 1)]
        arrays = tuple(np.zeros(shape, kind) for shape, kind in zip(shapes, self._columns.values(), strict=True))
        nowhere = (-1, -1)
        places = np.array([self._place.get(key, nowhere) for key in keys], dtype=np.int64).reshape(-1, 2)
        is_known = places[:, 0] >= 0
        for number in np.unique(places[is_known, 0]):
            chosen = np.flatnonzero(places[:, 0] == number)
            part = self._read(int(number), width)
            if part is None:
                is_known[chosen] = False
                continue
            for array, stored in zip(arrays, part, strict=True):
                array[chosen] = stored[places[chosen, 1]]
        return *arrays, is_known

    def read_all(self, width: int) -> list[Arrays]:
        """Reads the arrays of all intact parts."""
        parts = [self._read(number, width) for number in range(len(self._parts))]
        return [part for part in parts if part is not None]

    def flush(self) -> None:
        """Writes the entries added since the last flush as a part."""
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
        """Reads the arrays of a part. If its file is missing or damaged, forgets the part and returns None."""
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
        # The checksum shows that the file is unchanged, not that its values are right: a broken library or GPU may
        # have computed them. Shapes and values are checked for this reason.
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
            # Two processes may have written the same key. The part that is read first provides it.
            self._place.setdefault(key, (len(self._parts) - 1, row))


def checksum(content: bytes) -> str:
    """The hash that names a part with this content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def read_document(path: Path) -> Any:
    """Reads a document. Returns None if it is missing or damaged; a damaged document is removed."""
    try:
        return read_checked(path, "")
    except FileNotFoundError:
        return None
    except ValueError:  # for example a file truncated by a power failure
        remove(path)
        return None


def remove(path: Path) -> bool:
    """Removes a file if possible, and returns whether this process removed it."""
    try:
        path.unlink()
    except OSError:  # another process removed it first, or the folder is read-only
        return False
    return True


def mark_used(path: Path) -> None:
    """Records that a file is used now; does nothing in a read-only store."""
    with suppress(OSError):
        os.utime(path)


def cache_folders(folder: Path) -> list[Path]:
    """The folders of a cache, sorted by name; empty if the cache does not exist or cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if _FOLDER.fullmatch(entry.name) and entry.is_dir())
    return []


def stored_files(folder: Path) -> Iterator[StoredFile]:
    """Yields the parts and documents in a folder; nothing if it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            stored = [entry for entry in entries if _FILE.fullmatch(entry.name)]
    except OSError:
        return
    for entry in stored:
        with suppress(OSError):  # removed by another process
            facts = entry.stat()
            yield StoredFile(Path(entry.path), facts.st_size, facts.st_mtime)


def part_files(folder: Path) -> list[Path]:
    """The parts in a folder, sorted by name; empty if the folder does not exist or cannot be read."""
    return sorted(file.path for file in stored_files(folder) if file.path.suffix == ".safetensors")


def unused_files(folder: Path, *, older_than: float | None = None) -> list[Path]:
    """All files below one of hfcomp's folders; empty if any of them was used in the last `older_than` seconds."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    used = max((path.stat().st_mtime for path in files), default=0.0)
    return [] if older_than is not None and used >= time.time() - older_than else files
