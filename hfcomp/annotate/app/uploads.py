"""Page uploads: brush strokes, received here instead of by Gradio."""

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

# Maximum size of an upload in bytes. A PNG of flat strokes is far smaller.
MOST_BYTES = 32 * 2**20
# Maximum number of pixels of an uploaded image, according to its header: as many as large cameras produce, and 200 MB
# once decoded.
MOST_PIXELS = 50_000_000
# Formats of uploads: the strokes, and the image they were drawn on, which the editor sends back.
FORMATS = ("PNG", "JPEG")
# Maximum size of stored uploads in bytes, per session and in total. A file is removed once its strokes have been read.
MOST_OF_A_SESSION, MOST_IN_ALL = 4 * MOST_BYTES, 16 * MOST_BYTES
# Maximum number of concurrent uploads. Each is held in memory as a whole, and further uploads wait.
MOST_AT_A_TIME = 6
# Seconds until an upload is removed if its strokes are not read.
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
        slots: Semaphore that limits the concurrent uploads.
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
        """Yields an upload and reserves space for it before it arrives, or sets its `refusal` if there is none.

        Args:
            length: Announced number of bytes. None reserves the maximum.
        """
        upload, size = Upload(self, session), MOST_BYTES if length is None else length
        if size <= MOST_BYTES:  # a larger upload is rejected when it is read
            upload.refusal = self._refusal(session, size)
        if not upload.refusal:
            # Reserve space in advance. Otherwise uploads that start together would all find enough space.
            self._reserved[id(upload)] = (session, size)
        try:
            yield upload
        finally:
            self._reserved.pop(id(upload), None)

    def keep(self, session: str, content: bytes) -> Path:
        """Writes a session's file only once, because an editor sends the same files with each event."""
        # Name the file by session and content, so nobody can guess another session's files and repeated uploads share
        # one file.
        name = hmac.new(self._secret, session.encode() + b"\0" + content, hashlib.sha256).hexdigest()
        path = self.folder / f"{name}.image"
        if not path.exists():
            write_bytes(path, content)
        self._kept[path] = _Kept(session, len(content), self._clock())
        return path

    def remove(self, value: Any) -> None:
        """Removes the uploaded files of an editor's value after its strokes were read. Other files stay."""
        files = value.get("files", ()) if isinstance(value, Mapping) else ()
        for path in map(Path, files):
            # A page may send any path, so remove only files in our own folder.
            if path.parent == self.folder:
                path.unlink(missing_ok=True)

    def _refusal(self, session: str, size: int) -> str:
        self._forget()
        kept = [(file.session, file.size) for file in self._kept.values()] + list(self._reserved.values())
        if size + sum(number for _, number in kept) > MOST_IN_ALL:
            return f"All uploads together would exceed {MOST_IN_ALL / 2**20:g} MB. Try again in {_MINUTES:g} minutes."
        if size + sum(number for name, number in kept if name == session) > MOST_OF_A_SESSION:
            return f"Your uploads would exceed {MOST_OF_A_SESSION / 2**20:g} MB. Try again in {_MINUTES:g} minutes."
        return ""

    def _forget(self) -> None:
        now = self._clock()
        # Strokes that are never read, such as those of a closed page, must not fill the disk.
        for path in [path for path, file in self._kept.items() if now - file.time > KEPT_SECONDS or not path.exists()]:
            path.unlink(missing_ok=True)
            del self._kept[path]


class Upload:
    """An upload in progress.

    Attributes:
        refusal: Reason why the upload is rejected. Empty if it is accepted.
    """

    def __init__(self, uploads: Uploads, session: str) -> None:
        self._uploads, self._session, self.refusal = uploads, session, ""

    async def answer(self, headers: Headers, body: bytes) -> Response:
        """Stores the images and responds with their paths, as Gradio does."""

        async def stream() -> AsyncIterator[bytes]:
            yield body

        try:
            form = await MultiPartParser(headers, stream(), max_files=16, max_fields=0).parse()
            contents = [await file.read() for _, file in form.multi_items() if isinstance(file, UploadFile)]
            await form.close()
            for content in contents:
                check_header(content)
        except (MultiPartException, KeyError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return JSONResponse([str(self._uploads.keep(self._session, content)) for content in contents])


def check_header(content: bytes) -> None:
    """Checks the header of an uploaded image without decoding any pixels.

    Raises:
        ValueError: If the file is not an image in one of the `FORMATS`, or has more than `MOST_PIXELS` pixels.
    """
    try:
        with _without_warning(), open_image(BytesIO(content)) as image:
            if image.format not in FORMATS:
                raise ValueError(f"This image is in {image.format} format. Use {' or '.join(FORMATS)}.")
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(
                    f"This image has {image.width:,} x {image.height:,} pixels. Use one with at most {MOST_PIXELS:,}."
                )
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"This file is not an image, or it is too large: {error}") from error


@contextmanager
def _without_warning() -> Iterator[None]:
    """Silences Pillow's warning about large images, because `check_header` rejects them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def read_strokes(value: Any, size: tuple[int, int]) -> Mask:
    """Reads the strokes that a page sent, drawn on any of its layers.

    Args:
        value: Value of a `gradio.ImageEditor` of type filepath, whose layers are files.
        size: Width and height of the image that was drawn on, in pixels.

    Returns:
        Mask `[H, W]`, true where a layer is at least half opaque.

    Raises:
        ValueError: If there is no layer, or a layer is not a PNG with transparency of the image's size.
    """
    layers = value.get("layers") if isinstance(value, Mapping) else None
    if not layers:
        raise ValueError("There are no strokes. Draw on the image with the brush first.")
    mask = np.zeros((size[1], size[0]), dtype=bool)
    for layer in layers:
        mask |= _read_layer(Path(layer), size)
    return mask


def _read_layer(path: Path, size: tuple[int, int]) -> Mask:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"The file of the strokes is larger than {MOST_BYTES / 2**20:.0f} MB. Draw them again.")
    try:
        with path.open("rb") as stream, open_image(stream) as image:
            if image.format != "PNG":
                raise ValueError(f"The strokes are a {image.format} image, expected PNG. Draw them again.")
            if image.size != size or "A" not in image.getbands():  # before it is decoded
                raise ValueError(
                    f"The strokes have {image.width} x {image.height} pixels in mode {image.mode}, expected "
                    f"{size[0]} x {size[1]} with transparency. Draw them again."
                )
            return np.asarray(image.getchannel("A")) >= 128
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"The strokes are not a readable PNG image: {error}. Draw them again.") from error
