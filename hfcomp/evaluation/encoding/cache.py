"""Cache of computed embeddings by content, in memory and optionally in a folder on disk for later runs.

On disk, every combination of model and preprocessing has a folder with `fingerprint.json` and parts (see
`hfcomp.store`), which contain keys, vectors and flags of items. Whenever vectors are read, their shapes are checked,
and that they are finite and, except for scores of pairs, of length 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from hfcomp.reading import nearest
from hfcomp.store import (
    DAY,
    NEIGHBORS,
    Store,
    StoredFile,
    Table,
    cache_folder,
    cache_folders,
    default_limit,
    mark_used,
    parse_size,
    stored_files,
)
from hfcomp.writing import remove_unfinished

FINGERPRINT = "fingerprint.json"
LENGTH_TOLERANCE = 1e-3  # vectors normalized in fp32 are off by at most 1e-6

VECTORS = {"vectors": np.float32, "flags": np.bool_}
"""Columns of a table of vectors `[n, D]` with one flag each."""


class EmbeddingCache(Store):
    """A cache of the embeddings of several models, by content.

    Args:
        folder: Folder that keeps them for later runs. Without one, they are kept in memory while this object lives.
        limit: Maximum size of the folder in bytes; by default `$HFCOMP_CACHE_LIMIT`, else 20 GB. Beyond it, the least
            recently used files are removed, but never one that was used since this object was created.

    Raises:
        ValueError: If `$HFCOMP_CACHE_LIMIT` is not a size.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        # A cache in memory ends with this object, so only a cache on disk has a limit.
        limit = default_limit() if limit is None and folder is not None else limit
        super().__init__(folder, limit=limit, name="embedding cache")
        self._stores: dict[str, Table] = {}

    def store(self, fingerprint: Mapping[str, Any], model: str = "", *, unit: bool = True) -> Table:
        """Opens the table of vectors for one model and preprocessing.

        Args:
            fingerprint: Everything that vectors depend on in addition to the content, as JSON.
            model: Name of the model, for `hfcomp cache`.
            unit: Whether to check that vectors have length 1. Scores of pairs are vectors of any length.
        """
        name = _name(fingerprint)
        if name not in self._stores:
            folder = None if self.folder is None else self.folder / name
            check = _check_unit if unit else _check_finite
            self._stores[name] = Table(VECTORS, folder, store=self, check=check)
            if folder is not None:
                # Another process may be writing now, so only old partial files are removed.
                remove_unfinished(folder, older_than=DAY)
                self._describe(folder / FINGERPRINT, _text({"model": model, **fingerprint}).encode())
        return self._stores[name]

    def release(self, fingerprint: Mapping[str, Any]) -> None:
        """Frees the memory of the vectors for one model and preprocessing, if they are on disk."""
        # Without a folder, the vectors exist only in memory and would be lost.
        if self.folder is not None:
            self._stores.pop(_name(fingerprint), None)

    def _describe(self, path: Path, content: bytes) -> None:
        """Writes a fingerprint, or marks an unchanged one as used."""
        # An unchanged fingerprint only gets a new time stamp, which `hfcomp cache` shows as the last use.
        with suppress(OSError):
            if path.read_bytes() == content:
                return mark_used(path)
        self.write(path, content)


def open_cache(cache: str | Path | bool = True, limit: str | None = None) -> EmbeddingCache:
    """Opens the cache that a user requests: whether on disk, or its folder, and a size limit such as `5GB`."""
    size = None if limit is None else parse_size(limit, "cache_limit")
    folder = (cache_folder("embeddings") if cache else None) if isinstance(cache, bool) else Path(cache)
    return EmbeddingCache(folder, limit=size)


def _name(fingerprint: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(fingerprint).encode()).hexdigest()[:16]


def _text(fingerprint: Mapping[str, Any]) -> str:
    # Keys are sorted, so equal facts have the same name in any order.
    return json.dumps(fingerprint, sort_keys=True, ensure_ascii=False)


def _check_unit(vectors: NDArray[np.float32]) -> None:
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    if not (np.abs(lengths - 1) <= LENGTH_TOLERANCE).all():  # also false for NaN
        raise ValueError("vectors that are not finite or not of length 1")


def _check_finite(scores: NDArray[np.float32]) -> None:
    if not np.isfinite(scores).all():
        raise ValueError("scores that are not finite")


@dataclass(frozen=True)
class CachedModel:
    """The cache entries of one model and preprocessing.

    Attributes:
        folder: Folder with the files.
        model: Name of the model; `unknown` from an older hfcomp, or if `fingerprint.json` is damaged.
        kind: `images`, `texts`, `pairs` of both, or `neighbors` for stored searches.
        versions: Versions of the packages that computed the entries.
        files: Parts, or documents of searches.
        used: Time of the last use, in seconds since 1970.
    """

    folder: Path
    model: str
    kind: str
    versions: dict[str, str]
    files: list[StoredFile]
    used: float

    @property
    def size(self) -> int:
        """Size in bytes."""
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> int:
        """Number of images, texts or pairs; an unreadable file counts 0."""
        return sum(_num_entries(file.path) for file in self.files)


def cached_models(folder: Path) -> list[CachedModel]:
    """Lists the models in a cache, the last used first; none if the folder does not exist or cannot be read."""
    models = []
    for place in cache_folders(folder):
        files = list(stored_files(place))
        facts = _facts(place / FINGERPRINT)
        neighbors = place.name == NEIGHBORS
        versions = {name: str(facts[name]) for name in ("torch", "transformers", "pillow") if name in facts}
        kind = NEIGHBORS if neighbors else _kind(facts)
        used = max([file.used for file in files], default=0.0)
        with suppress(OSError):
            used = max(used, (place / FINGERPRINT).stat().st_mtime)
        model = "of all models" if neighbors else str(facts.get("model", "unknown"))
        models.append(CachedModel(place, model, kind, versions, files, used))
    return sorted(models, key=lambda model: -model.used)


def _kind(facts: Mapping[str, Any]) -> str:
    if "scoring" in facts:
        return "pairs"
    return "images" if "pixels" in facts else "texts" if facts else "unknown"


def select_models(folder: Path, *, model: str | None = None, older_than: float | None = None) -> list[CachedModel]:
    """Selects the entries of one model (named as in `hfcomp cache`) or of all, unused for a number of days."""
    if older_than is not None and not older_than >= 0:
        raise ValueError(f"--older_than: found {older_than}, expected a number of days, 0 or more.")
    models = cached_models(folder)
    names = sorted({entry.model for entry in models})
    if model is not None and model not in names:
        known = f"it has {', '.join(names)}.{nearest(model, names)}" if names else "it is empty."
        raise ValueError(f"--model: {folder} has no entries for {model!r}; {known}")
    latest = math.inf if older_than is None else time.time() - older_than * DAY
    return [entry for entry in models if model in (None, entry.model) and entry.used < latest]


def clear(models: Iterable[CachedModel]) -> None:
    """Removes all files of some models.

    Raises:
        OSError: If a file cannot be removed.
    """
    for model in models:
        for file in model.files:
            file.path.unlink(missing_ok=True)
        remove_unfinished(model.folder)
        (model.folder / FINGERPRINT).unlink(missing_ok=True)
        with suppress(OSError):  # the folder may contain a user's own file
            model.folder.rmdir()


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _num_entries(path: Path) -> int:
    if path.suffix != ".safetensors":
        return 1
    try:
        with safe_open(path, framework="numpy") as file:
            return int(file.get_slice("keys").get_shape()[0])
    except (OSError, SafetensorError, IndexError):
        return 0
