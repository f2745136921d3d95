"""Masks of what is inpainted, and edited images that differ from the original in the mask alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

THRESHOLD = 0.4
"""Of the probability of a pixel. Our choice: the paper names none."""

ProbabilityMap = NDArray[np.float32]
"""`[H, W]`, the probability of each pixel, 0 to 1."""
Mask = NDArray[np.bool_]
"""`[H, W]`, true for pixels that are inpainted again."""
RED = (230, 30, 30)
"""Of a mask that is shown."""


def above(probabilities: ProbabilityMap, threshold: float) -> Mask:
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold: found {threshold}, expected 0 to 1.")
    return probabilities >= threshold


def enlarge(mask: Mask, x: int, y: int) -> Mask:
    """A mask with a margin: true where a pixel of the mask is at most `x` columns and `y` rows away."""
    # A rectangle of pixels is a run of columns, then a run of rows.
    if x < 0 or y < 0:
        raise ValueError(f"enlargement: found {x} and {y} pixels, expected 0 or more.")
    found = _widened(mask, x) if x else mask
    return _widened(found.T, y).T if y else found


def check_mask(mask: Mask, image: Image.Image) -> None:
    if mask.shape != (image.height, image.width):
        raise ValueError(
            f"The mask has {mask.shape[1]} x {mask.shape[0]} pixels, the image {image.width} x {image.height}."
        )
    if not mask.any():
        raise ValueError("The mask is empty. Lower the threshold, try another mask prompt, or draw it with the brush.")
    if mask.all():
        raise ValueError("The mask covers the whole image. Raise the threshold, enlarge it less, or erase some of it.")


def mask_image(mask: Mask) -> Image.Image:
    """White where the mask is true, mode L."""
    return Image.fromarray(mask.astype(np.uint8) * 255)


def read_mask(image: Image.Image) -> Mask:
    """True where a picture is at least half white."""
    return np.asarray(image.convert("L")) >= 128


def overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """The image with the mask tinted red, and its outline in full red."""
    tinted = np.asarray(image.convert("RGB"), dtype=np.float32).copy()
    tinted[mask] = 0.6 * tinted[mask] + 0.4 * np.array(RED, dtype=np.float32)
    return outline(Image.fromarray(tinted.round().astype(np.uint8)), mask)


def outline(image: Image.Image, mask: Mask) -> Image.Image:
    """The image with a red line around the mask, in which it stays as it is."""
    pixels = np.asarray(image.convert("RGB")).copy()
    width = max(1, round(max(mask.shape) / 400))
    pixels[enlarge(mask, width, width) & ~mask] = RED
    return Image.fromarray(pixels)


def _widened(mask: Mask, x: int) -> Mask:
    # Running sums take the same time for any `x`: a pixel is true if the sum over its 2x + 1 neighbors is above 0.
    x = min(x, mask.shape[1])
    sums = np.cumsum(np.pad(mask, ((0, 0), (x + 1, x))), axis=1, dtype=np.int32)
    found: Mask = sums[:, 2 * x + 1 :] > sums[:, : -2 * x - 1]
    return found


FEATHER = 4
"""Pixels around the mask over which the edit fades out. Our choice."""
LEAST_CHANGE = 4.0
"""Of 255 levels: the root mean square in the mask below which nothing was changed. Our choice."""


def compose(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> Image.Image:
    """The original with the edited image in the mask.

    Inside the mask the pixels are the edited image's. In a border of `feather` pixels around it both are mixed, the
    edited image's share falling in equal steps. Beyond it, each pixel equals the original's exactly.

    """
    # The model repaints the whole image, and slightly changes what it should leave alone. A pair that differs in one
    # place must differ in no other, so the original's own pixels are put back.
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
