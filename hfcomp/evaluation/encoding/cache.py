"""Embeddings that were computed before, by content: in memory, and with a folder on disk for later runs.

On disk, every model and preprocessing has a folder, which holds `fingerprint.json` and parts (see `hfcomp.store`) with
the keys, vectors and flags of some items. The shapes of vectors are checked whenever they are read, and that they are
finite and, except for scores of pairs, of length 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hfcomp.reading import nearest
from hfcomp.store import (
    DAY,
    FLUSH_ENTRIES,
    FLUSH_SECONDS,
    KEY_BYTES,
    NEIGHBOURS,
    Store,
    StoredFile,
    cache_folder,
    cache_folders,
    default_limit,
    mark_used,
    parse_size,
    part_files,
    stored_files,
)
from hfcomp.writing import remove_unfinished

FINGERPRINT = "fingerprint.json"
LENGTH_TOLERANCE = 1e-3  # vectors normalised in fp32 are off by at most 1e-6

Vectors = NDArray[np.float32]
Flags = NDArray[np.bool_]


class EmbeddingCache(Store):
    """Embeddings of several models, by content.

    Args:
        folder: Where they are kept for later runs; without one they are kept in memory while this object lives.
        limit: Bytes that the folder may take; by default `$HFCOMP_CACHE_LIMIT`, else 20 GB. Beyond it, files that were
            not used for longest are removed, never one that was used since this object was made.

    Raises:
        ValueError: when `$HFCOMP_CACHE_LIMIT` is not a size.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        limit = default_limit() if limit is None and folder is not None else limit
        super().__init__(folder, limit=limit, name="embedding cache")
        self._stores: dict[str, VectorStore] = {}

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

    def _describe(self, path: Path, content: bytes) -> None:
        """Writes a fingerprint, or marks the same one as used."""
        with suppress(OSError):
            if path.read_bytes() == content:
                return mark_used(path)
        self.write(path, content)


def open_cache(cache: str | Path | bool = True, limit: str | None = None) -> EmbeddingCache:
    """The cache that a user asks for: whether there is one on disk, or its folder, and its size such as `5GB`."""
    size = None if limit is None else parse_size(limit, "cache_limit")
    folder = (cache_folder("embeddings") if cache else None) if isinstance(cache, bool) else Path(cache)
    return EmbeddingCache(folder, limit=size)


def _name(fingerprint: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(fingerprint).encode()).hexdigest()[:16]


def _text(fingerprint: Mapping[str, Any]) -> str:
    return json.dumps(fingerprint, sort_keys=True, ensure_ascii=False)


