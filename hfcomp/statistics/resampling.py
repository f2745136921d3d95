"""Statistics that are no means, such as medians and correlations, with intervals over draws of images."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from hfcomp.statistics.bootstrap import FEWEST_DRAWS

RESAMPLES = 2000
Numbers = NDArray[np.float64]
Statistic = Callable[[Numbers], float]
"""From how often each of its items is drawn, `[n]`, to a number; NaN where it is not defined."""
Key = TypeVar("Key", bound=Hashable)


class Median:
    """The median of drawn items.

    Args:
        values: `[n]`.
    """

    def __init__(self, values: Numbers) -> None:
        self._order = np.argsort(values, kind="stable")
        self._sorted = np.asarray(values, dtype=np.float64)[self._order]

    def __call__(self, weights: Numbers) -> float:
        """The mean of the two items in the middle, as `numpy.median` of the repeated items."""
        below = np.cumsum(weights[self._order])
        total = below[-1] if len(below) else 0
        if total <= 0:
            return float("nan")
        middle = np.searchsorted(below, [total / 2, total / 2 + 0.5], side="left")
        return float(self._sorted[middle].mean())


class Correlation:
    """Pearson's correlation of drawn items, or Spearman's, whose ranks are taken anew in every draw.

    Args:
        first: `[n]`.
        second: `[n]`.
        ranks: Spearman's.
    """

    def __init__(self, first: Numbers, second: Numbers, *, ranks: bool = False) -> None:
        self._values = [np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)]
        self._ranks = [_Ranks(values) for values in self._values] if ranks else None

    def __call__(self, weights: Numbers) -> float:
        """From -1 to 1; NaN where one of the two is constant."""
        total = weights.sum()
        if total <= 0:
            return float("nan")
        pair = [ranks(weights) for ranks in self._ranks] if self._ranks else self._values
        centred = [values - (weights @ values) / total for values in pair]
        spreads = [float(weights @ one**2) for one in centred]
        # of a constant, what is left is rounding
        still = [
            spread <= 1e-20 * total * max(1.0, float(np.abs(values).max(initial=0.0)) ** 2)
            for spread, values in zip(spreads, pair, strict=True)
        ]
        if any(still):
            return float("nan")
        return float(np.clip((weights * centred[0]) @ centred[1] / np.sqrt(spreads[0] * spreads[1]), -1, 1))


class _Ranks:
    """Ranks of weighted values: items that are equal, or drawn several times, share the middle of theirs."""

    def __init__(self, values: Numbers) -> None:
        self._group = np.unique(values, return_inverse=True)[1]

    def __call__(self, weights: Numbers) -> Numbers:
        size = np.bincount(self._group, weights)
        return (np.cumsum(size) - (size - 1) / 2)[self._group]


def draw_statistics(
    statistics: Mapping[Key, tuple[Statistic, NDArray[np.intp]]],
    images: int,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: bool = False,
) -> dict[Key, Numbers]:
    """The values of statistics in draws of images with replacement: an image comes with all of its items.

    All statistics see the same draws, so that two of them can be subtracted draw by draw: what they share is paired,
    and what they do not share is independent.

    Args:
        statistics: of each, the function and `[n]`, the number of each item's image.
        images: how many images there are.
        resamples: number of draws.
        seed: of the draws.
        progress: whether to show a bar.

    Returns:
        Of each `[resamples]`.
    """
    generator = np.random.default_rng(seed)
    found = {key: np.full(resamples, np.nan) for key in statistics}
    for draw in tqdm(range(resamples), desc="draws", disable=not progress, leave=False):
        counts = np.bincount(generator.integers(images, size=images), minlength=images).astype(np.float64)
        for key, (statistic, image) in statistics.items():
            found[key][draw] = statistic(counts[image])
    return found


def percentile_interval(draws: Numbers, level: float = 0.95) -> tuple[float, float]:
    """The percentile interval of draws; NaN where fewer than 100 of them are defined.

    Args:
        draws: `[resamples]`.
        level: coverage.
    """
    known = draws[np.isfinite(draws)]
    if len(known) < FEWEST_DRAWS:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
