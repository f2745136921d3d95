"""Folders of images that each have a text file of their name beside them: `a/1.jpg` and `a/1.txt`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Features, Image, List, Value

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
SPLITS = ("train", "validation", "val", "test")
FEATURES = Features({"image": Image(), "caption": List(Value("string")), "image_id": Value("string")})
# What `datasets` takes for the captions of an image folder, or reads instead of its images.
_OTHERS = (".parquet", ".jsonl", ".csv", ".tar", ".arrow", ".zip")


def is_captioned_folder(folder: Path) -> bool:
    """Whether images have texts beside them, by the first folder with images; nothing else that describes them."""
    if not folder.is_dir() or any(path.suffix in _OTHERS for path in folder.iterdir()):
        return False
    for _, names in _walk(folder):
        stems = {Path(name).stem for name in names if name.lower().endswith(SUFFIXES)}
        if stems:
            return any(name.endswith(".txt") and name[: -len(".txt")] in stems for name in names)
    return False


def has_images(folder: Path) -> bool:
    """Whether there are images in a folder or below it."""
    return any(name.lower().endswith(SUFFIXES) for _, names in _walk(folder) for name in names)


def captioned_splits(folder: Path) -> dict[str, Path]:
    """The folders of the splits; without folders of their names everything is `train`."""
    return {name: folder / name for name in SPLITS if (folder / name).is_dir()} or {"train": folder}


def read_captioned_folder(folder: Path, names: Iterable[str]) -> DatasetDict:
    """Splits of a folder of images and texts; each line of a text file is a caption.

    An image without a text file has no caption, so that whatever reads the rows names it.

    Args:
        folder: sub-folders are read too.
        names: of the splits; those that are not there are left out of the result.

    Raises:
        ValueError: for a text file that is not UTF-8.
    """
    places = captioned_splits(folder)
    return DatasetDict({name: _read(places[name]) for name in names if name in places})


def _read(folder: Path) -> Dataset:
    rows: dict[str, list[Any]] = {name: [] for name in FEATURES}
    for place, names in _walk(folder):
        texts = set(names)
        for name in names:
            if name.lower().endswith(SUFFIXES):
                image, text = place / name, f"{Path(name).stem}.txt"
                rows["image"].append({"path": str(image), "bytes": None})
                rows["caption"].append(_captions(place / text) if text in texts else [])
                rows["image_id"].append(image.relative_to(folder).with_suffix("").as_posix())
    return Dataset.from_dict(rows, features=FEATURES)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with their files in order, hidden ones left out."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield Path(place), sorted(name for name in names if not name.startswith("."))


def _captions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    return [line.strip() for line in lines if line.strip()]
