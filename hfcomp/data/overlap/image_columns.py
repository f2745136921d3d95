"""Image columns of training sets and evaluations: cells, reliable names, and keys for counting distinct images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from hfcomp.data.loading import undecoded
from hfcomp.data.overlap.image_hashes import AT_A_TIME, cells_of

Name = tuple[str, str]
COCO, SANDBOX = "COCO", "hfcomp-sandbox"
_COCO_SOURCE = re.compile(r"(?:ms[ _-]?)?coco(?:[ _/-]?(?:captions|karpathy|train|val|test|201[457]))*", re.IGNORECASE)
_COCO_FILE = re.compile(r"(?:^|[/\\:])COCO_(?:train|val|test)201[457]_0{6}(\d{6})(?:\.\w+)?(?:$|::)")
# A file name must have twelve digits. Otherwise, an id made from any file name could pass for a COCO number.
_COCO_NUMBER = re.compile(r"(?:COCO_[a-z]+201[457]_)?(\d{12}|\d{1,12}(?=$))(?:\.\w+)?")
_COCO_WORDS = re.compile(r"COCO (\d{1,12})")  # format of VALSE's reader
_NUMBERED_FILE = re.compile(r"(?:^|[/\\:])0{6}(\d{6})(?:\.\w+)?(?:$|::)")


def photograph_name(image_id: Any = None, source: Any = None, path: Any = None) -> Name | None:
    """Returns an image's source and its name there if reliable: a different name then means a different image.

    A plain number counts only if the source is COCO, because other datasets have names of twelve digits too, and each
    split may number its rows from 0.
    """
    source = str(source).strip() if source else ""
    if source.startswith(SANDBOX) and image_id is not None:
        return SANDBOX, str(image_id)
    is_coco = _COCO_SOURCE.fullmatch(source) is not None
    number = _COCO_NUMBER.fullmatch(str(image_id)) if is_coco and image_id is not None else None
    for text in (image_id, path) if is_coco or not source else ():
        if number is None and isinstance(text, str):
            number = _COCO_FILE.search(text) or _COCO_WORDS.fullmatch(text)
            number = number or (_NUMBERED_FILE.search(text) if is_coco else None)
    return None if number is None else (COCO, str(int(number[1])))


OPEN = "open"  # kind of an image without a reliable name


@dataclass(frozen=True)
class ScoredImages:
    """A column of images that an evaluation scores.

    Attributes:
        name: Name in messages, such as "SugarCrepe".
        cells: Image values for `decode_image`; `None` if missing.
        ids: `image_id` of each image, if any.
        sources: `source` of each image, if any.
    """

    name: str
    cells: Sequence[Any]
    ids: Sequence[Any] | None = None
    sources: Sequence[Any] | None = None


@dataclass(frozen=True)
class ImageColumn:
    """A column of images.

    Attributes:
        name: Name in messages.
        cells: Image values for `decode_image`.
        names: Reliable name of each image; `None` if there is none.
        keys: Key of each image for counting; `None` if the image is missing.
    """

    name: str
    cells: Sequence[Any]
    names: list[Name | None]
    keys: list[Any]

    def describe(self, row: int) -> str:
        name = self.names[row]
        return f"{self.name}, row {row}" + (f" ({' '.join(name)})" if name else "")


def training_column(dataset: Dataset, column: str) -> ImageColumn:
    """Makes an image column of a training set. A row's name applies only to its `image`."""
    ids, sources = (dataset[name][:] if name in dataset.column_names else None for name in ("image_id", "source"))
    if column != "image":  # a different image than the named one, from the same source
        ids = [f"{column} of {row if ids is None else ids[row]}" for row in range(len(dataset))] if sources else None
        sources = sources and [source if str(source).startswith(SANDBOX) else None for source in sources]
    return _image_column(f"column '{column}'", undecoded(dataset.select_columns([column]))[column], ids, sources)


def scored_columns(scored: Sequence[ScoredImages]) -> list[ImageColumn]:
    return [_image_column(images.name, images.cells, images.ids, images.sources) for images in scored]


def _image_column(
    name: str, cells: Sequence[Any], ids: Sequence[Any] | None, sources: Sequence[Any] | None
) -> ImageColumn:
    def name_of(row: int, path: Any = None) -> Name | None:
        return photograph_name(ids[row] if ids else None, sources[row] if sources else None, path)

    names = [name_of(row) for row in range(len(cells))]
    keys: list[Any] = [*names]
    for row, cell in each_cell(cells, [row for row, known in enumerate(names) if known is None]):
        content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, cell)
        names[row] = name_of(row, path)
        own = (name, row if ids is None or ids[row] is None else str(ids[row]))
        file = path if content is None and isinstance(path, str) else None
        keys[row] = None if content is None and path is None else names[row] or file or own
    return ImageColumn(name, cells, names, keys)


def each_cell(cells: Sequence[Any], rows: Sequence[int]) -> Iterator[tuple[int, Any]]:
    # Keep only the cells of a few hundred images in memory at a time.
    for start in range(0, len(rows), AT_A_TIME):
        part = rows[start : start + AT_A_TIME]
        yield from zip(part, cells_of(cells, part), strict=True)


def kind_of(name: Name | None) -> str:
    """Returns the kind of an image's name: `COCO`, `SANDBOX` or `OPEN`."""
    return OPEN if name is None else name[0]
