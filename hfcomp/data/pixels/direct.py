"""Resize and crop of RGB images by Pillow alone, as the processors of transformers do it between two conversions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class DirectResize:
    """A processor's resize and centre crop, read from its settings; the caller proves that it gives the same pixels.

    The crop is not folded into the resize (`box` of `Image.resize`): Pillow rounds the weights anew for a box, and
    single pixels of photographs then differ by 2 of 255.

    Attributes:
        short_edge: What the shorter side is resized to; `None` for a fixed size.
        resized: `(H, W)` that every image is resized to; without `short_edge`.
        crop: `(H, W)` of the centre that is kept.
        resample: Pillow's filter.
    """

    short_edge: int | None
    resized: tuple[int, int]
    crop: tuple[int, int]
    resample: int

    @classmethod
    def from_processor(cls, image_processor: Any) -> DirectResize | None:
        """The resize of a processor, or `None` for one that does something else, such as padding small images."""
        size, resample = getattr(image_processor, "size", None), getattr(image_processor, "resample", None)
        if not image_processor.do_resize or not hasattr(size, "get") or not isinstance(resample, int):
            return None
        short, fixed = size.get("shortest_edge"), (size.get("height"), size.get("width"))
        if size.get("longest_edge") or not (short or all(fixed)):
            return None
        resized = (short, short) if short else fixed
        crop = resized
        if getattr(image_processor, "do_center_crop", False):
            crop = (image_processor.crop_size["height"], image_processor.crop_size["width"])
        elif short:
            return None
        if crop[0] > resized[0] or crop[1] > resized[1]:
            return None
        return cls(short or None, resized, crop, int(resample))

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        """The pixels of an RGB image, `[3, H, W]` uint8."""
        pixels = np.empty((3, *self.crop), dtype=np.uint8)
        self.write(image, pixels)
        return pixels

    def write(self, image: Image.Image, pixels: NDArray[np.uint8]) -> None:
        """Writes the pixels of an RGB image into an array.

        Args:
            image: of any size.
            pixels: `[3, H, W]` uint8, overwritten.
        """
        resized = np.asarray(image.resize(self._resized_size(*image.size), self.resample))
        (height, width), (rows, columns) = resized.shape[:2], self.crop
        top, left = (height - rows) // 2, (width - columns) // 2
        pixels[:] = resized[top : top + rows, left : left + columns].transpose(2, 0, 1)

    def _resized_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height after the resize, rounded as transformers rounds them."""
        if self.short_edge is None:
            return self.resized[1], self.resized[0]
        long = int(self.short_edge * max(width, height) / min(width, height))
        return (self.short_edge, long) if width <= height else (long, self.short_edge)
