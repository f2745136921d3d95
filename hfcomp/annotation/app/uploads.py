"""What a page sends: strokes of the brush."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hfcomp.data.annotations.masks import Mask
from hfcomp.data.images import open_image

MOST_BYTES = 32 * 2**20
"""Of an upload: a PNG of flat strokes is far smaller."""


def strokes(value: Any, size: tuple[int, int]) -> Mask:
    """The strokes that a page sent, drawn on any of its layers.

    Args:
        value: of a `gradio.ImageEditor` of type filepath: its layers are files.
        size: width and height of the image that was drawn on, in pixels.

    Returns:
        `[H, W]`, true where a layer is at least half opaque.

    Raises:
        ValueError: for no layer, or one that is not a PNG with transparency of the image's size.
    """
    layers = value.get("layers") if isinstance(value, Mapping) else None
    if not layers:
        raise ValueError("There is no stroke. Draw on the image with the brush first.")
    found = np.zeros((size[1], size[0]), dtype=bool)
    for layer in layers:
        found |= _layer(Path(layer), size)
    return found


def _layer(path: Path, size: tuple[int, int]) -> Mask:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"The strokes are a file of more than {MOST_BYTES / 2**20:.0f} MB. Draw them again.")
    try:
        with path.open("rb") as stream, open_image(stream) as image:
            if image.format != "PNG":
                raise ValueError(f"The strokes are not a PNG image, but {image.format}. Draw them again.")
            if image.size != size or "A" not in image.getbands():  # before it is decoded
                raise ValueError(
                    f"The strokes are {image.width} x {image.height} pixels of mode {image.mode}, expected "
                    f"{size[0]} x {size[1]} with transparency. Draw them again."
                )
            return np.asarray(image.getchannel("A")) >= 128
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"The strokes are not a PNG image that can be read: {error}. Draw them again.") from error
