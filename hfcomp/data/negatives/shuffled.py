"""Training rows with the negatives of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from hfcomp.data.draws.captions import columns_by_caption
from hfcomp.data.loading import TrainingRows
from hfcomp.data.neighbours import NEIGHBOUR_COLUMNS
from hfcomp.fields import FIELDS, columns_of


def derangement(photographs: Sequence[Any], seed: int) -> NDArray[np.int64]:
    """A random permutation of rows that gives each the number of another row, of another photograph if possible.

    If one photograph has more than half of the rows, some of them get rows of their own photograph.

    Args:
        photographs: of each row, at least 2 rows; equal values are one photograph.
        seed: of the draw.
    """
    order = np.random.default_rng(seed).permutation(len(photographs))
    places: dict[Any, int] = {}
    group = np.array([places.setdefault(photographs[row], len(places)) for row in order])
    order = order[np.argsort(group, kind="stable")]
    # rows of a photograph now stand together: a shift by the most that one has leaves each of them
    most = min(int(np.bincount(group).max()), len(order) - 1)
    partners = np.empty(len(order), dtype=np.int64)
    partners[order] = np.roll(order, most)
    return partners


def is_negative(column: str) -> bool:
    """Whether a column describes negatives or neighbours; the mask is of the negative image."""
    return column.startswith("negative_") or column in ("mask", "neighbour_ids")


class ShuffledNegatives(TrainingRows):
    """Training rows whose negatives are another row's, missing ones too; nothing is copied.

    Args:
        dataset: in the column contract.
        partners: `[n]`, the row whose negatives each row gets.
    """

    def __init__(self, dataset: Dataset, partners: NDArray[np.int64]) -> None:
        columns = [*dict.fromkeys((*columns_of(FIELDS), *NEIGHBOUR_COLUMNS))]
        super().__init__(dataset, [name for name in columns if not is_negative(name)])
        self.negatives = TrainingRows(dataset, [name for name in columns if is_negative(name)])
        self.partners = partners
        self.by_caption = columns_by_caption(self.negatives.features)

    @property
    def features(self) -> dict[str, Any]:
        """The type of each column."""
        return {**super().features, **self.negatives.features}

    def column(self, name: str) -> list[Any]:
        """A column of all rows, of the partners where it is of negatives."""
        if not is_negative(name):
            return super().column(name)
        values = self.negatives.column(name)
        shuffled = [values[partner] for partner in self.partners]
        if name not in self.by_caption:
            return shuffled
        return [_fitted(one, captions) for one, captions in zip(shuffled, super().column("caption"), strict=True)]

    def number_of_entries(self, name: str) -> int:
        """How many rows have something in a column: as many as their partners."""
        return self.negatives.number_of_entries(name) if is_negative(name) else super().number_of_entries(name)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Rows by index, each with the negatives of its partner."""
        own = super().__getitems__(indices)
        others = self.negatives.__getitems__(self.partners[indices].tolist())
        for row, other in zip(own, others, strict=True):
            other |= {name: _fitted(other[name], row["caption"]) for name in self.by_caption}
        return [{**other, **row} for row, other in zip(own, others, strict=True)]


def _fitted(values: list[Any] | None, captions: list[str]) -> list[Any] | None:
    """Negatives of each caption of the partner, for as many captions as the row has: repeated where it has more."""
    return [values[place % len(values)] for place in range(len(captions))] if values else values
