"""Inpainting masks, and edited images that differ from the original only inside the mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

THRESHOLD = 0.4
"""Threshold of a pixel's probability. Our choice: the paper gives none."""

ProbabilityMap = NDArray[np.float32]
"""Probability of each pixel, 0 to 1, shape `[H, W]`."""
Mask = NDArray[np.bool_]
"""True for pixels to inpaint, shape `[H, W]`."""
RED = (230, 30, 30)
"""Color in which a mask is displayed."""


def threshold_mask(probabilities: ProbabilityMap, threshold: float) -> Mask:
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold: found {threshold}, expected 0 to 1.")
    return probabilities >= threshold


def enlarge(mask: Mask, x: int, y: int) -> Mask:
    """Adds a margin to a mask: true if a pixel of the mask is at most `x` columns and `y` rows away."""
    # A rectangle is widened along the columns first, then along the rows.
    if x < 0 or y < 0:
        raise ValueError(f"enlargement: found {x} and {y} pixels, expected 0 or more.")
    widened = _widen(mask, x) if x else mask
    return _widen(widened.T, y).T if y else widened


def check_mask(mask: Mask, image: Image.Image) -> None:
    if mask.shape != (image.height, image.width):
        raise ValueError(
            f"The mask has {mask.shape[1]} x {mask.shape[0]} pixels, the image has {image.width} x {image.height}."
        )
    if not mask.any():
        raise ValueError(
            "The mask is empty. Lower the threshold, try another mask prompt, or draw a mask with the brush."
        )
    if mask.all():
        raise ValueError("The mask covers the whole image. Raise the threshold, enlarge it less, or erase some of it.")


def mask_image(mask: Mask) -> Image.Image:
    """Converts a mask to an image of mode L, white where the mask is true."""
    return Image.fromarray(mask.astype(np.uint8) * 255)


def read_mask(image: Image.Image) -> Mask:
    """Converts an image to a mask, true where the image is at least half white."""
    return np.asarray(image.convert("L")) >= 128


def overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """Returns the image with the mask tinted red and outlined in solid red."""
    tinted = np.asarray(image.convert("RGB"), dtype=np.float32).copy()
    tinted[mask] = 0.6 * tinted[mask] + 0.4 * np.array(RED, dtype=np.float32)
    return outline(Image.fromarray(tinted.round().astype(np.uint8)), mask)


def outline(image: Image.Image, mask: Mask) -> Image.Image:
    """Returns the image with a red line around the mask; pixels inside the mask do not change."""
    pixels = np.asarray(image.convert("RGB")).copy()
    width = max(1, round(max(mask.shape) / 400))
    pixels[enlarge(mask, width, width) & ~mask] = RED
    return Image.fromarray(pixels)


def _widen(mask: Mask, x: int) -> Mask:
    # Running sums take the same time for any `x`: a pixel is true if the sum over 2x + 1 pixels around it exceeds 0.
    x = min(x, mask.shape[1])
    sums = np.cumsum(np.pad(mask, ((0, 0), (x + 1, x))), axis=1, dtype=np.int32)
    result: Mask = sums[:, 2 * x + 1 :] > sums[:, : -2 * x - 1]
    return result


FEATHER = 4
"""Width in pixels of the border around the mask over which the edit fades out. Our choice."""
LEAST_CHANGE = 4.0
"""Root mean square difference in the mask, of 255 levels, below which an image counts as unchanged. Our choice."""


def compose(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> Image.Image:
    """Pastes the masked part of the edited image into the original.

    Inside the mask, the pixels come from the edited image. In a border of `feather` pixels around it, the two images
    are blended, and the edited image's share falls in equal steps. Outside the border, every pixel equals the
    original's exactly.
    """
    # The model repaints the whole image and slightly changes what it should leave alone. A pair that differs in one
    # place must not differ anywhere else, so the original's own pixels are restored.
    check_mask(mask, original)
    if edited.size != original.size:
        raise ValueError(f"The edited image is {_size(edited)} pixels, but the original is {_size(original)}.")
    before, after = (np.asarray(image.convert("RGB")) for image in (original, edited))
    share = _shares(mask, feather)[..., None]
    return Image.fromarray(np.round(share * after + (1 - share) * before).astype(np.uint8))


def changed_outside(original: Image.Image, edited: Image.Image, mask: Mask, *, feather: int = FEATHER) -> int:
    """Counts the pixels that differ outside the mask and its border: 0 for images made by `compose`."""
    before, after = (np.asarray(image.convert("RGB")) for image in (original, edited))
    return int(((before != after).any(axis=-1) & ~enlarge(mask, feather, feather)).sum())


def change(original: Image.Image, edited: Image.Image, mask: Mask) -> float:
    """The root mean square difference of the pixels inside a mask, 0 to 255; 0 for an empty mask."""
    if not mask.any():
        return 0.0
    before, after = (np.asarray(image.convert("RGB"), dtype=np.float32)[mask] for image in (original, edited))
    return float(np.sqrt(np.square(before - after).mean()))


def is_changed(original: Image.Image, edited: Image.Image, mask: Mask, *, least: float = LEAST_CHANGE) -> bool:
    """Whether the pixels inside the mask differ by at least `least` (see `change`); False for an empty mask."""
    return bool(mask.any()) and change(original, edited, mask) >= least


def _shares(mask: Mask, feather: int) -> NDArray[np.float32]:
    """The edited image's weight per pixel: 1 - d / (feather + 1) at d rows or columns from the mask, at least 0."""
    if feather < 0:
        raise ValueError(f"feather: found {feather} pixels, expected 0 or more.")
    steps = np.zeros(mask.shape, dtype=np.float32)
    for distance in range(feather + 1):
        steps += enlarge(mask, distance, distance)
    return steps / np.float32(feather + 1)


def _size(image: Image.Image) -> str:
    return f"{image.width} x {image.height}"
