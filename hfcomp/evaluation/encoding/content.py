"""Content keys of images, texts and processor settings."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from hfcomp.data.images import decode_image
from hfcomp.evaluation.encoding.cache import KEY_BYTES
from hfcomp.evaluation.encoding.cells import Crop, Fitted, Inset, box_digest


def processor_facts(processor: Any) -> dict[str, Any]:
    """How images become pixels and texts tokens, apart from lengths and padding, which are hfcomp's."""
    from hfcomp.data.tokenizing import vocabulary  # with torch, which keys do not need

    settings = json.loads(processor.image_processor.to_json_string())
    words = digest(vocabulary(processor.tokenizer).encode()).hex()
    return {
        "pixels": {"class": type(processor.image_processor).__name__, **settings},
        "tokenizer": {"class": type(processor.tokenizer).__name__, "vocabulary": words},
    }


def distinct(keys: Iterable[bytes | None]) -> tuple[list[bytes], NDArray[np.int64], list[int]]:
    """The distinct keys, which of them each row has (-1 for none), and the row where each stands first."""
    number: dict[bytes, int] = {}
    index, first = [], []
    for row, key in enumerate(keys):
        if key is None:
            index.append(-1)
            continue
        if key not in number:
            number[key] = len(first)
            first.append(row)
        index.append(number[key])
    return list(number), np.array(index, dtype=np.int64), first


def digest(content: Any) -> bytes:
    """A key of `KEY_BYTES` bytes for some bytes."""
    return hashlib.sha256(content).digest()[:KEY_BYTES]


def check_text(text: Any, row: int) -> str:
    """A text that is one.

    Raises:
        TypeError: for what is not a text, with its row.
    """
    if not isinstance(text, str):
        raise TypeError(f"texts, entry {row}: found {text!r}, expected a text. Remove such entries.")
    return text


def text_key(text: Any, row: int) -> bytes:
    """A key that two texts share when they are the same as written.

    Raises:
        TypeError: for what is not a text, with its row.
    """
    return digest(check_text(text, row).encode("utf-8", "surrogatepass"))


def tokens_key(ids: Sequence[int]) -> bytes:
    """A key that two texts share when a model sees them alike: their token ids."""
    return digest(np.asarray(ids, dtype=np.int64).tobytes())


def decoded(value: Any, where: str) -> Image.Image:
    """The image of a cell, a part of it, or all of it padded to a square."""
    if isinstance(value, Crop):
        return decode_image(value.cell, where=where).crop(value.box)
    if isinstance(value, Fitted):
        # of Pillow's filters the one that comes nearest to the files of HierarCaps' authors
        image, side = decode_image(value.cell, where=where), (value.side, value.side)
        return ImageOps.pad(image, side, Image.Resampling.HAMMING, color="white")
    if isinstance(value, Inset):
        image, edge = decode_image(value.cell, where=where), value.edge
        if min(image.size) <= 2 * edge:
            raise ValueError(f"{where}: {image.width} x {image.height} pixels are all within {edge} of an edge.")
        return image.crop((edge, edge, image.width - edge, image.height - edge))
    return decode_image(value, where=where)


def image_key(value: Any, where: str) -> bytes | None:
    """A key equal for equal images: of the file's bytes, else of the pixels; for a part, of where it is too."""
    if isinstance(value, Crop):
        return box_digest(image_key(value.cell, where), value.box)
    if isinstance(value, Fitted | Inset):
        own, how = image_key(value.cell, where), type(value).__name__.lower()
        size = value.side if isinstance(value, Fitted) else value.edge
        return None if own is None else digest(own + f"{how} {size}".encode())
    if isinstance(value, dict):
        value = value.get("bytes") if value.get("bytes") is not None else value.get("path")
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return digest(value)
    if isinstance(value, str | os.PathLike) and Path(value).is_file():
        return digest(Path(value).read_bytes())
    image = decode_image(value, where=where)
    return digest(b"%d %d " % image.size + image.tobytes())
