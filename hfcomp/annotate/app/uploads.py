"""Uploads of pages: strokes of the brush, which are received here and not by Gradio."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.responses import JSONResponse, PlainTextResponse, Response

from hfcomp.data.annotations.masks import Mask
from hfcomp.data.images import open_image
from hfcomp.writing import write_bytes

# Most bytes of an upload. A PNG of flat strokes is far smaller.
MOST_BYTES = 32 * 2**20
# Most pixels of an uploaded image, by its header: what large cameras make, and 200 MB once decoded.
MOST_PIXELS = 50_000_000
# Formats of uploads: strokes, and the image that they were drawn on, which an editor sends back.
FORMATS = ("PNG", "JPEG")
# Most bytes of uploads that are kept, per session and in total. A file is removed once its strokes are read.
MOST_OF_A_SESSION, MOST_IN_ALL = 4 * MOST_BYTES, 16 * MOST_BYTES
# Concurrent uploads, each in memory as a whole. Others wait.
MOST_AT_A_TIME = 6
# Seconds until an upload whose strokes nobody read is removed.
KEPT_SECONDS = 120.0
_MINUTES = KEPT_SECONDS / 60


@dataclass(frozen=True)
class _Kept:
    """An upload on disk."""

    session: str
    size: int
    time: float


class Uploads:
    """The uploads of all pages.

    Attributes:
        slots: those of the uploads under way.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        self._kept: dict[Path, _Kept] = {}
        self._reserved: dict[int, tuple[str, int]] = {}
        self.slots = asyncio.Semaphore(MOST_AT_A_TIME)
        self._secret = secrets.token_bytes(32)
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def receiving(self, session: str, length: int | None) -> Iterator[Upload]:
        """An upload, for which there is room: what it announces counts before it arrives.

        Args:
            length: bytes that are announced; None counts as the most there may be.
        """
        upload, size = Upload(self, session), MOST_BYTES if length is None else length
        if size <= MOST_BYTES:  # a longer one is refused when it is read
            upload.refusal = self._refusal(session, size)
        if not upload.refusal:
            # Counted before it arrives: uploads that start together would otherwise all find room.
            self._reserved[id(upload)] = (session, size)
        try:
            yield upload
        finally:
            self._reserved.pop(id(upload), None)

    def keep(self, session: str, content: bytes) -> Path:
        """Writes a file that a session sent, once: an editor sends the same ones with each event."""
        # Named by session and content: nobody can guess the file of another session, and a repeated upload is one
        # file.
        name = hmac.new(self._secret, session.encode() + b"\0" + content, hashlib.sha256).hexdigest()
        path = self.folder / f"{name}.image"
        if not path.exists():
            write_bytes(path, content)
        self._kept[path] = _Kept(session, len(content), self._clock())
        return path

    def remove(self, value: Any) -> None:
        """Removes the files of an editor's value, whose strokes were read; files that nobody sent stay."""
        files = value.get("files", ()) if isinstance(value, Mapping) else ()
        for path in map(Path, files):
            # A page may send any path, so only files of our own folder are removed.
            if path.parent == self.folder:
                path.unlink(missing_ok=True)

    def _refusal(self, session: str, size: int) -> str:
        self._forget()
        kept = [(one.session, one.size) for one in self._kept.values()] + list(self._reserved.values())
        if size + sum(number for _, number in kept) > MOST_IN_ALL:
            return f"All uploads together would exceed {MOST_IN_ALL / 2**20:g} MB. Try again in {_MINUTES:g} minutes."
        if size + sum(number for name, number in kept if name == session) > MOST_OF_A_SESSION:
            return f"Your uploads would exceed {MOST_OF_A_SESSION / 2**20:g} MB. Try again in {_MINUTES:g} minutes."
        return ""

    def _forget(self) -> None:
        now = self._clock()
        # Strokes that nobody reads, such as those of a closed page, must not fill the disk.
        for path in [path for path, one in self._kept.items() if now - one.time > KEPT_SECONDS or not path.exists()]:
            path.unlink(missing_ok=True)
            del self._kept[path]


class Upload:
    """An upload under way.

    Attributes:
        refusal: why it is refused; empty otherwise.
    """

    def __init__(self, uploads: Uploads, session: str) -> None:
        self._uploads, self._session, self.refusal = uploads, session, ""

    async def answer(self, headers: Headers, body: bytes) -> Response:
        """Keeps the images and answers with their paths, as Gradio does."""

        async def stream() -> AsyncIterator[bytes]:
            yield body

        try:
            form = await MultiPartParser(headers, stream(), max_files=16, max_fields=0).parse()
            contents = [await one.read() for _, one in form.multi_items() if isinstance(one, UploadFile)]
            await form.close()
            for content in contents:
                check_header(content)
        except (MultiPartException, KeyError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse([str(self._uploads.keep(self._session, content)) for content in contents])


def check_header(content: bytes) -> None:
    """Checks the header of an uploaded image; no pixel is decoded.

    Raises:
        ValueError: for what is not of `FORMATS`, or has more than `MOST_PIXELS`.
    """
    try:
        with _without_warning(), open_image(BytesIO(content)) as image:
            if image.format not in FORMATS:
                raise ValueError(f"Found an image of format {image.format}, expected {' or '.join(FORMATS)}.")
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(
                    f"Found an image of {image.width:,} x {image.height:,} pixels, expected {MOST_PIXELS:,} or less."
                )
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"Found a file that is not an image or too large: {error}") from error


@contextmanager
def _without_warning() -> Iterator[None]:
    """Pillow warns of large images; ours are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def strokes(value: Any, size: tuple[int, int]) -> Mask:
    """The strokes that a page sent, drawn on any of its layers.

    Args:
        value: Value of a `gradio.ImageEditor` of type filepath: its layers are files.
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
