"""Intervals for shares whose items share images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def clustered_interval(
    outcomes: NDArray[np.bool_] | NDArray[np.floating],
    clusters: Sequence[str] | NDArray,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap of the mean over items, drawing whole images.

    Items on one image are not independent: drawing items would give intervals that are too narrow.

    Args:
        outcomes: `[n]`, one value per item.
        clusters: `[n]`, each item's image.
        level: coverage.
        resamples: number of draws.
        seed: of the draws.

    Returns:
        Lower and upper bound. With fewer than two images, NaN for both.
    """
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    number = index.max() + 1 if len(index) else 0
    if number < 2:
        return float("nan"), float("nan")
    sums = np.bincount(index, weights=np.asarray(outcomes, dtype=np.float64))
    sizes = np.bincount(index)
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(number, np.full(number, 1 / number), size=resamples)
    means = (weights @ sums) / (weights @ sizes)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
