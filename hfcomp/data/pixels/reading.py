"""From the values of rows to pixels: taken from a store where it has them, else decoded and resized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from hfcomp.data.images import MAX_IMAGE_PIXELS, decode_image, is_tiny
from hfcomp.data.pixels.keys import ImageKeys
from hfcomp.data.pixels.store import PixelStore
from hfcomp.data.pixels.transform import PixelTransform
from hfcomp.data.urls import UrlAccess


@dataclass(frozen=True)
class ReadImages:
    """The images of a batch.

    Attributes:
        pixels: `[M, 3, H, W]` uint8; float where the values were float pixels.
        tiny: Of each, whether it is 1 pixel wide or high.
        decoded: Of each, whether it was decoded and not taken from a store.
    """

    pixels: torch.Tensor
    tiny: list[bool]
    decoded: list[bool]


@dataclass
class ImageReader:
    """Reads the images of rows.

    Attributes:
        transform: Of the model.
        max_pixels: As for `decode_image`.
        urls: As for `decode_image`.
        store: Where pixels are looked up first.
        shortest_side: As for `decode_image`; for training only.
    """

    transform: PixelTransform
    max_pixels: int = MAX_IMAGE_PIXELS
    urls: UrlAccess | None = None
    store: PixelStore | None = None
    shortest_side: int | None = None

    def __call__(self, values: Sequence[Any], where: Sequence[str]) -> ReadImages:
        """The pixels of values.

        Args:
            values: what `decode_image` takes, or pixels `[3, H, W]` of the model's size, which a data set's transform
                gives (`hfcomp.data.transforms`).
            where: the place of each, for errors.

        Raises:
            ValueError: for an image that cannot be used, or a damaged store.
            OSError: likewise, of a file or URL.
        """
        if any(isinstance(value, torch.Tensor) for value in values):
            none = [False] * len(values)
            return ReadImages(_stacked(values, where, self.transform.size), none, none)
        if self.store is None:
            images = [self._decode(value, place) for value, place in zip(values, where, strict=True)]
            pixels = self.transform(images, where=where)
            return ReadImages(pixels, [is_tiny(image) for image in images], [True] * len(images))
        pixels = torch.empty((len(values), 3, *self.transform.size), dtype=torch.uint8)
        tiny, missing = [False] * len(values), {}
        for index, (value, name) in enumerate(zip(values, where, strict=True)):
            keys = ImageKeys(value, urls=self.urls)
            place = self.store.find(keys.of_place())
            if place < 0:
                place = self.store.find(keys.of_content())
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


def _stacked(values: Sequence[Any], where: Sequence[str], size: tuple[int, int]) -> torch.Tensor:
    """Pixels that a transform made, which are as the model takes them or refused."""
    first = next(value for value in values if isinstance(value, torch.Tensor))
    for value, place in zip(values, where, strict=True):
        if list(value.shape) != [3, *size]:
            raise ValueError(
                f"{place}: the transform gives pixels {list(value.shape)}, expected {[3, *size]}. Resize and crop in "
                "the transform, or return PIL images, which hfcomp resizes."
            )
        if value.dtype != first.dtype or not (value.is_floating_point() or value.dtype == torch.uint8):
            raise TypeError(
                f"{place}: found {value.dtype} beside {first.dtype}; expected all float and normalised, or all uint8."
            )
    pixels = torch.stack(list(values))
    return pixels.float() if pixels.is_floating_point() else pixels
