"""Differences of models that were trained with several seeds: what other images and other seeds would change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.statistics.bootstrap import LEVEL, ImageBootstrap
from hfcomp.statistics.clusters import Images, Subsets
from hfcomp.statistics.significance import macro_standard_error

# Points of the numerical integral of Student's t; its error is far below what is printed.
GRID = 4001


def difference_over_seeds(
    bootstrap: ImageBootstrap,
    seeds: Sequence[Sequence[NDArray[np.float64]]],
    images: Sequence[Images],
    *,
    weights: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> dict[str, float]:
    """The mean difference over seeds, with an interval and a p that hold for other images and other seeds.

    Of outcomes averaged over seeds, `ImageBootstrap.macro_difference` says what other images would change. Beside it
    stands a t-interval whose variance is the sum of that of the images, and of the seeds' means over their number,
    with Satterthwaite's degrees of freedom: three seeds are too few to be resampled. The interval that is returned
    spans both and p is the larger one. The variance of images and seeds together (an image that one seed happens to
    get right) is in both terms: with few seeds, the interval errs on the wide side.

    Args:
        bootstrap: of the images.
        seeds: for each seed the paired differences `[n]` of every subset.
        images: of each subset, `[n]`.
        weights: what each subset's mean counts; by default all the same.
        bounds: of the models' own values.

    Returns:
        `value`, `low`, `high`, `p`, and `seeds`, their number. With one seed the numbers are of the images alone.
        Bounds are NaN where the images give none; where the images' variance is not known (a subset of a single
        image), p is the larger of theirs and that of a t-test over the seeds' means.
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
    means = [np.average([part.mean() for part in subsets], weights=weights) for subsets in seeds]
    of_seeds = float(np.var(means, ddof=1)) / len(seeds)
    of_images = float(macro_standard_error(averaged, weights)[0]) ** 2
    known = math.isfinite(of_images)
    variance, freedom = of_seeds + (of_images if known else 0.0), len(seeds) - 1.0
    if variance == 0:
        return found
    if known:
        fewest = min(len(set(names)) for names in images)
        freedom = variance**2 / (of_images**2 / (fewest - 1) + of_seeds**2 / (len(seeds) - 1))
    found["p"] = max(found["p"], students_tail(found["value"] / math.sqrt(variance), freedom))
    if not known or math.isnan(found["low"]):
        return found
    half = students_quantile(LEVEL, freedom) * math.sqrt(variance)
    found["low"] = min(found["low"], found["value"] - half)
    found["high"] = max(found["high"], found["value"] + half)
    if bounds:
        widest = bounds[1] - bounds[0]
        found["low"], found["high"] = max(found["low"], -widest), min(found["high"], widest)
    return found


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


def students_quantile(level: float, freedom: float) -> float:
    """The `t` that `students_tail` makes `1 - level`.

    Args:
        level: such as 0.95.
        freedom: degrees of freedom, above 0.
    """
    low, high = 0.0, 1.0
    while students_tail(high, freedom) > 1 - level:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if students_tail(middle, freedom) > 1 - level else (low, middle)
    return high