class VectorStore:
    """Vectors and flags by key; without a `folder`, in memory only.

    Args:
        folder: of the files.
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
        for path in part_files(folder) if folder else ():
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
            if waiting >= FLUSH_ENTRIES or time.monotonic() - self._flushed > FLUSH_SECONDS:
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
        self._cache.write_part(self.folder, tensors)
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
            self._cache.count_damage(path, 0, error)
            return
        content = keys.tobytes()
        self._take([content[at : at + KEY_BYTES] for at in range(0, len(content), KEY_BYTES)], path)

    def _whole(self, number: int, width: int) -> tuple[Vectors, Flags] | None:
        """Vectors and flags of a part; `None`, and the part is forgotten, where its file is not what was written."""
        part = self._parts[number]
        if not isinstance(part, Path):
            return part

        def entries() -> int:
            return sum(own == number for own, _ in self._place.values())

        found = self._cache.read_part(part, partial(_checked, width=width, unit=self._unit), entries)
        if found is None:
            self._place = {key: place for key, place in self._place.items() if place[0] != number}
        return found

    def _take(self, keys: Sequence[bytes], part: tuple[Vectors, Flags] | Path) -> None:
        self._parts.append(part)
        for row, key in enumerate(keys):
            # two processes may have written the same key: the first file that is read serves it
            self._place.setdefault(key, (len(self._parts) - 1, row))


def _checked(tensors: Mapping[str, NDArray[Any]], width: int, unit: bool) -> tuple[Vectors, Flags]:
    """Vectors and flags of a part.

    Raises:
        ValueError: if they are damaged.
    """
    # Beside the checksum of the file, since a GPU or a broken library may have made wrong vectors whole.
    keys, vectors, flags = (tensors.get(name, np.empty(0)) for name in ("keys", "vectors", "flags"))
    if vectors.dtype != np.float32 or vectors.shape != (len(keys), width) or flags.shape != (len(keys),):
        raise ValueError(f"vectors of shape {list(vectors.shape)} for {len(keys)} keys, expected {width} columns")
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    if unit and not (np.abs(lengths - 1) <= LENGTH_TOLERANCE).all():  # NaN is not within it either
        raise ValueError("vectors that are not finite or not of length 1")
    if not np.isfinite(vectors).all():
        raise ValueError("scores that are not finite")
    return vectors, flags.astype(bool)


@dataclass(frozen=True)
class CachedModel:
    """What the cache holds of one model and preprocessing.

    Attributes:
        folder: With the files.
        model: Name of the model; `unknown` from an older hfcomp, or if `fingerprint.json` is damaged.
        kind: `images`, `texts`, `pairs` of both, or `neighbours` for stored searches.
        versions: Of the packages that computed it.
        files: Parts, or documents of searches.
        used: When it was last used, in seconds since 1970.
    """

    folder: Path
    model: str
    kind: str
    versions: dict[str, str]
    files: list[StoredFile]
    used: float

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Images, texts or pairs; a file that cannot be read counts none."""
        return sum(_entries(file.path) for file in self.files)


def cached_models(folder: Path) -> list[CachedModel]:
    """What a cache holds, the last used first; nothing for a folder that does not exist or cannot be read."""
    found = []
    for place in cache_folders(folder):
        files = list(stored_files(place))
        facts = _facts(place / FINGERPRINT)
        neighbours = place.name == NEIGHBOURS
        versions = {name: str(facts[name]) for name in ("torch", "transformers", "pillow") if name in facts}
        kind = NEIGHBOURS if neighbours else _kind(facts)
        used = max([file.used for file in files], default=0.0)
        with suppress(OSError):
            used = max(used, (place / FINGERPRINT).stat().st_mtime)
        model = "of all models" if neighbours else str(facts.get("model", "unknown"))
        found.append(CachedModel(place, model, kind, versions, files, used))
    return sorted(found, key=lambda one: -one.used)


def _kind(facts: Mapping[str, Any]) -> str:
    if "scoring" in facts:
        return "pairs"
    return "images" if "pixels" in facts else "texts" if facts else "unknown"


def chosen_models(folder: Path, *, model: str | None = None, older_than: float | None = None) -> list[CachedModel]:
    """What a cache holds of one model (as `hfcomp cache` shows it) or of all, and was not used for some days."""
    if older_than is not None and not older_than >= 0:
        raise ValueError(f"--older_than: found {older_than}, expected a number of days, 0 or more.")
    found = cached_models(folder)
    names = sorted({one.model for one in found})
    if model is not None and model not in names:
        known = f"it has {', '.join(names)}.{nearest(model, names)}" if names else "it is empty."
        raise ValueError(f"--model: {folder} has no entries of {model!r}; {known}")
    latest = math.inf if older_than is None else time.time() - older_than * DAY
    return [one for one in found if model in (None, one.model) and one.used < latest]


def clear(models: Iterable[CachedModel]) -> None:
    """Removes all files of some models.

    Raises:
        OSError: for a file that cannot be removed.
    """
    for model in models:
        for file in model.files:
            file.path.unlink(missing_ok=True)
        remove_unfinished(model.folder)
        (model.folder / FINGERPRINT).unlink(missing_ok=True)
        with suppress(OSError):  # it holds a user's own file
            model.folder.rmdir()


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _entries(path: Path) -> int:
    if path.suffix != ".safetensors":
        return 1
    try:
        with safe_open(path, framework="numpy") as file:
            return int(file.get_slice("keys").get_shape()[0])
    except (OSError, SafetensorError, IndexError):
        return 0
