"""Tables of items with a column per number: means, differences and other statistics over shared draws."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.resampling import Numbers, Places, Resampled, Statistic, resample

Column = Hashable
Bounds = tuple[float, float] | None
Estimate = dict[str, Any]


class WideTables:
    """Tables that may have different items, unlike those of `summarize`, and may show the same images.

    Images with the same name are one image in all tables: a draw takes it with its items of all tables. What two
    tables share is thereby paired, and everything else is independent. As `Outcomes`, each number would be a row: 8.5
    million rows for three tables of 113,000 items and 25 columns.

    Args:
        tables: Columns `[n]` of each table, by the table's name; NaN if an item has no such number.
        images: Image of each item, `[n]`, by table.
        seed: Random seed for the draws.
        progress: Whether to show bars.

    Attributes:
        tables: The given tables.
        images: Number of each item's image, `[n]`, by table.
    """

    def __init__(
        self,
        tables: Mapping[str, Mapping[Column, Numbers]],
        images: Mapping[str, Sequence[str] | NDArray[Any]],
        *,
        seed: int = 0,
        progress: bool = False,
    ) -> None:
        self.tables, self._progress = tables, progress
        ids = [np.asarray(images[name], dtype=str) for name in tables]
        known, index = np.unique(np.concatenate(ids), return_inverse=True)
        ends = np.cumsum([len(names) for names in ids])[:-1]
        self.images: dict[str, Places] = dict(zip(tables, np.split(index, ends), strict=True))
        self.bootstrap = ImageBootstrap(np.arange(len(known)), seed=seed)

    def means(self, bounds: Mapping[Column, Bounds]) -> dict[tuple[str, Column], Estimate]:
        """Computes, by table and column, the mean with its interval and the numbers of items and images.

        Args:
            bounds: Bounds of an item's value by column. These columns are summarized.
        """
        # Columns of a table with the same items share a pass over the draws.
        groups = [
            (name, limits, columns)
            for name in self.tables
            for limits in dict.fromkeys(bounds.values())
            for columns in self._columns_by_items([column for column, own in bounds.items() if own == limits], name)
        ]
        means = {}
        for name, limits, columns in tqdm(groups, desc="intervals", disable=not self._progress, leave=False):
            values, images = self._stack_columns(name, columns)
            ends = self.bootstrap.interval(values, images, bounds=limits)
            for column, own, low, high in zip(columns, values.T, *ends, strict=True):
                means[name, column] = _estimate(own.mean(), low, high) | _counts(images)
        return means

    def mean(self, name: str, column: Column, rows: NDArray[np.bool_]) -> Estimate:
        """Computes the mean, as in `means`, over those of some rows that have the number."""
        present = rows & np.isfinite(self.tables[name][column])
        values, images = self.tables[name][column][present], self.images[name][present]
        return _estimate(values.mean(), *self.bootstrap.interval(values, images, bounds=None)) | _counts(images)

    def differences(self, columns: Iterable[Column]) -> dict[Column, list[Estimate]]:
        """Computes, by column, the difference of means (`first` minus `second`) of every two tables that have it."""
        columns = list(columns)
        pairs = combinations(self.tables, 2)
        groups = [(*pair, own) for pair in pairs for own in self._columns_by_items(columns, *pair)]
        differences: dict[Column, list[Estimate]] = {}
        for first, second, own in tqdm(groups, desc="differences", disable=not self._progress, leave=False):
            for column, difference in zip(own, self._difference(first, second, own), strict=True):
                differences.setdefault(column, []).append({"first": first, "second": second, **difference})
        return differences

    def _difference(self, first: str, second: str, columns: Sequence[Column]) -> Iterator[Estimate]:
        (values, images), (others, other_images) = (self._stack_columns(name, columns) for name in (first, second))
        # Paired image by image, it is the same interval, and quicker. Otherwise the difference is twice the mean of
        # one table's mean and the negated mean of the other, which is a mean of two subsets.
        if np.array_equal(images, other_images):
            low, high = self.bootstrap.interval(values - others, images, bounds=None, difference=True)
        else:
            halves = [(values, images), (-others, other_images)]
            low, high = (2 * end for end in self.bootstrap.macro_interval(halves, bounds=None, difference=True))
        shared = len(np.intersect1d(images, other_images))
        for change, *ends in zip(values.mean(axis=0) - others.mean(axis=0), low, high, strict=True):
            yield _estimate(change, *ends) | {"shared_images": shared}

    def resample(self, statistics: Mapping[Any, Statistic]) -> dict[Any, Resampled]:
        return resample(statistics, self.bootstrap.draws, progress=self._progress)

    def _columns_by_items(self, columns: Iterable[Column], *names: str) -> list[list[Column]]:
        """Groups the columns that all of these tables have by the items with a number."""
        groups: dict[tuple[bytes, ...], list[Column]] = {}
        for column in columns:
            present = [np.isfinite(self.tables[name][column]) for name in names if column in self.tables[name]]
            if len(present) == len(names) and all(own.any() for own in present):
                groups.setdefault(tuple(own.tobytes() for own in present), []).append(column)
        return list(groups.values())

    def _stack_columns(self, name: str, columns: Sequence[Column]) -> tuple[Numbers, Places]:
        """Stacks columns that have the same items to `[m, M]`, with the images of these items, sorted by image."""
        values = np.stack([self.tables[name][column] for column in columns], axis=1)
        present = np.flatnonzero(np.isfinite(values[:, 0]))
        present = present[np.argsort(self.images[name][present], kind="stable")]
        return values[present], self.images[name][present]


def _estimate(value: float, low: float, high: float) -> Estimate:
    return {"value": float(value), "low": float(low), "high": float(high)}


def _counts(images: Places) -> dict[str, int]:
    return {"items": len(images), "images": len(np.unique(images))}
