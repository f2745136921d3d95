"""Store of pixels that were decoded and resized once, in a memory-mapped file that any number of processes can read.

A folder contains three files. `pixels.bin` contains the images, uint8 `[3, H, W]` each, and `keys.bin` the keys that
identify them (`KEY`); both only grow. `pixels.json` records how many of each are finished and which transform made
them. It is replaced as a whole after each part, so readers never see unfinished parts. If an interrupted build left
data after the finished part, the next build cuts it off. Each image has a checksum, which is verified on every read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from PIL import Image

from hfcomp.checksums import read_checked
from hfcomp.data.images import MAX_IMAGE_PIXELS, Unreadable, decode_image, is_tiny
from hfcomp.data.pixels.processor import ProcessorInputs
from hfcomp.data.pixels.transform import PixelTransform
from hfcomp.data.urls import UrlAccess, current_access, is_url, open_named

KEY_BYTES = 16


class ImageKeys:
    """Keys of a row's image value, computed one at a time because each costs more than the one before.

    A local file is identified first by path, size and modification time, without being opened, and a URL by its text,
    without being downloaded; then both by content. Content is hashed with XXH3 (128 bits), which is fast and protects
    against accidental collisions, but not against an author who wants two files to collide.
    """

    def __init__(self, value: Any, *, urls: UrlAccess | None = None) -> None:
        self._urls, self._value = urls, value
        self.path: str | None = None
        self.content: Any = None
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        if isinstance(value, (str, os.PathLike)):
            self.path = os.fspath(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self.content = value
        elif isinstance(value, Image.Image):
            self.content = f"{value.mode} {value.size} ".encode() + value.tobytes()
        elif isinstance(value, np.ndarray):
            self.content = f"{value.dtype} {value.shape} ".encode() + value.tobytes()

    @property
    def value(self) -> Any:
        """Value to decode: the original value, or its bytes if they have already been read."""
        if self.path is None or self.content is None:
            return self._value
        return {"bytes": self.content, "path": self.path}

    def place_key(self) -> bytes | None:
        if self.path is None:
            return None
        if is_url(self.path):
            return _digest(f"url\0{self.path}".encode())
        try:
            state = Path(self.path).stat()
        except OSError:  # for example, a member of an archive
            return None
        return _digest(f"file\0{os.path.abspath(self.path)}\0{state.st_size}\0{state.st_mtime_ns}".encode())

    def content_key(self) -> bytes | None:
        """Returns the key of the encoded bytes; `None` if they cannot be read, which decoding will report."""
        if self.content is None and self.path is not None:
            try:
                with open_named(self.path, "image", current_access(self._urls)) as stream:
                    self.content = stream.read()
            except Unreadable:
                return None
        return None if self.content is None else _digest(self.content)


def _digest(content: Any) -> bytes:
    return xxhash.xxh3_128_digest(content)


FORMAT = 1
MANIFEST, PIXELS, KEYS = "pixels.json", "pixels.bin", "keys.bin"
BUILD = "hfcomp build pixels"
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("image", "<u4"), ("tiny", "<u4"), ("checksum", "<u8")])
"""Record of `keys.bin`: a key in two halves, the image's number, whether it is tiny, and its pixels' checksum."""


class PixelStore:
    """Reads the finished images of a store. Instances can be pickled; each worker opens the files itself.

    Args:
        folder: Folder built by `hfcomp build pixels`.
        transform: Transform of the model that uses the pixels; `None` accepts pixels of any transform.

    Raises:
        ValueError: If the folder is not a store, is damaged, or was made by another transform. The message lists the
            differences.
    """

    def __init__(self, folder: str | Path, transform: PixelTransform | None = None) -> None:
        self.folder = Path(folder)
        self._expected = None if transform is None else transform.facts()
        self._open()

    def __len__(self) -> int:
        return len(self._pixels)

    def __getstate__(self) -> dict[str, Any]:
        # Exclude the files: a worker maps them again instead of receiving gigabytes through a pipe.
        return {"folder": self.folder, "_expected": self._expected}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def find(self, key: bytes | None) -> int:
        """Returns the place of a key, or -1 if the store does not contain it."""
        if key is None:
            return -1
        # Sorted only by the first half: two images hardly ever share these 64 bits, and if they do, the second half
        # decides.
        high, low = np.frombuffer(key, dtype="<u8")
        place = int(np.searchsorted(self._high, high))
        while place < len(self._high) and self._high[place] == high:
            if self._keys["low"][place] == low:
                return place
            place += 1
        return -1

    def record(self, place: int) -> tuple[int, int, int]:
        """Returns the image's number, whether it is tiny, and its checksum, for a place returned by `find`."""
        key = self._keys[place]
        return int(key["image"]), int(key["tiny"]), int(key["checksum"])

    def is_tiny(self, place: int) -> bool:
        return bool(self._keys["tiny"][place])

    def read(self, place: int, pixels: NDArray[np.uint8]) -> None:
        """Copies the image at a place returned by `find` to `pixels`, which is `[3, H, W]`, uint8 and contiguous."""
        # Verify on every read rather than once: the file may be damaged, or half-copied by a user, at any time. XXH3
        # takes microseconds per image.
        number, _, expected = self.record(place)
        pixels[:] = self._pixels[number]
        if checksum(pixels) != expected:
            problem = f"image {number:,} does not match its checksum"
            raise ValueError(f"{self.folder / PIXELS} is damaged: {problem}. {_rebuild(self.folder)}")

    def verify(self) -> None:
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
    """Returns the 64-bit XXH3 checksum of an image's pixels, contiguous `[3, H, W]`."""
    return xxhash.xxh3_64_intdigest(pixels)


