"""Image decoding: one set of rules turns any image value of a row into 8-bit RGB, or raises an error that names it."""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

from hfcomp.data.urls import UrlAccess, current_access, is_url, open_named, redact
from hfcomp.platforms import hold_at_fork

IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
"""Supported formats, whatever a file's extension; AVIF only if this Pillow supports it. JPEG includes MPO files from
phones. Pillow's other formats are rejected: PostScript would start Ghostscript, and the readers of rare formats are
hardly tested."""
MAX_IMAGE_PIXELS = 178_956_970
"""Largest image, width times height, that is decoded or created by resizing. Pillow raises above this size by default
(it warns at half of it), so any image that opens elsewhere opens here. As RGB it takes 512 MiB."""

_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TRANSPARENT_MODES = ("RGBA", "RGBa", "LA", "La", "PA")
_ARRAY_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
# Single-frame formats, which close their file once they are decoded.
_OWNED_FORMATS = ("JPEG", "PNG")
# For 16-bit gray images in these formats, Pillow may use mode I, whose values do not distinguish a dark image from an
# 8-bit image.
_SIXTEEN_BIT_FORMATS = ("PNG", "PPM")
DROP_ROW = "Remove the row or replace the image"
Unreadable = (ValueError, TypeError, OSError)
"""Errors that `decode_image` raises for an image."""
SKIP_ADVICE = "Or skip and count such rows: --skip_damaged on the command line, skip_damaged=True in Python."
"""Advice that commands with this option add to the error about a damaged image."""


class DamagedImage(ValueError):
    """Error for an image whose content cannot be used by any reader."""


_pillow_limit_lock = threading.Lock()
hold_at_fork(_pillow_limit_lock)  # DataLoader workers are forked


def decode_image(
    value: Any,
    *,
    where: str = "image",
    max_pixels: int = MAX_IMAGE_PIXELS,
    urls: UrlAccess | None = None,
    shortest_side: int | None = None,
) -> Image.Image:
    """Decodes any image value of a dataset row to a new 8-bit RGB image, or raises an error with the reason.

    | `value` | interpreted as |
    |---|---|
    | `{"bytes": ..., "path": ...}` | the bytes, otherwise the file at `path` (an Image column with `decode=False`) |
    | `PIL.Image.Image` | the image itself, at its current frame; it is never changed |
    | `str`, `Path` | a file, a member of an archive (`zip://a.jpg::set.zip`), or a URL if URLs are allowed |
    | `bytes`, `bytearray`, `memoryview` | an encoded file |
    | numpy array, bool, uint8 or uint16 | `[H, W]` or `[H, W, C]`, C = 1, 2 (gray and alpha), 3, 4 (RGB and alpha) |

    | input | result |
    |---|---|
    | 1, L, P, CMYK, YCbCr, HSV, LAB | converted if this Pillow can; embedded color profiles are not applied |
    | RGBA, LA, PA, premultiplied, any mode with a transparent color | composited on white |
    | I;16 (all byte orders), uint16 array | 16 bits to 8: divided by 257 and rounded, so 65535 becomes 255 |
    | I from a PNG or PPM | treated like I;16 |
    | I from other sources | 8 bits if the largest value is at most 255, 16 bits if at most 65535, else error |
    | F, float array, other integer arrays | error: the white level is unknown |
    | bool array | black and white |
    | 16-bit color PNG or TIFF | Pillow reads the high byte of each channel |
    | EXIF orientation | rotated upright; a damaged EXIF block counts as upright |
    | animation, multi-page | the first frame |
    | 1 pixel wide or high | accepted (see `is_tiny`) |
    | a format not in `IMAGE_FORMATS` | error that names the format, without decoding |
    | over `max_pixels` | error based on the header, before any pixel is decoded |
    | truncated or corrupt | error (truncated files pass if you set `PIL.ImageFile.LOAD_TRUNCATED_IMAGES = True`) |

    Args:
        value: Image value of the row.
        where: Place that starts every error message, such as `"column 'image', row 17"`.
        max_pixels: Maximum width times height. Pillow's own `MAX_IMAGE_PIXELS` has no effect.
        urls: Limits for downloading URLs. Defaults to the value passed to `hfcomp.data.urls.set_url_access`; without
            one, nothing is downloaded.
        shortest_side: Allows the decoder to read a JPEG file at 1/2, 1/4 or 1/8 of its size, as long as its shorter
            side keeps this many pixels. This is faster but changes pixels, so use it only for training.

    Returns:
        A new image of mode RGB with all pixels loaded and no metadata.

    Raises:
        ValueError: If the value is empty, too large, truncated or corrupt, or its range is unknown; if its format is
            not supported, or it is a URL that is not allowed.
        TypeError: If the value is of a kind that the table above does not list.
        FileNotFoundError: If there is no file at the path.
        OSError: If the file exists but cannot be read (a folder, or no permission), or a URL failed.
    """
    if isinstance(value, Mapping):
        value, path = _bytes_or_path(value, where)
    else:
        path = None
    if value is None:
        raise ValueError(
            f"{where} is empty. Every row needs an image in this column; remove the row or add the image."
        )
    if isinstance(value, (str, os.PathLike)):
        with _open_file(value, where, current_access(urls)) as stream:
            return _decode(stream, f"{where} (file {redact(os.fspath(value))!r})", max_pixels, shortest_side)
    if isinstance(value, (bytes, bytearray, memoryview)):
        place = f"{where} (file {redact(path)!r})" if path else where
        return _decode(BytesIO(value), place, max_pixels, shortest_side)
    if isinstance(value, Image.Image):
        _check_size(value.size, where, max_pixels)
        _load(value, where)
        return _to_rgb(value, where)
    if isinstance(value, np.ndarray):
        return _to_rgb(_from_array(value, where, max_pixels), where)
    raise TypeError(
        f"{where} contains a {type(value).__name__}. Expected a PIL image, a dict with 'bytes' or 'path', a path, "
        "encoded bytes, or a uint8 numpy array [H, W, 3]. If a format is set on the dataset, remove it with "
        "dataset.with_format(None)."
    )


