"""Urban1k's image and caption folders, which name the two files of an item alike, unpacked or in their archive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from hfcomp.evaluation.benchmarks.readers.zipped import open_archive

ARCHIVE, IMAGES, CAPTIONS = "Urban1k.zip", "image", "caption"


def unpacked(folder: Path) -> list[dict[str, Any]]:
    """The items of the two folders."""
    files = {path.stem: path for path in sorted((folder / CAPTIONS).glob("*.txt"))}
    return _rows(files, lambda path: path.read_bytes(), lambda stem: str(folder / IMAGES / f"{stem}.jpg"))


def packed(folder: Path) -> list[dict[str, Any]]:
    """The items of the archive, whose images are named by its members."""
    with open_archive(folder / ARCHIVE) as archive:
        members = [PurePosixPath(name) for name in archive.namelist()]
        captions = {path.stem: path for path in members if path.parent.name == CAPTIONS and path.suffix == ".txt"}
        images = {path.stem: str(path) for path in members if path.parent.name == IMAGES}
        return _rows(captions, lambda path: archive.read(str(path)), images.get)


def _rows(
    captions: Mapping[str, Any], read: Callable[[Any], bytes], image: Callable[[str], str | None]
) -> list[dict[str, Any]]:
    found = []
    for stem, path in captions.items():
        try:
            lines = read(path).decode("utf-8-sig").strip().splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: found bytes that are not UTF-8 ({error}). Download it again.") from error
        found.append({"item": stem, "image": image(stem), "image_id": stem, "captions": lines[:1]})
    return found
