"""Statistics other than means: medians, correlations and kappa, with intervals over draws of images."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hfcomp.statistics.bootstrap import FEWEST_DRAWS
from hfcomp.statistics.clusters import Numbers

Places = NDArray[np.intp]
Draws = NDArray[np.uint8]
Key = TypeVar("Key", bound=Hashable)
BLOCK = 64
"""Draws at a time, which limits memory use."""
ROUNDING = 1e-12
"""Share of the mean square below which a variance is only the rounding error of a constant."""


class Statistic(Protocol):
    """A function from draws to a number.

    Attributes:
        images: `[n]`, number of each item's image. An image is drawn with all of its items.
    """

    images: Places

    def __call__(self, draws: Draws) -> Numbers:
        """Maps how often each image is drawn, `[B, I]`, to a number per draw, `[B]`; NaN if undefined."""
        ...


class Median:
    """Median of drawn items, from values `[n]` and the numbers `[n]` of their images."""

    def __init__(self, values: Numbers, images: Places) -> None:
        order = np.argsort(values, kind="stable")
        self._sorted, self.images = np.asarray(values, dtype=np.float64)[order], images[order]

    def __call__(self, draws: Draws) -> Numbers:
        """Returns the mean of the two middle items, like `numpy.median` of the repeated items."""
        return np.array([self._median(draw) for draw in draws])

    def _median(self, draw: Draws) -> float:
        # The values are sorted once. A draw only changes how often each value occurs, so its median is found in the
        # running total of counts without sorting again.
        below = np.cumsum(draw.take(self.images), dtype=np.int64)
        total = int(below[-1]) if len(below) else 0
        if not total:
            return float("nan")
        middle = np.searchsorted(below, [(total + 1) // 2, total // 2 + 1], side="left")
        return float(self._sorted[middle].mean())


class Pearson:
    """Pearson's correlation of drawn items, from -1 to 1; NaN if one of the two is constant."""

    def __init__(self, first: Numbers, second: Numbers, images: Places) -> None:
        # The correlation is the same for standardized values, while sums of squares of large values with a small
        # spread would cancel, so their variance would be the rounding error.
        x, y = (_standardize(np.asarray(values, dtype=np.float64)) for values in (first, second))
        columns = np.ones(len(x)), x, y, x * x, y * y, x * y
        self.images = images
        self._sums = np.stack([np.bincount(images, column) for column in columns], axis=1)  # by image

    def __call__(self, draws: Draws) -> Numbers:
        # Computed from sums over each image's items, so all draws are a single product
        number, *means = (draws[:, : len(self._sums)].astype(np.float64) @ self._sums).T
        with np.errstate(invalid="ignore", divide="ignore"):  # for draws without an item
            x, y, xx, yy, xy = means / number
            spreads = [np.where(square - mean**2 > ROUNDING * square, square - mean**2, np.nan)
                       for square, mean in ((xx, x), (yy, y))]  # fmt: skip
            return np.clip((xy - x * y) / np.sqrt(spreads[0] * spreads[1]), -1, 1)


class Spearman:
    """Spearman's correlation of drawn items, ranked again in every draw; NaN if one of the two is constant."""

    def __init__(self, first: Numbers, second: Numbers, images: Places) -> None:
        # Sorted by one of the two, to read memory in order
        order = np.argsort(first, kind="stable")
        self.images = images[order]
        self._ranks = [_Ranks(values[order]) for values in (first, second)]

    def __call__(self, draws: Draws) -> Numbers:
        return np.array([self._correlation(draw.take(self.images)) for draw in draws])

    def _correlation(self, times: Draws) -> float:
        (first, spread), (second, other) = (ranks(times) for ranks in self._ranks)
        if not (spread > 0 and other > 0):
            return float("nan")
        return float(np.clip((times * first) @ second / np.sqrt(spread * other), -1, 1))