def is_tiny(image: Image.Image) -> bool:
    """Whether an image is 1 pixel wide or high: usable, but nearly always a placeholder for a failed download."""
    return min(image.size) == 1


def _bytes_or_path(value: Mapping[str, Any], where: str) -> tuple[Any, str | None]:
    if "bytes" not in value and "path" not in value:
        keys = sorted(map(str, value))
        raise TypeError(
            f"{where} contains a dict with keys {keys}. Expected 'bytes' or 'path'; store it as datasets.Image()."
        )
    path = value.get("path")
    content = value.get("bytes")
    return (path, None) if content is None else (content, os.fspath(path) if path else None)


def open_image(stream: BinaryIO) -> Image.Image:
    # Encoded images are opened only here. Without `formats`, Pillow would try all of its readers.
    return Image.open(stream, formats=_formats())


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in IMAGE_FORMATS if name in Image.OPEN)


def unsupported_format(start: bytes) -> str:
    """Names an unsupported format from the first bytes of a file; empty if the format is unknown."""
    # This runs only Pillow's tests of the first bytes, never a reader; the name is for the error message.
    if start.startswith(b"%PDF"):
        return "PDF"
    for name, (_, accept) in Image.OPEN.items():
        try:
            if name not in IMAGE_FORMATS and accept is not None and accept(start) is True:
                return name
        except Exception:  # these tests expect whole headers
            continue
    return ""


def _open_file(path: str | os.PathLike[str], where: str, urls: UrlAccess | None) -> BinaryIO:
    name = os.fspath(path)
    if is_url(name):
        return open_named(name, where, urls)
    try:
        return open_named(name, where)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{where} names the file {name!r}, which does not exist. Relative paths start at {os.getcwd()!r}; "
            "use absolute paths, or load the dataset with the images embedded in it."
        ) from error
    except OSError as error:
        raise OSError(f"{where} names {name!r}, which cannot be read: {error}. Expected a readable file.") from error


