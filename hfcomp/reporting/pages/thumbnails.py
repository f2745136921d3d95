"""Small pictures as data URIs, so that a page needs no other file."""

from __future__ import annotations

import base64
import io
from typing import NamedTuple

from PIL import Image, ImageChops, ImageFilter

QUALITY = 75
"""Of JPEG."""
TINT = (255, 64, 32)
TINT_ALPHA = 38
"""Of a mask's area, 0 to 255: faint, since an edit may be a change of colour."""


class Thumbnail(NamedTuple):
    """A picture of a page.

    Attributes:
        uri: with its bytes inside.
        width: in pixels.
        height: likewise.
    """

    uri: str
    width: int
    height: int


Cell = Thumbnail | str | None
"""A picture, or why there is none, or None where an item has no image."""


class Thumbnails:
    """The distinct pictures of a page, each once.

    Args:
        distinct: receives them.
    """

    def __init__(self, distinct: list[Thumbnail]) -> None:
        self.distinct = distinct
        self._numbers: dict[str, int] = {}

    def number(self, cell: Cell) -> int | str | None:
        """The number of a picture among the distinct ones; what is none stays as it is."""
        if not isinstance(cell, Thumbnail):
            return cell
        if cell.uri not in self._numbers:
            self._numbers[cell.uri] = len(self.distinct)
            self.distinct.append(cell)
        return self._numbers[cell.uri]


def thumbnail(image: Image.Image, side: int) -> Thumbnail:
    """A picture whose longer side has at most `side` pixels; a smaller image keeps its size.

    It is a JPEG, or a PNG where the image kept its size and that is shorter, as of a drawing.

    Args:
        image: RGB; it is not changed.
        side: in pixels.
    """
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    kinds = ("JPEG", "PNG") if small.size == image.size else ("JPEG",)
    content, kind = min(((_encoded(small, kind), kind) for kind in kinds), key=lambda one: len(one[0]))
    return _with_uri(content, kind, small)


def mask_overlay(mask: Image.Image, size: tuple[int, int]) -> Thumbnail:
    """A picture to lay over another: tinted where the mask is lighter than middle grey, with a line around it.

    Args:
        mask: of any mode and size.
        size: width and height of the picture below it, in pixels.
    """
    area = mask.convert("L").resize(size, Image.Resampling.NEAREST).point(lambda value: 255 * (value > 127))
    outline = ImageChops.subtract(area.filter(ImageFilter.MaxFilter(3)), area)
    alpha = ImageChops.add(area.point(lambda value: TINT_ALPHA * (value > 0)), outline)
    picture = Image.new("RGBA", size, (*TINT, 0))
    picture.putalpha(alpha)
    few = picture.quantize(4)
    return _with_uri(_encoded(few, "PNG"), "PNG", few)


def _encoded(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, quality=QUALITY, optimize=True)
    return stream.getvalue()


def _with_uri(content: bytes, kind: str, image: Image.Image) -> Thumbnail:
    return Thumbnail(f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}", *image.size)
