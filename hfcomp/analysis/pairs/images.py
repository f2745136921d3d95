"""The images of a set of pairs, without those that cannot be read, which are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hfcomp.analysis.pairs.items import PairSet, image_features
from hfcomp.data.images import Unreadable
from hfcomp.evaluation.cells import CellsWithout, damaged_images
from hfcomp.evaluation.encoding.embed import Indexed


class ImageEncoder(Protocol):
    """What encodes images: an `Embedder`, or an `ImageEmbedder`."""

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Vectors of the distinct images; an image that is `None` gets none."""


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
        if row in self._without[column]:
            return False
        cells = self._pairs.dataset.select([row])[column]
        return cells[0] is not None and not damaged_images(cells, column)

    def _encode(self, encoder: ImageEncoder, column: str) -> Indexed:
        cells = CellsWithout(self._pairs.dataset[column], self._without[column])
        return encoder.index_images(cells, column=column, progress=self._progress)

    def _scan(self, column: str) -> bool:
        """Tries every image of a column; whether any is bad."""
        self._scanned.add(column)
        cells = CellsWithout(self._pairs.dataset[column], self._without[column])
        reasons = damaged_images(cells, column, progress=self._progress)
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
