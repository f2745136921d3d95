"""Edited images that differ from the original in the mask alone, but for a feathered border."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hfcomp.data.annotations.masks import Mask, check_mask, enlarge

FEATHER = 4
"""Pixels around the mask over which the edit fades out. Our choice."""
LEAST_CHANGE = 4.0
"""Of 255 levels: the root mean square in the mask below which nothing was changed. Our choice."""


def compose(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> Image.Image:
    """The original with the edited image in the mask.

    Inside the mask the pixels are the edited image's. In a border of `feather` pixels around it both are mixed, the
    edited image's share falling in equal steps. Beyond, each pixel is the original's, to the bit.

    Args:
        original: RGB.
        edited: RGB, of the same size.
        mask: `[H, W]`.
        feather: pixels, 0 or more.

    Raises:
        ValueError: for images of different sizes, a mask of nothing, of everything or of another size, or a negative
            feather.
    """
    check_mask(mask, original)
    if edited.size != original.size:
        raise ValueError(f"The edited image is {_size(edited)}, the original {_size(original)}.")
    before, after = (np.asarray(one.convert("RGB")) for one in (original, edited))
    share = _shares(mask, feather)[..., None]
    return Image.fromarray(np.round(share * after + (1 - share) * before).astype(np.uint8))


def changed_outside(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> int:
    """The number of pixels that differ beyond the mask and its border: 0 for what `compose` makes."""
    before, after = (np.asarray(one.convert("RGB")) for one in (original, edited))
    return int(((before != after).any(axis=-1) & ~enlarge(mask, feather, feather)).sum())


def change(original: Image.Image, edited: Image.Image, mask: Mask) -> float:
    """How much the pixels of a mask differ: the root of their mean squared difference, 0 to 255; 0 without a mask."""
    if not mask.any():
        return 0.0
    before, after = (np.asarray(one.convert("RGB"), dtype=np.float32)[mask] for one in (original, edited))
    return float(np.sqrt(np.square(before - after).mean()))


def is_changed(original: Image.Image, edited: Image.Image, mask: Mask, *, least: float = LEAST_CHANGE) -> bool:
    """Whether the pixels of the mask differ by at least `least`, see `change`; never for an empty mask."""
    return bool(mask.any()) and change(original, edited, mask) >= least


def _shares(mask: Mask, feather: int) -> NDArray[np.float32]:
    """The edited image's share of each pixel: 1 - d / (feather + 1) at d rows or columns from the mask, at least 0."""
    if feather < 0:
        raise ValueError(f"feather: found {feather} pixels, expected 0 or more.")
    steps = np.zeros(mask.shape, dtype=np.float32)
    for distance in range(feather + 1):
        steps += enlarge(mask, distance, distance)
    return steps / np.float32(feather + 1)


def _size(image: Image.Image) -> str:
    return f"{image.width} x {image.height}"
