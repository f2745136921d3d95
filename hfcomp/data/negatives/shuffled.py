"""Training rows with the negatives of other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from hfcomp.data.loading import TrainingRows
from hfcomp.data.neighbours import NEIGHBOUR_COLUMNS
from hfcomp.fields import FIELDS, columns_of


def derangement(number: int, seed: int) -> NDArray[np.int64]:
    """A random permutation of `range(number)` without fixed points: one cycle through all of them.

    Args:
        number: at least 2.
        seed: of the draw.
    """
    order = np.random.default_rng(seed).permutation(number)
    partners = np.empty(number, dtype=np.int64)
    partners[order] = np.roll(order, 1)
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

    def column(self, name: str) -> list[Any]:
        """A column of all rows, of the partners where it is of negatives."""
        if not is_negative(name):
            return super().column(name)
        values = self.negatives.column(name)
        return [values[partner] for partner in self.partners]

    def number_of_entries(self, name: str) -> int:
        """How many rows have something in a column: as many as their partners."""
        return self.negatives.number_of_entries(name) if is_negative(name) else super().number_of_entries(name)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Rows by index, each with the negatives of its partner."""
        own = super().__getitems__(indices)
        others = self.negatives.__getitems__(self.partners[indices].tolist())
        return [{**other, **row} for row, other in zip(own, others, strict=True)]