@contextmanager
def _pillow_limit(pixels: int) -> Iterator[None]:
    # Pillow reads its limit, a process-wide global, while it opens a header: it warns above the limit and raises above
    # twice the limit. Our limit replaces it for that moment, so a lower or disabled Pillow limit has no effect. The
    # warning would only duplicate our own error.
    with _pillow_limit_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _decode(stream: BinaryIO, where: str, max_pixels: int, shortest_side: int | None) -> Image.Image:
    try:
        with _pillow_limit(max_pixels):
            image = open_image(stream)
    except Image.DecompressionBombError as error:
        raise DamagedImage(_too_large(where, f"more than {max_pixels:,} pixels", max_pixels)) from error
    except UnidentifiedImageError as error:
        stream.seek(0)
        start = stream.read(32)
        content = f"it starts with {start[:16]!r}" if start else "it has 0 bytes"
        if name := unsupported_format(start):
            content = f"it looks like {name}"
        raise DamagedImage(
            f"{where} is not in a supported image format ({', '.join(_formats())}): {content}. {DROP_ROW}."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise anything from struct.error to KeyError on damaged bytes
        raise DamagedImage(_unreadable(where, error)) from error
    _check_size(image.size, where, max_pixels)
    if shortest_side is not None and image.format == "JPEG":
        scale = shortest_side / min(image.size)
        image.draft(image.mode, (math.ceil(scale * image.width), math.ceil(scale * image.height)))
    _load(image, where)
    if _is_plain_rgb(image):  # a conversion would copy the image
        image.info = {}
        return image
    return _to_rgb(image, where)


def _is_plain_rgb(image: Image.Image) -> bool:
    """Whether a decoded file is already RGB and has no metadata that changes its appearance."""
    if image.mode != "RGB" or image.format not in _OWNED_FORMATS or "transparency" in image.info:
        return False
    try:
        return not len(image.getexif())
    except Exception:  # damaged metadata, which _to_rgb drops
        return False


def _load(image: Image.Image, where: str) -> None:
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # the same range of errors as in _decode
        raise DamagedImage(_unreadable(where, error)) from error


def _unreadable(where: str, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"{where} cannot be decoded because it is truncated or corrupt: {reason}. {DROP_ROW}."


def _too_large(where: str, size: str, max_pixels: int) -> str:
    return (
        f"{where} has {size}. The limit is {max_pixels:,} pixels. Shrink the image or, if you trust its source, "
        "raise max_image_pixels of the trainer or collator (max_pixels of decode_image)."
    )


def _check_size(size: tuple[int, int], where: str, max_pixels: int) -> None:
    width, height = size
    if width * height == 0:
        raise DamagedImage(f"{where} has {width} x {height} pixels, so it is empty. {DROP_ROW}.")
    if width * height > max_pixels:
        raise DamagedImage(_too_large(where, f"{width:,} x {height:,} = {width * height:,} pixels", max_pixels))


def _from_array(array: np.ndarray, where: str, max_pixels: int) -> Image.Image:
    kind = (array.dtype.kind, array.dtype.itemsize)
    if kind not in (("b", 1), ("u", 1), ("u", 2)):
        raise TypeError(
            f"{where} contains an array of {array.dtype}, whose white level is unknown. Expected bool, uint8 or "
            "uint16. Scale it to 0..255 and cast it with .astype(numpy.uint8)."
        )
    channels = 1 if array.ndim == 2 else array.shape[-1]
    if array.ndim not in (2, 3) or channels not in _ARRAY_MODES:
        raise ValueError(
            f"{where} contains an array of shape {list(array.shape)}. Expected [H, W] or [H, W, channels] with 1 to 4 "
            "channels. If the channels come first, use array.transpose(1, 2, 0)."
        )
    _check_size((array.shape[1], array.shape[0]), where, max_pixels)
    if kind[0] == "b":
        array = array.astype(np.uint8) * 255
    elif kind[1] == 2:
        array = _eight_bits(array)
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and channels == 1 else array))


def _eight_bits(values: np.ndarray) -> np.ndarray:
    # 65535 / 257 is exactly 255, so white stays white; adding 128 rounds to the nearest value.
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _integers_to_gray(image: Image.Image, where: str) -> Image.Image:
    values = np.asarray(image)
    if image.mode == "I":
        lowest, highest = int(values.min()), int(values.max())
        if lowest < 0 or highest > 65535:
            raise DamagedImage(
                f"{where} has 32-bit pixels from {lowest} to {highest}, whose white level is unknown. Expected "
                "0..255 or 0..65535. Rescale the image and save it with 8 bits."
            )
        if highest <= 255 and image.format not in _SIXTEEN_BIT_FORMATS:
            return Image.fromarray(values.astype(np.uint8))
    return Image.fromarray(_eight_bits(values))


def _orientation(image: Image.Image) -> int:
    try:
        return image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # damaged metadata does not affect the pixels, which are already decoded
        return 1


def _to_rgb(image: Image.Image, where: str) -> Image.Image:
    transpose = _TURNS.get(_orientation(image))
    if image.mode == "F":
        raise DamagedImage(
            f"{where} has float pixels (mode F), whose white level is unknown. Expected 8 or 16 bits. Rescale the "
            "image to 0..255 and save it with 8 bits."
        )
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = _integers_to_gray(image, where)
    try:
        if image.mode in _TRANSPARENT_MODES or "transparency" in image.info:
            # Premultiplied gray can be converted to RGBA only via LA.
            image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
            ground = Image.new("RGB", image.size, "white")
            ground.paste(image, mask=image)
            image = ground
        else:
            image = image.convert("RGB")
    except ValueError as error:
        raise DamagedImage(f"{where} has mode {image.mode}: {error}. Save it as RGB.") from error
    # An orientation left in the metadata would rotate the image again if it were decoded a second time.
    image.info = {}
    return image if transpose is None else image.transpose(transpose)
