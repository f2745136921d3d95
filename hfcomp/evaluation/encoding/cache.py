"""Embeddings that were computed before, by content: in memory, and with a folder on disk for later runs.

On disk, every model and preprocessing has a folder, which holds `fingerprint.json` and any number of
`*.safetensors`, each with the keys, vectors and flags of some items. Files are written whole under another name and
then renamed, and never changed afterwards: a killed process leaves nothing half-written under a name that is read, and
two processes that encode the same things at once write the same vectors twice, no more.

The name of a file is the hash of its content. It is checked whenever vectors are read, and so are their shapes, that
they are finite and, but for scores of pairs, of length 1: a file that fails is removed, and what it held is encoded
again. A folder that cannot be written to costs no result: embeddings are then kept in memory. Both are counted in
`EmbeddingCache.notes`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from hfcomp.evaluation.cells import KEY_BYTES
from hfcomp.evaluation.encoding.cache_files import (
    DAY,
    FINGERPRINT,
    LIMIT_VARIABLE,
    default_folder,
    default_limit,
    evict,
    holds,
    mark_used,
    parse_size,
    remove,
    size_text,
    vector_files,
)
from hfcomp.writing import remove_unfinished, write_bytes

logger = logging.getLogger(__name__)

FLUSH_VECTORS = 8192
FLUSH_SECONDS = 30.0
LENGTH_TOLERANCE = 1e-3  # vectors normalised in fp32 are off by at most 1e-6

Vectors = NDArray[np.float32]
Flags = NDArray[np.bool_]


class EmbeddingCache:
    """Embeddings of several models, by content.

    Args:
        folder: where they are kept for later runs; without one they are kept in memory while this object lives.
        limit: bytes that the folder may take; by default `$HFCOMP_CACHE_LIMIT`, else 20 GB. Beyond it, files that were
            not used for longest are removed, never one that was used since this object was made.

    Raises:
        ValueError: when `$HFCOMP_CACHE_LIMIT` is not a size.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.limit = default_limit() if limit is None and folder is not None else limit or 0
        self._stores: dict[str, VectorStore] = {}
        self._opened = time.time() - 1  # a file's time may lag behind the clock
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
                f"embedding cache: {len(self._damaged):,} damaged files ({entries:,} readable keys) were removed and "
                "their content encoded again"
            )
        if self._unwritable:
            found.append(f"embedding cache: {self._unwritable}; embeddings are not kept for later runs")
        if self._evicted[0]:
            number, size = self._evicted
            found.append(
                f"embedding cache: {number:,} files ({size_text(size)}) (least recently used) were removed to stay "
                f"within {size_text(self.limit)} ({LIMIT_VARIABLE})"
            )
        if self._size > self.limit:
            found.append(
                f"embedding cache: {size_text(self._size)} remain, over the limit of {size_text(self.limit)} "
                f"({LIMIT_VARIABLE}): files in use by this or another run, or that cannot be removed"
            )
        return found

    def store(self, fingerprint: Mapping[str, Any], model: str = "", *, unit: bool = True) -> VectorStore:
        """The vectors of one model and preprocessing.

        Args:
            fingerprint: everything that vectors depend on besides the content, as JSON.
            model: its name, for `hfcomp cache`.
            unit: whether vectors are of length 1, which is then checked; scores of pairs are vectors of any length.
        """
        name = _name(fingerprint)
        if name not in self._stores:
            store = VectorStore(None if self.folder is None else self.folder / name, cache=self, unit=unit)
            if store.folder is not None:
                remove_unfinished(store.folder, older_than=DAY)
                self._describe(store.folder / FINGERPRINT, _text({"model": model, **fingerprint}).encode())
            self._stores[name] = store
        return self._stores[name]

    def release(self, fingerprint: Mapping[str, Any]) -> None:
        """Forgets the vectors of one model and preprocessing, if they are on disk."""
        if self.folder is not None:
            self._stores.pop(_name(fingerprint), None)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file, whole or not at all. After one that cannot be written no other is tried."""
        if self._unwritable:
            return
        try:
            write_bytes(path, content)
        except OSError as error:
            self._unwritable = f"{self.folder} cannot be written to ({error.strerror or error})"
            logger.warning(f"{self._unwritable}: embeddings are kept in memory only.")

    def _describe(self, path: Path, content: bytes) -> None:
        """Writes a fingerprint, or marks the same one as used."""
        if holds(path, content):
            mark_used(path)
        else:
            self.write(path, content)

    def damaged(self, path: Path, entries: int, reason: Exception) -> None:
        """Counts a file that cannot be used, and removes it unless the disk or its permissions are at fault."""
        if not self._damaged:
            logger.warning(f"{path} is damaged ({reason}): its content is encoded again, as for further such files.")
        self._damaged[path] = entries
        if not isinstance(reason, OSError):
            remove(path)

    def trim(self) -> None:
        """Removes files until the folder is within its limit."""
        if self.folder is None:
            return
        number, size, self._size = evict(self.folder, self.limit, since=self._opened)
        self._evicted = (self._evicted[0] + number, self._evicted[1] + size)
        if number:
            logger.warning(f"{self.folder} was over {size_text(self.limit)}: {number} old files were removed.")


def open_cache(cache: str | Path | bool, limit: str | None) -> EmbeddingCache:
    """The cache that a user asks for: whether there is one on disk, or its folder, and its size such as `5GB`."""
    size = None if limit is None else parse_size(limit, "cache_limit")
    folder = (default_folder() if cache else None) if isinstance(cache, bool) else Path(cache)
    return EmbeddingCache(folder, limit=size)


def _name(fingerprint: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(fingerprint).encode()).hexdigest()[:16]


def _text(fingerprint: Mapping[str, Any]) -> str:
    return json.dumps(fingerprint, sort_keys=True, ensure_ascii=False)


class VectorStore:
    """Vectors and flags by key; see the module's words on files.

    Args:
        folder: of the files; `None` keeps everything in memory.
        cache: writes files, and counts what is wrong with them.
        unit: whether vectors are of length 1.
    """

    def __init__(self, folder: Path | None = None, *, cache: EmbeddingCache | None = None, unit: bool = True) -> None:
        self._unit = unit
        self.folder = folder
        self._cache = cache or EmbeddingCache(folder)
        # vectors on disk stay there until they are looked up
        self._parts: list[tuple[Vectors, Flags] | Path] = []
        self._place: dict[bytes, tuple[int, int]] = {}
        self._pending: list[tuple[list[bytes], Vectors, Flags]] = []
        self._flushed = time.monotonic()
        for path in vector_files(folder) if folder else ():
            self._read_keys(path)

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    def add(self, keys: Sequence[bytes], vectors: Vectors, flags: Flags, *, own: bool) -> None:
        """Adds vectors.

        Args:
            keys: `n` of `KEY_BYTES` bytes.
            vectors: `[n, D]`.
            flags: `[n]`.
            own: whether this process computed them, and so is the one to write them down.
        """
        self._take(keys, (vectors, flags))
        if own and self.folder is not None and len(keys):
            self._pending.append((list(keys), vectors, flags))
            waiting = sum(len(part[0]) for part in self._pending)
            if waiting >= FLUSH_VECTORS or time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()

    def look_up(self, keys: Sequence[bytes], width: int) -> tuple[Vectors, Flags, Flags]:
        """Vectors `[n, width]`, flags `[n]`, and which keys are there `[n]`: with a file that proves whole."""
        vectors, flags = np.zeros((len(keys), width), dtype=np.float32), np.zeros(len(keys), dtype=bool)
        nowhere = (-1, -1)
        places = np.array([self._place.get(key, nowhere) for key in keys], dtype=np.int64).reshape(-1, 2)
        there = places[:, 0] >= 0
        for number in np.unique(places[there, 0]):
            chosen = np.flatnonzero(places[:, 0] == number)
            part = self._whole(int(number), width)
            if part is None:
                there[chosen] = False
            else:
                vectors[chosen], flags[chosen] = part[0][places[chosen, 1]], part[1][places[chosen, 1]]
        return vectors, flags, there

    def flush(self) -> None:
        """Writes what has been added since the last time."""
        self._flushed = time.monotonic()
        pending, self._pending = self._pending, []
        if not pending or self.folder is None:
            return
        keys = np.frombuffer(b"".join(key for part in pending for key in part[0]), dtype=np.uint8)
        tensors = {
            "keys": keys.reshape(-1, KEY_BYTES),
            "vectors": np.concatenate([part[1] for part in pending]),
            "flags": np.concatenate([part[2] for part in pending]),
        }
        content = save(tensors)
        self._cache.write(self.folder / f"{_checksum(content)}.safetensors", content)
        self._cache.trim()

    def _read_keys(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                keys = file.get_tensor("keys")
            if keys.dtype != np.uint8 or keys.ndim != 2 or keys.shape[1] != KEY_BYTES:
                raise ValueError(f"keys of shape {list(keys.shape)}")
        except FileNotFoundError:  # removed by another process
            return
        except (OSError, SafetensorError, ValueError) as error:
            self._cache.damaged(path, 0, error)
            return
        content = keys.tobytes()
        self._take([content[at : at + KEY_BYTES] for at in range(0, len(content), KEY_BYTES)], path)

    def _whole(self, number: int, width: int) -> tuple[Vectors, Flags] | None:
        """Vectors and flags of a part; `None`, and the part is forgotten, where its file is not what was written."""
        part = self._parts[number]
        if not isinstance(part, Path):
            return part
        try:
            found = _read_part(part, width, self._unit)
        except FileNotFoundError:  # removed by another process
            pass
        except (OSError, SafetensorError, ValueError) as error:
            self._cache.damaged(part, sum(own == number for own, _ in self._place.values()), error)
        else:
            mark_used(part)
            return found
        self._place = {key: place for key, place in self._place.items() if place[0] != number}
        return None

    def _take(self, keys: Sequence[bytes], part: tuple[Vectors, Flags] | Path) -> None:
        self._parts.append(part)
        for row, key in enumerate(keys):
            # two processes may have written the same key: the first file that is read serves it
            self._place.setdefault(key, (len(self._parts) - 1, row))


def _checksum(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _read_part(path: Path, width: int, unit: bool) -> tuple[Vectors, Flags]:
    """Vectors and flags of a file.

    Raises:
        ValueError: if its content or its vectors are damaged.
    """
    content = path.read_bytes()
    if _checksum(content) != path.stem:
        raise ValueError("its content does not match the checksum in its name")
    tensors = load(content)
    keys, vectors, flags = (tensors.get(name, np.empty(0)) for name in ("keys", "vectors", "flags"))
    if vectors.dtype != np.float32 or vectors.shape != (len(keys), width) or flags.shape != (len(keys),):
        raise ValueError(f"vectors of shape {list(vectors.shape)} for {len(keys)} keys, expected {width} columns")
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    if unit and not (np.abs(lengths - 1) <= LENGTH_TOLERANCE).all():  # NaN is not within it either
        raise ValueError("vectors that are not finite or not of length 1")
    if not np.isfinite(vectors).all():
        raise ValueError("scores that are not finite")
    return vectors, flags.astype(bool)
