"""Hashes of images and keys of files, kept on disk from run to run."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from huggingface_hub.constants import HF_HOME
from numpy.typing import NDArray

from hfcomp.writing import write_bytes

logger = logging.getLogger(__name__)

SIDE, GRID = 16, 8
VERSION = 2
KEY_BYTES = 16
FLUSH_IMAGES, FLUSH_SECONDS = 8192, 30.0
RECORD = np.dtype(
    [
        ("key", f"V{KEY_BYTES}"),
        ("pixels", f"V{KEY_BYTES}"),
        ("hash", "<u8", (SIDE * SIDE // 64,)),
        ("grid", "u1", (GRID * GRID, 3)),
    ]
)
# A file by its path, size and time of change, and the key of its content.
FILE = np.dtype([("file", f"V{KEY_BYTES}"), ("key", f"V{KEY_BYTES}")])


def default_folder() -> Path:
    """Where hashes are kept: `$HF_HOME/hfcomp/image_hashes`."""
    return Path(HF_HOME) / "hfcomp" / "image_hashes"


def stored_files(*, older_than: float | None = None) -> list[Path]:
    """The files of `default_folder`; none where the newest is younger than some seconds."""
    found = [path for path in default_folder().rglob("*") if path.is_file()]
    used = max((path.stat().st_mtime for path in found), default=0.0)
    return [] if older_than is not None and used >= time.time() - older_than else found


def digest(content: Any) -> bytes:
    """A key of `KEY_BYTES` bytes for some bytes."""
    return hashlib.sha256(content).digest()[:KEY_BYTES]


class HashStore:
    """Records by their first field, such as hashes of images by the digest of a file, in memory and in a folder.

    A file in the folder is called by the digest of its content: one that was damaged is not read, and its images are
    hashed again. It is written under another name and then renamed, so that a killed process leaves none half-written.

    Args:
        folder: `None` keeps them in memory alone.
        dtype: of a record.
    """

    def __init__(self, folder: Path | None = None, dtype: np.dtype[Any] = RECORD) -> None:
        self.folder = None if folder is None else folder / (_version() if dtype == RECORD else f"files-v{VERSION}")
        self._by = dtype.names[0]
        self._records: dict[bytes, NDArray[Any]] = {}
        self._pending: list[NDArray[Any]] = []
        self._flushed = time.monotonic()
        self._lock = threading.Lock()
        for path in sorted(self.folder.glob("*.npy")) if self.folder else ():
            for record in _read(path, dtype):
                self._records[record[self._by].tobytes()] = record

    def get(self, key: bytes | None) -> NDArray[Any] | None:
        """The record of a key, if it is known."""
        return None if key is None else self._records.get(key)

    def add(self, record: NDArray[Any]) -> None:
        """Adds a record; threads may."""
        with self._lock:
            self._records[record[self._by].tobytes()] = record
            self._pending.append(record)
            if len(self._pending) >= FLUSH_IMAGES or time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._write()

    def flush(self) -> None:
        """Writes new hashes; a full or read-only disk is reported and ignored."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        self._flushed = time.monotonic()
        if self.folder is None or not self._pending:
            return
        content = np.stack(self._pending)
        try:
            write_bytes(self.folder / f"{digest(content.tobytes()).hex()}.npy", content.tobytes())
        except OSError as error:
            logger.warning(f"image hashes cannot be stored for later runs: {error}")
            self.folder = None
        self._pending = []


def _version() -> str:
    from importlib.metadata import version  # of the package: ImageHash itself takes time to import

    return f"v{VERSION}-imagehash-{version('imagehash')}-pillow-{PIL.__version__}"


def _read(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        logger.warning(f"{path} cannot be read; its images are hashed again: {error}")
        return np.zeros(0, dtype=dtype)
    if digest(content).hex() != path.stem:
        logger.warning(f"{path} is damaged; its images are hashed again")
        path.unlink(missing_ok=True)
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(content, dtype=dtype)
