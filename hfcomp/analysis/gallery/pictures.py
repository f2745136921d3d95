"""The pictures of a page: small, each distinct one once; an image that cannot be read is counted and named."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, Image
from tqdm.auto import tqdm

from hfcomp.analysis.gallery.rows import ShownRows, row_id
from hfcomp.data.images import Unreadable, decode_image
from hfcomp.evaluation.cells import THREADS
from hfcomp.reporting.pages.page import Cell, Thumbnail, Thumbnails, mask_overlay, thumbnail


@dataclass
class Pictures:
    """The pictures of the rows that are shown.

    Attributes:
        distinct: each picture once.
        rows: for each row by column the number of its picture in `distinct`, why it cannot be read, or None.
        ids: of the rows.
        unreadable: by column the places, among the rows that are shown, of images that cannot be read.
    """

    distinct: list[Thumbnail] = field(default_factory=list)
    rows: list[dict[str, int | str | None]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    unreadable: dict[str, set[int]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """What a reader has to know: images that cannot be read, with the first of each column."""
        found = []
        for column, places in self.unreadable.items():
            if places:
                reason = self.rows[min(places)][column]
                number = f"{len(places):,} image{'s' * (len(places) > 1)} of column {column!r}"
                found.append(f"{number} cannot be read and {'are' if len(places) > 1 else 'is'} left out: {reason}")
        return found


def make_pictures(shown: ShownRows, side: int, *, progress: bool = False) -> Pictures:
    """Decodes and shrinks the images of all rows that are shown.

    Args:
        shown: the rows.
        side: pixels of the longer side of a picture.
        progress: whether to show a bar.

    Raises:
        ValueError: where none of the images of column `image` can be read, with the first reason.
    """
    columns = shown.images
    found = Pictures(unreadable={column: set() for column in columns})
    numbers = Thumbnails(found.distinct)
    for place, (own_id, cells) in enumerate(_made(shown, columns, side, progress)):
        found.ids.append(own_id)
        found.rows.append({column: numbers.number(cell) for column, cell in cells.items()})
        for column, cell in cells.items():
            if isinstance(cell, str):
                found.unreadable[column].add(place)
    bad = found.unreadable["image"]
    if bad and len(bad) == sum(row["image"] is not None for row in found.rows):
        raise ValueError(f"none of the {len(bad):,} images can be read; the first: {found.rows[min(bad)]['image']}")
    return found


def _made(shown: ShownRows, columns: list[str], side: int, progress: bool) -> Iterable[tuple[str, dict[str, Cell]]]:
    whole = shown.whole.select(shown.numbers)

    def make(place: int) -> tuple[str, dict[str, Cell]]:
        row = shown.dataset[place]
        return row_id(whole[place]), _row_pictures(row, columns, side, shown.numbers[place])

    with ThreadPoolExecutor(THREADS) as pool:
        made = pool.map(make, range(len(shown.numbers)))
        yield from tqdm(made, total=len(shown.numbers), desc="pictures", disable=not progress, leave=False)


def _row_pictures(row: dict[str, Any], columns: list[str], side: int, number: int) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for column in columns:
        if row[column] is None:
            cells[column] = None
            continue
        try:
            image = decode_image(row[column], where=f"column {column!r}, row {number}")
        except Unreadable as error:
            cells[column] = str(error)
            continue
        cells[column] = (
            mask_overlay(image, _size_below(cells, image.size)) if column == "mask" else thumbnail(image, side)
        )
    return cells


def _size_below(cells: dict[str, Cell], own: tuple[int, int]) -> tuple[int, int]:
    """The size of the picture that a mask lies over; columns of masks come after those of images."""
    below = next((one for one in reversed(list(cells.values())) if isinstance(one, Thumbnail)), None)
    return (below.width, below.height) if below else own


def other_images(dataset: Dataset, shown: list[str]) -> list[str]:
    """Columns of images that no page shows."""
    return [name for name, kind in dataset.features.items() if isinstance(kind, Image) and name not in shown]
