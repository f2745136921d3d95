"""Embeddings that were computed before, by content: in memory, and with a folder on disk for later runs.

On disk, every model and preprocessing has a folder, which holds `fingerprint.json` and any number of
`*.safetensors`, each with the keys, vectors and flags of some items. Files are written whole under another name and
then renamed, and never changed afterwards: a killed process leaves nothing half-written under a name that is read, and
two processes that encode the same things at once write the same vectors twice, no more.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.constants import HF_HOME
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

logger = logging.getLogger(__name__)

KEY_BYTES = 16
FLUSH_VECTORS = 8192
FLUSH_SECONDS = 30.0


def default_folder() -> Path:
    """Where the commands keep embeddings: `$HF_HOME/hfcomp/embeddings`."""
    return Path(HF_HOME) / "hfcomp" / "embeddings"


class EmbeddingCache:
    """Embeddings of several models, by content.

    Args:
        folder: where they are kept for later runs; without one they are kept in memory while this object lives.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._stores: dict[str, VectorStore] = {}

    def store(self, fingerprint: Mapping[str, Any]) -> VectorStore:
        """The vectors of one model and preprocessing.

        Args:
            fingerprint: everything that vectors depend on beside the content, as JSON.
        """
        text, name = _text(fingerprint), _name(fingerprint)
        if name not in self._stores:
            folder = None if self.folder is None else self.folder / name
            if folder is not None and not (folder / "fingerprint.json").is_file():
                folder.mkdir(parents=True, exist_ok=True)
                _write_whole(folder / "fingerprint.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))
            self._stores[name] = VectorStore(folder)
        return self._stores[name]

    def release(self, fingerprint: Mapping[str, Any]) -> None:
        """Forgets the vectors of one model and preprocessing, if they are on disk."""
        if self.folder is not None:
            self._stores.pop(_name(fingerprint), None)


def _name(fingerprint: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(fingerprint).encode()).hexdigest()[:16]


def _text(fingerprint: Mapping[str, Any]) -> str:
    return json.dumps(fingerprint, sort_keys=True, ensure_ascii=False)


class VectorStore:
    """Vectors and flags by key; see the module's words on files.

    Args:
        folder: of the files; `None` keeps everything in memory.

    Attributes:
        unreadable: files that could not be read, which count as absent.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.unreadable: list[Path] = []
        # vectors on disk stay there until they are looked up
        self._parts: list[tuple[NDArray[np.float32] | Path, NDArray[np.bool_]]] = []
        self._place: dict[bytes, tuple[int, int]] = {}
        self._pending: list[tuple[list[bytes], NDArray[np.float32], NDArray[np.bool_]]] = []
        self._flushed = time.monotonic()
        for path in sorted(folder.glob("*.safetensors")) if folder else ():
            self._read(path)

    def __contains__(self, key: bytes) -> bool:
        return key in self._place

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32], flags: NDArray[np.bool_], *, own: bool) -> None:
        """Adds vectors.

        Args:
            keys: `n` of `KEY_BYTES` bytes.
            vectors: `[n, D]`.
            flags: `[n]`.
            own: whether this process computed them, and so is the one to write them down.
        """
        self._take(keys, vectors, flags)
        if own and self.folder is not None and len(keys):
            self._pending.append((list(keys), vectors, flags))
            waiting = sum(len(part[0]) for part in self._pending)
            if waiting >= FLUSH_VECTORS or time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()

    def look_up(self, keys: Sequence[bytes], width: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Vectors `[n, width]` and flags `[n]` of keys that are there.

        Raises:
            KeyError: for one that is not.
        """
        vectors, flags = np.empty((len(keys), width), dtype=np.float32), np.empty(len(keys), dtype=bool)
        places = np.array([self._place[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        for number in np.unique(places[:, 0]):
            chosen = np.flatnonzero(places[:, 0] == number)
            part, part_flags = self._parts[number]
            part_vectors = load_file(part)["vectors"] if isinstance(part, Path) else part
            vectors[chosen], flags[chosen] = part_vectors[places[chosen, 1]], part_flags[places[chosen, 1]]
        return vectors, flags

    def flush(self) -> None:
        """Writes what has been added since the last time."""
        self._flushed = time.monotonic()
        if not self._pending or self.folder is None:
            return
        keys = np.frombuffer(b"".join(key for part in self._pending for key in part[0]), dtype=np.uint8)
        tensors = {
            "keys": keys.reshape(-1, KEY_BYTES),
            "vectors": np.concatenate([part[1] for part in self._pending]),
            "flags": np.concatenate([part[2] for part in self._pending]),
        }
        _write_whole(self.folder / f"{uuid.uuid4().hex}.safetensors", lambda path: save_file(tensors, path))
        self._pending = []

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                content, flags = file.get_tensor("keys").tobytes(), file.get_tensor("flags").astype(bool)
        except (OSError, SafetensorError) as error:
            logger.warning(f"{path} cannot be read and counts as absent: {error}")
            self.unreadable.append(path)
            return
        self._take([content[at : at + KEY_BYTES] for at in range(0, len(content), KEY_BYTES)], path, flags)

    def _take(self, keys: Sequence[bytes], vectors: NDArray[np.float32] | Path, flags: NDArray[np.bool_]) -> None:
        number = len(self._parts)
        self._parts.append((vectors, flags))
        for row, key in enumerate(keys):
            self._place.setdefault(key, (number, row))


def _write_whole(path: Path, write: Any) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    write(partial)
    os.replace(partial, path)
