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
    """An image is missing or cannot be decoded. The message is the reason for setting the row aside."""


@dataclass(frozen=True)
class PairCheck:
    """Result of checking a row.

    Attributes:
        unreadable: Reason why an image cannot be read. If set, nothing else was checked.
        size: Height and width of the original, in pixels.
        problems: Problems of captions, image sizes and the mask.
        outside: See `share_outside`.
    """

    unreadable: str | None = None
    size: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    outside: float | None = None


def check_pairs(batch: Batch) -> tuple[Batch, list[tuple[dict[str, Any], PairCheck]]]:
    """Returns the columns except images, whose bytes are written unchanged, and each row with its check."""
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
        Unreadable: If one is missing or cannot be decoded.
    """
    original, edited, mask = (_decode(row[name], name) for name in IMAGES)
    return original, edited, read_mask(mask)


def caption_problems(caption: str | None, other: str | None) -> list[str]:
    """The problems of two captions, compared without case, extra white space and a final full stop."""
    plain = [" ".join((text or "").casefold().split()).rstrip(".") for text in (caption, other)]
    if not all(plain):
        return [EMPTY_CAPTION]
    return [SAME_CAPTIONS] if plain[0] == plain[1] else []


def image_problems(original: Image.Image, edited: Image.Image, mask: Mask) -> list[str]:
    """The problems of an edited image and its mask. `share_outside` covers pixels outside the mask."""
    problems = [IMAGE_SIZES] if edited.size != original.size else []
    if mask.shape != (original.height, original.width):
        # Nothing else can be checked if the mask has another size.
        return [*problems, MASK_SIZE]
    if not mask.any():
        return [*problems, EMPTY_MASK]
    if mask.all():
        problems.append(FULL_MASK)
    if edited.size == original.size and not is_changed(original, edited, mask):
        problems.append(UNCHANGED)
    return problems


def share_outside(original: Image.Image, edited: Image.Image, mask: Mask) -> float | None:
    """The share of pixels outside the mask and its feathered border that differ, 0 to 1.

    None if there are no such pixels or if sizes differ.
    """
    if edited.size != original.size or mask.shape != (original.height, original.width):
        return None
    # The border is blended on purpose, so its pixels may differ.
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
    """A pseudonym such as `annotator 1` for each person, in the order of first occurrence; `automatic` stays.

    Args:
        names: Names of people, possibly repeated. None and empty names get no pseudonym.
    """
    spellings = first_spellings(name for name in names if name and name != AUTOMATIC)
    people = {name: f"annotator {number}" for number, name in enumerate(dict.fromkeys(spellings.values()), start=1)}
    return {AUTOMATIC: AUTOMATIC} | {name: people[first] for name, first in spellings.items()}
