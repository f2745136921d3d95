"""Adds images to a pixel store: one process at a time, in parts that are written completely or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.pixels.store import (
    FORMAT,
    KEY,
    KEYS,
    MANIFEST,
    PIXELS,
    PixelStore,
    check_transform,
    checksum,
    halves,
    is_store,
    read_keys,
    read_manifest,
)
from hfcomp.data.pixels.transform import PixelTransform
from hfcomp.writing import LOCK_FILE, append_bytes, remove_unfinished, try_lock, write_json

PART_BYTES = 256 * 1024**2


class StoreWriter:
    """Context manager that locks a store and adds images to it; after an interruption, finished images are kept.

    If another process is writing, `log` receives a line and the writer waits. Up to `part_bytes` of pixels are held in
    memory.

    Raises:
        ValueError: If the folder is not a store, or the store is damaged or was made by another transform.
        OSError: If the folder cannot be written to.
    """

    def __init__(
        self,
        folder: str | Path,
        transform: PixelTransform,
        *,
        log: Callable[[str], None] = print,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self.folder = Path(folder)
        self._transform, self._log, self._part_bytes = transform, log, part_bytes
        self._facts = transform.facts()
        self._pending: list[NDArray[np.uint8]] = []
        self._records: list[tuple[int, ...]] = []
        self._new: dict[bytes, tuple[int, ...]] = {}

    def __enter__(self) -> StoreWriter:
        if self._is_other_folder() and not (self.folder / LOCK_FILE).exists():  # a locked store may just be starting
            raise self._not_a_store()
        lock = try_lock(self.folder)
        if lock is None:
            self._log(f"{self.folder} is being written by another process; waiting for it to finish")
            lock = try_lock(self.folder, seconds=-1)
        self._lock = lock
        try:
            remove_unfinished(self.folder)
            if self._is_other_folder():
                raise self._not_a_store()
            self._start()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Write also after an error elsewhere, such as a damaged image, to keep hours of decoding.
        try:
            if kind is None or not issubclass(kind, OSError):  # for example, a full disk
                self.flush()
        finally:
            self._lock.release()

    def add(self, keys: list[bytes], pixels: NDArray[np.uint8] | None, *, tiny: bool) -> bool:
        """Adds a uint8 image `[3, H, W]`, or further keys of an existing one; returns whether the image is new."""
        known = [self._record(key) for key in keys]
        record = next((existing for existing in known if existing is not None), None)
        is_new = record is None
        # An image contained in several files is stored once, under the keys of all of them.
        if record is None:
            record = (self.images, int(tiny), checksum(pixels))
            self.images += 1
            self._pending.append(pixels)
        for key, existing in zip(keys, known, strict=True):
            if existing is None and key not in self._new:
                self._new[key] = record
                self._records.append((*halves(key), *record))
        if sum(image.nbytes for image in self._pending[-1:]) * len(self._pending) >= self._part_bytes:
            self.flush()
        return is_new

    def flush(self) -> None:
        if not self._records:
            return
        records = np.array(self._records, dtype=KEY).tobytes()
        if self._pending:
            pixels = np.stack(self._pending)
            append_bytes(self.folder / PIXELS, pixels, at=self._written * pixels[0].nbytes)
        append_bytes(self.folder / KEYS, records, at=self._keys * KEY.itemsize)
        self._digest.update(records)
        self._keys += len(self._records)
        self._written = self.images
        self._pending, self._records = [], []
        # Write the manifest last: until it counts them, readers and the next build ignore appended images.
        self._write_manifest()

    def _is_other_folder(self) -> bool:
        return self.folder.is_dir() and not is_store(self.folder) and any(self.folder.glob("[!.]*"))

    def _not_a_store(self) -> ValueError:
        return ValueError(f"{self.folder} is not empty and has no {MANIFEST}. Choose another folder.")

    def _start(self) -> None:
        self.images = self._written = self._keys = 0
        self._digest = hashlib.sha256()
        if is_store(self.folder):
            manifest = read_manifest(self.folder)
            check_transform(self.folder, manifest["transform"], self._facts)
            self._digest.update(read_keys(self.folder, manifest).tobytes())
            self.images = self._written = manifest["images"]
            self._keys = manifest["keys"]
        else:
            self._write_manifest()
        self.store = PixelStore(self.folder, self._transform)

    def _record(self, key: bytes) -> tuple[int, ...] | None:
        if key in self._new:
            return self._new[key]
        place = self.store.find(key)
        return None if place < 0 else self.store.record(place)

    def _write_manifest(self) -> None:
        content: dict[str, Any] = {
            "format": FORMAT,
            "transform": self._facts,
            "images": self._written,
            "keys": self._keys,
            "keys_sha256": self._digest.hexdigest(),
        }
        write_json(self.folder / MANIFEST, content)
