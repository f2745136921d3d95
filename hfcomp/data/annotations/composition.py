"""Edited images that differ from the original in the mask alone, but for a feathered border."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from hfcomp.data.annotations.masks import Mask, check_mask, enlarge, mask_image

FEATHER = 4
"""Pixels around the mask over which the edit fades out. Our choice."""
LEAST_CHANGE = 4.0
"""Of 255 levels: the root mean square in the mask below which nothing was changed. Our choice."""


def compose(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> Image.Image:
    """The original with the edited image in the mask.

    Inside the mask the pixels are the edited image's. In a border of `feather` pixels around it both are mixed.
    Beyond, each pixel is the original's, to the bit.

    Args:
        original: RGB.
        edited: RGB, of the same size.
        mask: `[H, W]`.
        feather: pixels, 0 or more.

    Raises:
        ValueError: for images of different sizes, or a mask of nothing, of everything or of another size.
    """
    check_mask(mask, original)
    if edited.size != original.size:
        raise ValueError(f"The edited image is {_size(edited)}, the original {_size(original)}.")
    before, after = (np.asarray(one.convert("RGB")) for one in (original, edited))
    share = _shares(mask, feather)[..., None]
    mixed = np.round(share * after + (1 - share) * before).astype(np.uint8)
    mixed[share[..., 0] == 0] = before[share[..., 0] == 0]
    return Image.fromarray(mixed)


def changed_outside(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> int:
    """The number of pixels that differ beyond the mask and its border: 0 for what `compose` makes."""
    before, after = (np.asarray(one.convert("RGB")) for one in (original, edited))
    return int(((before != after).any(axis=-1) & ~enlarge(mask, feather, feather)).sum())


def is_changed(original: Image.Image, edited: Image.Image, mask: Mask, *, least: float = LEAST_CHANGE) -> bool:
    """Whether the pixels of the mask differ, by the root of their mean squared difference of 255 levels."""
    before, after = (np.asarray(one.convert("RGB"), dtype=np.float32)[mask] for one in (original, edited))
    return bool(mask.any() and np.sqrt(np.square(before - after).mean()) >= least)


def _shares(mask: Mask, feather: int) -> NDArray[np.float32]:
    """The edited image's share of each pixel: 1 in the mask, 0 beyond the border, in between less further out."""
    inside = mask.astype(np.float32)
    if feather < 1:
        return inside
    blurred = mask_image(enlarge(mask, feather // 2, feather // 2)).filter(ImageFilter.BoxBlur(feather / 2))
    shares = np.asarray(blurred, dtype=np.float32) / 255
    return np.where(mask, 1, np.where(enlarge(mask, feather, feather), shares, 0)).astype(np.float32)


def _size(image: Image.Image) -> str:
    return f"{image.width} x {image.height}"
