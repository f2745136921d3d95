"""The images of a set of pairs, without those that cannot be read, which are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from datasets import Dataset
from tqdm.auto import tqdm

from hfcomp.analysis.pairs.items import PairSet, image_features
from hfcomp.data.images import Unreadable, decode_image
from hfcomp.evaluation.encoding.embed import Indexed

THREADS = 8


class ImageEncoder(Protocol):
    """What encodes images: an `Embedder`, or an `ImageEmbedder`."""

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Vectors of the distinct images; an image that is `None` gets none."""


class Cells(Sequence[Any]):
    """A column of images, read row by row; those of some rows are `None`."""

    def __init__(self, dataset: Dataset, column: str, without: set[int]) -> None:
        self._column, self._without = dataset[column], without

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        return None if row in self._without else self._column[row]

    def __iter__(self) -> Iterator[Any]:
        return (None if row in self._without else value for row, value in enumerate(self._column))


class PairImages:
    """The columns `image` and `negative_image` of a set.

    Args:
        pairs: the set; a note in it counts images that cannot be read.
        progress: whether to show bars.

    Attributes:
        columns: those that the set has.
    """

    def __init__(self, pairs: PairSet, *, progress: bool = False) -> None:
        self._pairs, self._progress = pairs, progress
        used = set(pairs.items["row"])
        unused = set(range(len(pairs.dataset))) - used
        self.columns = image_features(pairs)
        self._without = {column: set(unused) for column in self.columns}
        self._scanned: set[str] = set()

    def index(self, encoder: ImageEncoder, column: str) -> Indexed:
        """Encodes a column; where an image cannot be read all are tried, and the bad ones left out and counted.

        Raises:
            ValueError: where no image of the column can be read, with the first reason, or the model fails.
        """
        try:
            return self._encode(encoder, column)
        except Unreadable:
            if column in self._scanned or not self._scan(column):
                raise
        return self._encode(encoder, column)

    def readable(self, column: str, row: int) -> bool:
        """Whether there is an image that can be read."""
        cell = None if row in self._without[column] else self._pairs.dataset[column][row]
        return cell is not None and _reason(cell) is None

    def _encode(self, encoder: ImageEncoder, column: str) -> Indexed:
        cells = Cells(self._pairs.dataset, column, self._without[column])
        return encoder.index_images(cells, column=column, progress=self._progress)

    def _scan(self, column: str) -> bool:
        """Tries every image of a column; whether any is bad."""
        self._scanned.add(column)
        cells = Cells(self._pairs.dataset, column, self._without[column])
        reasons = _reasons(cells, column, progress=self._progress)
        if not reasons:
            return False
        row, reason = min(reasons.items())
        there = sum(cell is not None for cell in cells)
        if len(reasons) == there:
            raise ValueError(f"{self._pairs.source}: none of the {there:,} images can be read; the first: {reason}")
        self._without[column] |= reasons.keys()
        self._pairs.note(
            f"{len(reasons):,} of {there:,} images of column {column!r} cannot be read and are left out; the first, "
            f"in row {row}: {reason}"
        )
        return True


def _reasons(cells: Cells, column: str, *, progress: bool) -> dict[int, str]:
    """By row, why its image cannot be read."""

    def look(row: int) -> str | None:
        cell = cells[row]
        return None if cell is None else _reason(cell, f"column {column!r}, row {row}")

    with ThreadPoolExecutor(THREADS) as pool:
        rows = range(len(cells))
        looked = pool.map(look, rows)
        bar = tqdm(looked, total=len(cells), desc="looking for damaged images", disable=not progress, leave=False)
        return {row: reason for row, reason in zip(rows, bar, strict=True) if reason is not None}


def _reason(cell: Any, where: str = "image") -> str | None:
    try:
        decode_image(cell, where=where)
    except Unreadable as error:
        return str(error)
    return None
