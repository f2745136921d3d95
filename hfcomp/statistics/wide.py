"""Several tables of items with a column for each number: means, differences and other statistics over shared draws."""

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
    """Tables whose items may be different ones, unlike those of `summarize`, and may show the same images.

    Images of one name are one image, whatever table they are in: a draw takes it with its items of all tables. What
    two tables share is thereby paired, and what they do not share is independent. As `Outcomes`, each number would be
    a row: 8.5 million rows for three tables of 113,000 items and 25 columns.

    Args:
        tables: by name, the columns `[n]` of each; NaN where an item has no such number.
        images: by table `[n]`, the image of each item.
        seed: of the draws.
        progress: whether to show bars.

    Attributes:
        tables: as given.
        images: by table `[n]`, the number of each item's image.
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
        ends = np.cumsum([len(one) for one in ids])[:-1]
        self.images: dict[str, Places] = dict(zip(tables, np.split(index, ends), strict=True))
        self.bootstrap = ImageBootstrap(np.arange(len(known)), seed=seed)

    def means(self, bounds: Mapping[Column, Bounds]) -> dict[tuple[str, Column], Estimate]:
        """By table and column, the mean with its interval and the numbers of items and images.

        Args:
            bounds: of an item's value, by column; these columns are summarized.
        """
        # Columns of a table with the same items share one pass over the draws.
        groups = [
            (name, limits, columns)
            for name in self.tables
            for limits in dict.fromkeys(bounds.values())
            for columns in self._alike([column for column, own in bounds.items() if own == limits], name)
        ]
        found = {}
        for name, limits, columns in tqdm(groups, desc="intervals", disable=not self._progress, leave=False):
            values, images = self._stacked(name, columns)
            ends = self.bootstrap.interval(values, images, bounds=limits)
            for column, own, low, high in zip(columns, values.T, *ends, strict=True):
                found[name, column] = _estimate(own.mean(), low, high) | _counts(images)
        return found

    def mean(self, name: str, column: Column, rows: NDArray[np.bool_]) -> Estimate:
        """The mean over some rows of a table that have the number, as in `means`."""
        there = rows & np.isfinite(self.tables[name][column])
        values, images = self.tables[name][column][there], self.images[name][there]
        return _estimate(values.mean(), *self.bootstrap.interval(values, images, bounds=None)) | _counts(images)

    def differences(self, columns: Iterable[Column]) -> dict[Column, list[Estimate]]:
        """By column the differences of the means of every two tables that have it, `first` minus `second`."""
        columns = list(columns)
        groups = [(*pair, own) for pair in combinations(self.tables, 2) for own in self._alike(columns, *pair)]
        found: dict[Column, list[Estimate]] = {}
        for first, second, own in tqdm(groups, desc="differences", disable=not self._progress, leave=False):
            for column, difference in zip(own, self._difference(first, second, own), strict=True):
                found.setdefault(column, []).append({"first": first, "second": second, **difference})
        return found

    def _difference(self, first: str, second: str, columns: Sequence[Column]) -> Iterator[Estimate]:
        (values, images), (others, other_images) = (self._stacked(name, columns) for name in (first, second))
        # Paired image by image it is the same interval, and quicker. Otherwise the difference is twice the mean of one
        # table's mean and the other's with the sign changed, which is a mean of two subsets.
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

    def _alike(self, columns: Iterable[Column], *names: str) -> list[list[Column]]:
        """The columns that all of these tables have, grouped by the items which have a number."""
        groups: dict[tuple[bytes, ...], list[Column]] = {}
        for column in columns:
            there = [np.isfinite(self.tables[name][column]) for name in names if column in self.tables[name]]
            if len(there) == len(names) and all(own.any() for own in there):
                groups.setdefault(tuple(own.tobytes() for own in there), []).append(column)
        return list(groups.values())

    def _stacked(self, name: str, columns: Sequence[Column]) -> tuple[Numbers, Places]:
        """`[m, M]`, columns that the same items have, and the images of these, in their order."""
        values = np.stack([self.tables[name][column] for column in columns], axis=1)
        there = np.flatnonzero(np.isfinite(values[:, 0]))
        there = there[np.argsort(self.images[name][there], kind="stable")]
        return values[there], self.images[name][there]


def _estimate(value: float, low: float, high: float) -> Estimate:
    return {"value": float(value), "low": float(low), "high": float(high)}


def _counts(images: Places) -> dict[str, int]:
    return {"items": len(images), "images": len(np.unique(images))}
