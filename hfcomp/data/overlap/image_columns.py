"""Columns of images of a training set and of an evaluation: cells, sure names, and what each image is counted by."""

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
# A file must have twelve digits. Otherwise an id made from the name of any file would be taken for COCO's.
_COCO_NUMBER = re.compile(r"(?:COCO_[a-z]+201[457]_)?(\d{12}|\d{1,12}(?=$))(?:\.\w+)?")
_COCO_WORDS = re.compile(r"COCO (\d{1,12})")  # as VALSE's reader has it
_NUMBERED_FILE = re.compile(r"(?:^|[/\\:])0{6}(\d{6})(?:\.\w+)?(?:$|::)")


def photograph_name(image_id: Any = None, source: Any = None, path: Any = None) -> Name | None:
    """The source of an image and its name there, where these are sure: another name is then another image.

    A bare number counts only if the source is COCO: other sets have names of twelve digits too, and each
    split may number its rows from 0.
    """
    source = str(source).strip() if source else ""
    if source.startswith(SANDBOX) and image_id is not None:
        return SANDBOX, str(image_id)
    of_coco = _COCO_SOURCE.fullmatch(source) is not None
    number = _COCO_NUMBER.fullmatch(str(image_id)) if of_coco and image_id is not None else None
    for text in (image_id, path) if of_coco or not source else ():
        if number is None and isinstance(text, str):
            number = _COCO_FILE.search(text) or _COCO_WORDS.fullmatch(text)
            number = number or (_NUMBERED_FILE.search(text) if of_coco else None)
    return None if number is None else (COCO, str(int(number[1])))


OPEN = "open"  # the kind of an image without a name that is sure


@dataclass(frozen=True)
class ScoredImages:
    """A column of images that an evaluation scores.

    Attributes:
        name: in messages, such as "SugarCrepe".
        cells: as `decode_image` takes them; `None` for a missing one.
        ids: `image_id` of each, where they have one.
        sources: `source` of each, likewise.
    """

    name: str
    cells: Sequence[Any]
    ids: Sequence[Any] | None = None
    sources: Sequence[Any] | None = None


@dataclass(frozen=True)
class ImageColumn:
    """A column of images.

    Attributes:
        name: in messages.
        cells: as `decode_image` takes them.
        names: of each, where it is sure.
        keys: what each is counted by; `None` for a missing one.
    """

    name: str
    cells: Sequence[Any]
    names: list[Name | None]
    keys: list[Any]

    def called(self, row: int) -> str:
        name = self.names[row]
        return f"{self.name}, row {row}" + (f" ({' '.join(name)})" if name else "")


def training_column(dataset: Dataset, column: str) -> ImageColumn:
    """A column of a training set; the name of a row is that of its `image` alone."""
    ids, sources = (dataset[name][:] if name in dataset.column_names else None for name in ("image_id", "source"))
    if column != "image":  # another image than the one that is called so, of the same source
        ids = [f"{column} of {row if ids is None else ids[row]}" for row in range(len(dataset))] if sources else None
        sources = sources and [one if str(one).startswith(SANDBOX) else None for one in sources]
    return _image_column(f"column '{column}'", undecoded(dataset.select_columns([column]))[column], ids, sources)


def scored_columns(scored: Sequence[ScoredImages]) -> list[ImageColumn]:
    return [_image_column(one.name, one.cells, one.ids, one.sources) for one in scored]


def _image_column(
    name: str, cells: Sequence[Any], ids: Sequence[Any] | None, sources: Sequence[Any] | None
) -> ImageColumn:
    def found(row: int, path: Any = None) -> Name | None:
        return photograph_name(ids[row] if ids else None, sources[row] if sources else None, path)

    names = [found(row) for row in range(len(cells))]
    keys: list[Any] = [*names]
    for row, cell in each_cell(cells, [row for row, known in enumerate(names) if known is None]):
        content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, cell)
        names[row] = found(row, path)
        own = (name, row if ids is None or ids[row] is None else str(ids[row]))
        file = path if content is None and isinstance(path, str) else None
        keys[row] = None if content is None and path is None else names[row] or file or own
    return ImageColumn(name, cells, names, keys)


def each_cell(cells: Sequence[Any], rows: Sequence[int]) -> Iterator[tuple[int, Any]]:
    # Only the cells of a few hundred images are in memory at a time.
    for start in range(0, len(rows), AT_A_TIME):
        part = rows[start : start + AT_A_TIME]
        yield from zip(part, cells_of(cells, part), strict=True)


def kind_of(name: Name | None) -> str:
    """Whose name an image has: `COCO`, `SANDBOX` or `OPEN`."""
    return OPEN if name is None else name[0]
