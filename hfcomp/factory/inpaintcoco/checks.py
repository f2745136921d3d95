"""Checks of a pair of images, their mask and their captions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from hfcomp.data.annotations.entries import AUTOMATIC, first_spellings
from hfcomp.data.annotations.masks import FEATHER, Mask, changed_outside, enlarge, is_changed, read_mask
from hfcomp.data.images import decode_image
from hfcomp.data.publishing import without_local_paths
from hfcomp.factory.shards import BAD_IMAGE, Batch
from hfcomp.factory.sources import NO_IMAGE

EMPTY_CAPTION = "empty caption"
SAME_CAPTIONS = "captions are the same"
IMAGE_SIZES = "images differ in size"
MASK_SIZE = "mask and image differ in size"
EMPTY_MASK = "mask is empty"
FULL_MASK = "mask covers the whole image"
UNCHANGED = "nothing is changed in the mask"
CHANGED_OUTSIDE = "pixels differ outside the mask"
IMAGES = ("coco_image", "inpaint_image", "mask")


class Unreadable(ValueError):
    """An image that is missing or cannot be decoded; the message is the reason to set the row aside."""


@dataclass(frozen=True)
class PairCheck:
    """What a check of a row found.

    Attributes:
        unreadable: Why an image cannot be read; nothing else is checked then.
        size: Height and width of the original, in pixels.
        problems: What is wrong with captions, image sizes and the mask.
        outside: See `share_outside`.
    """

    unreadable: str | None = None
    size: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    outside: float | None = None


def check_pairs(batch: Batch) -> tuple[Batch, list[tuple[dict[str, Any], PairCheck]]]:
    """The columns other than images, and each row with its check. The source's own bytes of images are written."""
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    rest = {name: values for name, values in batch.items() if name not in IMAGES}
    return rest, [(row, check_pair(row)) for row in rows]


def check_pair(row: dict[str, Any]) -> PairCheck:
    try:
        original, edited, mask = read_pair(row)
    except Unreadable as error:
        return PairCheck(str(error))
    size = {"height": original.height, "width": original.width}
    problems = caption_problems(row["coco_caption"], row["inpaint_caption"]) + image_problems(original, edited, mask)
    return PairCheck(None, size, tuple(problems), share_outside(original, edited, mask))


def read_pair(row: dict[str, Any]) -> tuple[Image.Image, Image.Image, Mask]:
    """The original, the edited image and the mask of a row.

    Raises:
        Unreadable: for one that is missing or cannot be decoded.
    """
    original, edited, mask = (_decode(row[name], name) for name in IMAGES)
    return original, edited, read_mask(mask)


def caption_problems(caption: str | None, other: str | None) -> list[str]:
    """What is wrong with two captions, which are compared without case, white space and a full stop at the end."""
    plain = [" ".join((text or "").casefold().split()).rstrip(".") for text in (caption, other)]
    if not all(plain):
        return [EMPTY_CAPTION]
    return [SAME_CAPTIONS] if plain[0] == plain[1] else []


def image_problems(original: Image.Image, edited: Image.Image, mask: Mask) -> list[str]:
    """What is wrong with an edited image and its mask; pixels outside the mask are the matter of `share_outside`."""
    found = [IMAGE_SIZES] if edited.size != original.size else []
    if mask.shape != (original.height, original.width):
        # Nothing else can be checked with a mask of another size.
        return [*found, MASK_SIZE]
    if not mask.any():
        return [*found, EMPTY_MASK]
    if mask.all():
        found.append(FULL_MASK)
    if edited.size == original.size and not is_changed(original, edited, mask):
        found.append(UNCHANGED)
    return found


def share_outside(original: Image.Image, edited: Image.Image, mask: Mask) -> float | None:
    """The share of pixels that differ, of those beyond the mask and its feathered border, 0 to 1.

    None where there are no such pixels, or sizes differ.
    """
    if edited.size != original.size or mask.shape != (original.height, original.width):
        return None
    # The border is blended on purpose: its pixels may differ.
    pixels = int((~enlarge(mask, FEATHER, FEATHER)).sum())
    return changed_outside(original, edited, mask) / pixels if pixels else None


def _decode(image: Any, name: str) -> Image.Image:
    if image is None or (image["bytes"] is None and not image["path"]):
        raise Unreadable(f"{NO_IMAGE}: {name}")
    try:
        return decode_image(image, where=f"column {name!r}")
    except (ValueError, OSError) as error:
        raise Unreadable(f"{BAD_IMAGE}: {without_local_paths(str(error))}") from error


def pseudonyms(names: Iterable[str | None]) -> dict[str, str]:
    """`annotator 1` and so on for each person, in the order in which they come first; `automatic` stays.

    Args:
        names: Names of people, with repetitions; None and empty ones have no pseudonym.
    """
    spellings = first_spellings(name for name in names if name and name != AUTOMATIC)
    people = {name: f"annotator {number}" for number, name in enumerate(dict.fromkeys(spellings.values()), start=1)}
    return {AUTOMATIC: AUTOMATIC} | {name: people[first] for name, first in spellings.items()}