class Kappa:
    """Cohen's kappa of two raters of drawn items, from -1 to 1; NaN if all ratings are in one category.

    Source: Cohen, "A coefficient of agreement for nominal scales" (1960), equation 1.

    Args:
        first: `[n]`, categories of the first rater, from 0.
        second: `[n]`, categories of the second rater.
        images: `[n]`, image numbers as in `Statistic`.
        categories: Number of categories.
    """

    def __init__(self, first: Places, second: Places, images: Places, categories: int) -> None:
        self.images, self._categories = images, categories
        cells = np.asarray(first, dtype=np.intp) * categories + np.asarray(second, dtype=np.intp)
        self._cells = np.zeros((int(images.max(initial=-1)) + 1, categories**2))  # by image
        np.add.at(self._cells, (images, cells), 1)

    def __call__(self, draws: Draws) -> Numbers:
        tables = draws[:, : len(self._cells)].astype(np.float64) @ self._cells
        tables = tables.reshape(len(draws), self._categories, self._categories)
        with np.errstate(invalid="ignore", divide="ignore"):  # for draws without an item
            tables /= tables.sum(axis=(1, 2), keepdims=True)
            observed = np.trace(tables, axis1=1, axis2=2)
            expected = (tables.sum(axis=1) * tables.sum(axis=2)).sum(axis=1)
            return np.where(expected < 1 - ROUNDING, (observed - expected) / (1 - expected), np.nan)


class _Ranks:
    """Ranks of drawn items. Items that are equal, or drawn several times, share the middle of their ranks."""

    def __init__(self, values: Numbers) -> None:
        self._order = np.argsort(values, kind="stable")
        last = np.diff(values[self._order], append=np.nan) != 0  # last member of a group of equal items
        self._ends = np.flatnonzero(last)
        self._group = np.empty(len(values), dtype=np.intp)
        self._group[self._order] = np.cumsum(last) - last

    def __call__(self, times: Draws) -> tuple[Numbers, float]:
        """Returns `[n]`, each item's rank minus the mean rank, and the sum of its squares over drawn items.

        Args:
            times: `[n]`, how often each item is drawn.
        """
        # Ranks run from 1 to the number drawn. A group of equal values that ends at `upto` with `size` members has the
        # middle rank upto - (size - 1) / 2. The mean rank, (upto[-1] + 1) / 2, is subtracted from it.
        upto = np.cumsum(times.take(self._order), dtype=np.int64).take(self._ends)
        size = np.diff(upto, prepend=0)
        ranks = (2 * upto - size - upto[-1]) * 0.5
        return ranks.take(self._group), float((size * ranks) @ ranks)


def _standardize(values: Numbers) -> Numbers:
    centered = values - values.mean()
    spread = float(np.mean(centered**2))
    # A constant leaves only rounding errors, whose correlation would be meaningless.
    is_constant = spread <= 1e-20 * max(1.0, float(np.abs(values).max()) ** 2)
    return centered / (np.nan if is_constant else np.sqrt(spread))


@dataclass(frozen=True)
class Resampled:
    """A statistic and its values in draws of images. Two are subtracted draw by draw.

    Attributes:
        value: Value for the original items.
        draws: `[resamples]`, value per draw.
        images: Distinct numbers of the items' images.
    """

    value: float
    draws: Numbers
    images: Places

    def __sub__(self, other: Resampled) -> Resampled:
        images = np.union1d(self.images, other.images)
        return Resampled(self.value - other.value, self.draws - other.draws, images)

    def bounds(self) -> dict[str, float]:
        """Returns `low` and `high` of the 95% percentile interval; NaN with a single image."""
        low, high = percentile_interval(self.draws) if len(self.images) > 1 else (np.nan, np.nan)
        return {"low": low, "high": high}


def resample(statistics: Mapping[Key, Statistic], draws: Draws, *, progress: bool = False) -> dict[Key, Resampled]:
    """Computes statistics of the original items and of draws of images with replacement, each with all its items.

    All statistics see the same draws, so two of them can be subtracted draw by draw: shared images are paired, and
    others are independent.

    Args:
        statistics: Statistics by name.
        draws: `[resamples, images]`, from `ImageBootstrap`.
        progress: Whether to show a bar.
    """
    values = {key: np.full(len(draws), np.nan) for key in statistics}
    for start in tqdm(range(0, len(draws), BLOCK), desc="draws", disable=not progress, leave=False):
        block = draws[start : start + BLOCK]
        for key, statistic in statistics.items():
            values[key][start : start + BLOCK] = statistic(block)
    once = np.ones((1, draws.shape[1]), dtype=np.uint8)
    return {
        key: Resampled(float(statistic(once)[0]), values[key], np.unique(statistic.images))
        for key, statistic in statistics.items()
    }


def percentile_interval(draws: Numbers, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of draws `[resamples]`; NaN if fewer than 100 of them are defined."""
    known = draws[np.isfinite(draws)]
    if len(known) < FEWEST_DRAWS:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