def is_store(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a store and checks that its files exist and are long enough."""
    # The files may be longer: data after the finished part belongs to a build that is running or was killed.
    path = folder / MANIFEST
    if not path.is_file():
        raise ValueError(f"pixel_cache: {folder} has no {MANIFEST}. Build the store first, with `{BUILD}`.")
    manifest = read_checked(path, _rebuild(folder))
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{path} has the format {manifest.get('format')!r}, expected {FORMAT}. {_rebuild(folder)}")
    height, width = manifest["transform"]["size"]
    for name, needed in ((PIXELS, manifest["images"] * 3 * height * width), (KEYS, manifest["keys"] * KEY.itemsize)):
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size < needed:
            raise ValueError(
                f"{folder / name} is damaged: it has {size:,} bytes, expected at least {needed:,}. {_rebuild(folder)}"
            )
    return manifest


def read_keys(folder: Path, manifest: dict[str, Any]) -> NDArray[Any]:
    """Reads the finished records of `keys.bin`, in the order in which they were written."""
    path = folder / KEYS
    content = b""
    if manifest["keys"]:
        with path.open("rb") as file:
            content = file.read(manifest["keys"] * KEY.itemsize)
    if hashlib.sha256(content).hexdigest() != manifest["keys_sha256"]:
        raise ValueError(f"{path} is damaged: it does not match its checksum in {MANIFEST}. {_rebuild(folder)}")
    return np.frombuffer(content, dtype=KEY)


def check_transform(folder: Path, actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """Checks that the pixels of a store were made by the expected transform."""
    names = [name for name in {**expected, **actual} if actual.get(name) != expected.get(name)]
    if names:
        parts = "; ".join(f"{name}: {actual.get(name)} in the store, {expected.get(name)} here" for name in names)
        raise ValueError(
            f"{folder} contains pixels from a different preprocessing ({parts}). Build a store for this model and "
            f"these library versions with `{BUILD}`, in another folder."
        )


def _rebuild(folder: Path) -> str:
    return f"Delete {folder} and build it again with `{BUILD}`."


def halves(key: bytes) -> tuple[int, int]:
    half = KEY_BYTES // 2
    return int.from_bytes(key[:half], "little"), int.from_bytes(key[half:], "little")


@dataclass(frozen=True)
class ReadImages:
    """The images of a batch.

    Attributes:
        pixels: Pixels `[M, 3, H, W]`, uint8; float if the values were float pixels; or inputs from `ProcessorInputs`.
        tiny: Whether each image is 1 pixel wide or high.
        decoded: Whether each image was decoded rather than read from a store.
    """

    pixels: torch.Tensor | dict[str, torch.Tensor]
    tiny: list[bool]
    decoded: list[bool]


@dataclass
class ImageReader:
    """Reads the images of rows."""

    transform: PixelTransform | ProcessorInputs
    max_pixels: int = MAX_IMAGE_PIXELS
    urls: UrlAccess | None = None
    store: PixelStore | None = None
    shortest_side: int | None = None

    def __call__(self, values: Sequence[Any], where: Sequence[str], boxes: torch.Tensor | None = None) -> ReadImages:
        """Reads image values as `decode_image` does, or accepts pixels `[3, H, W]` of the model's size.

        `where` contains the place of each value, for error messages. If the processor itself prepares the images, they
        are cropped here to `boxes` `[M, 4]`, shares of width and height.
        """
        own = isinstance(self.transform, ProcessorInputs)
        if any(isinstance(value, torch.Tensor) for value in values):
            if own:
                raise TypeError(
                    f"{where[0]}: found a tensor, expected a PIL image, because "
                    f"{type(self.transform.image_processor).__name__} must prepare every image itself. Return PIL "
                    "images from the dataset's transform."
                )
            none = [False] * len(values)
            return ReadImages(_stack(values, where, self.transform.size), none, none)
        if self.store is None:
            images = [self._decode(value, place) for value, place in zip(values, where, strict=True)]
            cropped = map(_crop, images, boxes.tolist()) if own and boxes is not None else images
            pixels = self.transform([*cropped], where=where)
            return ReadImages(pixels, [is_tiny(image) for image in images], [True] * len(images))
        pixels = torch.empty((len(values), 3, *self.transform.size), dtype=torch.uint8)
        tiny, missing = [False] * len(values), {}
        for index, (value, name) in enumerate(zip(values, where, strict=True)):
            keys = ImageKeys(value, urls=self.urls)
            # Try the key of the place first, because it opens no file.
            place = self.store.find(keys.place_key())
            if place < 0:
                place = self.store.find(keys.content_key())
            if place < 0:
                missing[index] = self._decode(keys.value, name)
                tiny[index] = is_tiny(missing[index])
            else:
                self.store.read(place, pixels[index].numpy())
                tiny[index] = self.store.is_tiny(place)
        if missing:
            pixels[list(missing)] = self.transform([*missing.values()], where=[where[index] for index in missing])
        return ReadImages(pixels, tiny, [index in missing for index in range(len(values))])

    def _decode(self, value: Any, where: str) -> Image.Image:
        return decode_image(
            value, where=where, max_pixels=self.max_pixels, urls=self.urls, shortest_side=self.shortest_side
        )


def _crop(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """Crops an image to a box of shares of its width and height, at least one pixel wide and high."""
    left, top, right, bottom = (round(share * side) for share, side in zip(box, image.size * 2, strict=True))
    left, top = min(left, image.width - 1), min(top, image.height - 1)
    return image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))


def _stack(values: Sequence[Any], where: Sequence[str], size: tuple[int, int]) -> torch.Tensor:
    first = next(value for value in values if isinstance(value, torch.Tensor))
    for value, place in zip(values, where, strict=True):
        if list(value.shape) != [3, *size]:
            raise ValueError(
                f"{place}: the transform returned pixels {list(value.shape)}, expected {[3, *size]}. Resize and crop "
                "in the transform, or return PIL images, which hfcomp resizes."
            )
        if value.dtype != first.dtype or not (value.is_floating_point() or value.dtype == torch.uint8):
            raise TypeError(
                f"{place}: found {value.dtype} (the first image has {first.dtype}), expected only normalized floats, "
                "or only uint8."
            )
    pixels = torch.stack(list(values))
    return pixels.float() if pixels.is_floating_point() else pixels
