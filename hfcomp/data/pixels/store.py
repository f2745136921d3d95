"""Pixels that were decoded and resized once, in a memory-mapped file that any number of processes read.

A folder holds three files. `pixels.bin` has the images, uint8 `[3, H, W]` each, and `keys.bin` what they are found by
(`KEY`); both only grow. `pixels.json` says how many of each are finished, and which transform made them: it is
replaced whole after each part, so that a reader sees nothing unfinished, and whatever an interrupted build left behind
the finished part is cut off by the next one. Each image has a checksum, which is compared whenever it is read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from hfcomp.checksums import read_checked
from hfcomp.data.pixels.keys import KEY_BYTES
from hfcomp.data.pixels.transform import PixelTransform

FORMAT = 1
MANIFEST, PIXELS, KEYS = "pixels.json", "pixels.bin", "keys.bin"
BUILD = "hfcomp build pixels"
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("image", "<u4"), ("tiny", "<u4"), ("checksum", "<u8")])
"""A record of `keys.bin`: a key in two halves, the image's number, whether it is tiny, the checksum of its pixels."""


class PixelStore:
    """The finished images of a store, to read. Instances pickle: a worker opens the files itself.

    Args:
        folder: of `hfcomp build pixels`.
        transform: of the model that the pixels are for; `None` takes those of any.

    Raises:
        ValueError: for a folder that is not a store, is damaged, or was made by another transform: with what differs.
    """

    def __init__(self, folder: str | Path, transform: PixelTransform | None = None) -> None:
        self.folder = Path(folder)
        self._expected = None if transform is None else transform.facts()
        self._open()

    def __len__(self) -> int:
        """The number of images."""
        return len(self._pixels)

    def __getstate__(self) -> dict[str, Any]:
        """Without the files."""
        return {"folder": self.folder, "_expected": self._expected}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Opens the files again, whose finished part may have grown."""
        self.__dict__.update(state)
        self._open()

    def find(self, key: bytes | None) -> int:
        """The place of a key, or -1 where the store does not have it."""
        if key is None:
            return -1
        high, low = np.frombuffer(key, dtype="<u8")
        place = int(np.searchsorted(self._high, high))
        while place < len(self._high) and self._high[place] == high:
            if self._keys["low"][place] == low:
                return place
            place += 1
        return -1

    def record(self, place: int) -> tuple[int, int, int]:
        """The image's number, whether it is tiny, and its checksum, at a place that `find` returned."""
        key = self._keys[place]
        return int(key["image"]), int(key["tiny"]), int(key["checksum"])

    def is_tiny(self, place: int) -> bool:
        """Whether the image was 1 pixel wide or high."""
        return bool(self._keys["tiny"][place])

    def read(self, place: int, pixels: NDArray[np.uint8]) -> None:
        """Copies an image.

        Args:
            place: what `find` returned.
            pixels: `[3, H, W]` uint8, contiguous, overwritten.

        Raises:
            ValueError: where the pixels are not those that were written, naming the file.
        """
        number, _, expected = self.record(place)
        pixels[:] = self._pixels[number]
        if checksum(pixels) != expected:
            found = f"image {number:,} does not match its checksum"
            raise ValueError(f"{self.folder / PIXELS} is damaged: {found}. {_rebuild(self.folder)}")

    def verify(self) -> None:
        """Reads every image.

        Raises:
            ValueError: for the first that is damaged.
        """
        pixels = np.empty(self._pixels.shape[1:], dtype=np.uint8)
        for place in np.unique(self._keys["image"], return_index=True)[1]:
            self.read(int(place), pixels)

    def _open(self) -> None:
        manifest = read_manifest(self.folder)
        if self._expected is not None:
            check_transform(self.folder, manifest["transform"], self._expected)
        keys = read_keys(self.folder, manifest)
        self._keys = keys[np.argsort(keys["high"], kind="stable")]
        self._high = np.ascontiguousarray(self._keys["high"])
        number, (height, width) = manifest["images"], manifest["transform"]["size"]
        self._pixels: NDArray[np.uint8] = np.empty((0, 3, height, width), dtype=np.uint8)
        if number:  # an empty file cannot be mapped
            self._pixels = np.memmap(self.folder / PIXELS, dtype=np.uint8, mode="r", shape=(number, 3, height, width))


def checksum(pixels: NDArray[np.uint8]) -> int:
    """The checksum of an image's pixels, `[3, H, W]` contiguous: XXH3 of 64 bits."""
    return xxhash.xxh3_64_intdigest(pixels)


def is_store(folder: Path) -> bool:
    """Whether a folder is a store, whatever its state."""
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a store, whose files are there and long enough.

    Raises:
        ValueError: for another folder, a damaged or a missing file, by its name.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"pixel_cache: {folder} has no {MANIFEST}. Build the store first, with `{BUILD}`.")
    manifest = read_checked(path, _rebuild(folder))
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{path} has the format {manifest.get('format')!r}, expected {FORMAT}. {_rebuild(folder)}")
    height, width = manifest["transform"]["size"]
    for name, needed in ((PIXELS, manifest["images"] * 3 * height * width), (KEYS, manifest["keys"] * KEY.itemsize)):
        found = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if found < needed:
            raise ValueError(
                f"{folder / name} is damaged: it has {found:,} bytes, expected {needed:,} or more. {_rebuild(folder)}"
            )
    return manifest


def read_keys(folder: Path, manifest: dict[str, Any]) -> NDArray[Any]:
    """The finished records of `keys.bin`, in the order in which they were written.

    Raises:
        ValueError: where they are damaged.
    """
    path = folder / KEYS
    content = b""
    if manifest["keys"]:
        with path.open("rb") as file:
            content = file.read(manifest["keys"] * KEY.itemsize)
    if hashlib.sha256(content).hexdigest() != manifest["keys_sha256"]:
        raise ValueError(f"{path} is damaged: it does not match its checksum in {MANIFEST}. {_rebuild(folder)}")
    return np.frombuffer(content, dtype=KEY)


def check_transform(folder: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Checks that a store has the pixels of a transform.

    Args:
        folder: of the store.
        found: `PixelTransform.facts` of the store.
        expected: of the model.

    Raises:
        ValueError: naming what differs.
    """
    names = [name for name in {**expected, **found} if found.get(name) != expected.get(name)]
    if names:
        parts = "; ".join(f"{name}: {found.get(name)} in the store, {expected.get(name)} here" for name in names)
        raise ValueError(
            f"{folder} holds pixels of another preprocessing ({parts}). Build a store for this model and these "
            f"versions with `{BUILD}`, in another folder."
        )


def _rebuild(folder: Path) -> str:
    return f"Remove {folder} and build it again with `{BUILD}`."


def halves(key: bytes) -> tuple[int, int]:
    """A key of `KEY_BYTES` bytes as the first two fields of `KEY`."""
    half = KEY_BYTES // 2
    return int.from_bytes(key[:half], "little"), int.from_bytes(key[half:], "little")
