"""Differences of models that were trained with several seeds: what other images and other seeds would change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.statistics.bootstrap import LEVEL, ImageBootstrap
from hfcomp.statistics.clusters import Images, Subsets
from hfcomp.statistics.significance import macro_standard_error

# Points of the numerical integral of Student's t; its error is far below what is printed.
GRID = 4001
FEWEST_SEEDS = 3
"""Two seeds are neither one, whose interval is over images, nor enough: their spread is known too badly."""


def difference_over_seeds(
    bootstrap: ImageBootstrap,
    seeds: Sequence[Sequence[NDArray[np.float64]]],
    images: Sequence[Images],
    *,
    weights: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> dict[str, float]:
    """The mean difference over seeds, with an interval and a p that hold for other images and other seeds.

    The variance of the mean is the sum of two: that of the seeds' means over their number, with as many degrees of
    freedom as there are seeds less one, and that of the images. The second is estimated without the variance of images
    and seeds together (an image that one seed happens to get right), which the first includes. The statistic is
    compared with a mixture of Student's t of either number of degrees of freedom, in the shares that both variances
    have: Satterthwaite's single number of degrees of freedom covers too little with few seeds, because it is computed
    from the same uncertain variance. The interval is never narrower, and p never smaller, than those of
    `ImageBootstrap.macro_difference` on outcomes averaged over seeds, which say what other images would change.

    Args:
        bootstrap: of the images.
        seeds: for each seed the paired differences `[n]` of every subset.
        images: of each subset, `[n]`.
        weights: what each subset's mean counts; by default all the same.
        bounds: of the models' own values.

    Returns:
        `value`, `low`, `high`, `p`, and `seeds`, their number. With one seed the numbers are of the images alone, on
        this seed. With two, bounds and p are NaN. Bounds are NaN where the images give none; where the images'
        variance is not known (a subset of a single image), p is the larger of theirs and that of a t-test over the
        seeds' means.
    """
    averaged: Subsets = [
        (np.mean(of_subset, axis=0)[:, None], names)
        for of_subset, names in zip(zip(*seeds, strict=True), images, strict=True)
    ]
    found = {
        key: float(value[0])
        for key, value in bootstrap.macro_difference(averaged, weights=weights, bounds=bounds).items()
    }
    found["seeds"] = len(seeds)
    if len(seeds) == 1:
        return found
    if len(seeds) < FEWEST_SEEDS:
        return found | dict.fromkeys(("low", "high", "p"), math.nan)
    means = [np.average([part.mean() for part in subsets], weights=weights) for subsets in seeds]
    of_seeds = float(np.var(means, ddof=1)) / len(seeds)
    of_images = _variance_of_images(seeds, images, averaged, weights)
    known = math.isfinite(of_images)
    variance = of_seeds + (of_images if known else 0.0)
    if variance == 0:
        return found
    share, fewest = of_seeds / variance, min(len(set(names)) for names in images)

    def tail(t: float) -> float:
        of_image = (1 - share) * students_tail(t, fewest - 1) if share < 1 else 0.0
        return share * students_tail(t, len(seeds) - 1) + of_image

    found["p"] = max(found["p"], tail(found["value"] / math.sqrt(variance)))
    if not known or math.isnan(found["low"]):
        return found
    half = two_sided_quantile(tail) * math.sqrt(variance)
    found["low"] = min(found["low"], found["value"] - half)
    found["high"] = max(found["high"], found["value"] + half)
    if bounds:
        widest = bounds[1] - bounds[0]
        found["low"], found["high"] = max(found["low"], -widest), min(found["high"], widest)
    return found


def _variance_of_images(
    seeds: Sequence[Sequence[NDArray[np.float64]]],
    images: Sequence[Images],
    averaged: Subsets,
    weights: Sequence[float] | None,
) -> float:
    """The variance of the mean by the choice of images, without that of images and seeds together; NaN if unknown.

    With `a` the first and `e` the second, a single seed's mean varies by `a + e`, the average of S by `a + e / S`.
    """
    number = len(seeds)
    columns = [np.stack(own, axis=1) for own in zip(*seeds, strict=True)]
    of_one = float(np.mean(macro_standard_error(list(zip(columns, images, strict=True)), weights) ** 2))
    of_average = float(macro_standard_error(averaged, weights)[0]) ** 2
    of_images = (number * of_average - of_one) / (number - 1)
    return max(0.0, of_images) if math.isfinite(of_images) else math.nan


def students_tail(t: float, freedom: float) -> float:
    """How often Student's t is further from 0 than `t`, on either side.

    Args:
        t: the statistic.
        freedom: degrees of freedom, above 0; no whole number is needed.
    """
    # with t = sqrt(freedom) tan(angle), the density is cos(angle) ** (freedom - 1) up to a factor
    start = math.atan(abs(t) / math.sqrt(freedom))
    parts = []
    for low in (start, 0.0):
        middles = low + (np.arange(GRID) + 0.5) * (math.pi / 2 - low) / GRID
        parts.append(float((np.cos(middles) ** (freedom - 1)).mean()) * (math.pi / 2 - low))
    return parts[0] / parts[1]


def two_sided_quantile(tail: Callable[[float], float], level: float = LEVEL) -> float:
    """The statistic that `tail` makes `1 - level`."""
    low, high = 0.0, 1.0
    while tail(high) > 1 - level:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - level else (low, middle)
    return high
