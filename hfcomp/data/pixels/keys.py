"""What an image is found by in a store of pixels: its encoded bytes, and the file or URL that they are read from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from PIL import Image

from hfcomp.data.images import Unreadable
from hfcomp.data.urls import UrlAccess, current_access, is_url, open_named

KEY_BYTES = 16


class ImageKeys:
    """The keys of a row's value, one after the other, as each costs more than the one before.

    A file on this machine is first known by path, size and time of change, without being opened, and a URL by its
    text, without being fetched; both also by content. Content is hashed by XXH3 (128 bits): fast, and made against
    accidents, not against an author who wants two files to collide.

    Args:
        value: what `decode_image` takes.
        urls: as for `decode_image`.
    """

    def __init__(self, value: Any, *, urls: UrlAccess | None = None) -> None:
        self._urls, self._value = urls, value
        self.path: str | None = None
        self.content: Any = None
        if isinstance(value, Mapping):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        if isinstance(value, (str, os.PathLike)):
            self.path = os.fspath(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self.content = value
        elif isinstance(value, Image.Image):
            self.content = f"{value.mode} {value.size} ".encode() + value.tobytes()
        elif isinstance(value, np.ndarray):
            self.content = f"{value.dtype} {value.shape} ".encode() + value.tobytes()

    @property
    def value(self) -> Any:
        """What to decode: the value, or its bytes where they have been read."""
        if self.path is None or self.content is None:
            return self._value
        return {"bytes": self.content, "path": self.path}

    def of_place(self) -> bytes | None:
        """The key of a file or URL; `None` where there is none."""
        if self.path is None:
            return None
        if is_url(self.path):
            return _digest(f"url\0{self.path}".encode())
        try:
            state = Path(self.path).stat()
        except OSError:  # such as a member of an archive
            return None
        return _digest(f"file\0{os.path.abspath(self.path)}\0{state.st_size}\0{state.st_mtime_ns}".encode())

    def of_content(self) -> bytes | None:
        """The key of the encoded bytes; `None` where they cannot be read, which decoding then reports."""
        if self.content is None and self.path is not None:
            try:
                with open_named(self.path, "image", current_access(self._urls)) as stream:
                    self.content = stream.read()
            except Unreadable:
                return None
        return None if self.content is None else _digest(self.content)


def _digest(content: Any) -> bytes:
    return xxhash.xxh3_128_digest(content)
