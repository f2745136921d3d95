"""Intervals for means of items that share images, and for differences over several seeds.

An image with all its items is one draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.statistics.clusters import (
    Aligned,
    Images,
    Part,
    Subsets,
    Values,
    distinct,
    parts_of,
    share_of_subsets,
)
from hfcomp.statistics.significance import differing_images, macro_sign_flip_test, macro_standard_error

# A resample that happens to hold only equal images has no spread. Its deviation is then counted in quarters of the
# spread of the whole set; otherwise sets of 60 images with few errors get intervals from 0 to 1.
LEAST_SPREAD = 0.25
# Level of the intervals of differences, consistent with p.
LEVEL = 0.95
# Counts of images that are drawn at a time: 8 MB, so that the allocator keeps them.
CELLS = 2**23
# Fewest draws from which tails can be read.
FEWEST_DRAWS = 100
# Points of the numerical integral of Student's t; its error is far below what is printed.
GRID = 4001
FEWEST_SEEDS = 3
"""Two seeds are neither one, whose interval is over images, nor enough: their spread is known too badly."""


class ImageBootstrap:
    """Intervals of means over any items of a benchmark, from one set of draws of its images.

    A draw takes as many images as the benchmark has, with replacement and with all their items, and recomputes the
    mean. The mean of a subset is then a ratio of two drawn sums; a draw without any item of the subset is left out.

    The interval is studentized: what is resampled is the deviation in units of the clustered standard error *of that
    draw*. The plain percentile interval is too narrow where images are few or a share is near 0 or 1 (simulated: 60
    images of 1 to 22 items, share 0.95: it covers 81 to 88% of the time). Source: Davison and Hinkley,
    "Bootstrap Methods and their Application" (1997), 5.2.1; the symmetric form for differences: Hall, "On symmetric
    bootstrap confidence intervals", JRSS B 50 (1988). The least spread of a draw is our choice.

    Args:
        images: the image of every item of the benchmark, in any order; repeats are expected.
        resamples: number of draws. It holds `resamples * distinct images` bytes.
        seed: of the draws.

    Attributes:
        draws: `[resamples, distinct images]`, how often each is drawn; images in sorted order.

    Raises:
        ValueError: for a missing image id, or fewer than 100 resamples.
    """

    def __init__(self, images: Images, *, resamples: int = 2000, seed: int = 0) -> None:
        if resamples < FEWEST_DRAWS:
            raise ValueError(
                f"resamples: found {resamples}, expected at least {FEWEST_DRAWS}: tails need more samples. Use 2000."
            )
        names, _ = distinct(images)
        self._position = {name: index for index, name in enumerate(names)}
        # Images are drawn, not items: items of one image are right or wrong together, and drawing them one by one
        # would treat 22 captions of a photo as 22 independent facts. All intervals of a benchmark use these same
        # draws, so a difference of two models is paired draw by draw.
        generator = np.random.default_rng(seed)
        number = len(names)
        # A count above 255 has no chance to occur, so a byte holds it.
        self.draws = np.zeros((resamples, number), dtype=np.uint8)
        for row in self.draws:
            row[:] = np.bincount(generator.integers(number, size=number), minlength=number) if number else 0

    def interval(
        self,
        values: Values,
        images: Images,
        level: float = 0.95,
        *,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        difference: bool = False,
    ) -> tuple[Any, Any]:
        """`macro_interval` of a single subset."""
        return self.macro_interval([(values, images)], level, bounds=bounds, difference=difference)

    def macro_interval(
        self,
        subsets: Subsets,
        level: float = 0.95,
        *,
        weights: Sequence[float] | None = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        difference: bool = False,
    ) -> tuple[Any, Any]:
        """Interval of a weighted mean of several subsets' means.

        Args:
            subsets: values `[n]`, or `[n, M]` for M models that share items and draws, and each item's image `[n]`.
            level: coverage.
            weights: what each subset's mean counts, in any unit; by default all the same, as in SugarCrepe's macro
                average.
            bounds: smallest and largest value that an item can have; `None` for values without such. The interval
                stays inside. Where all images have the same mean, so that draws do not differ, it shows what the
                images not seen could change: with `n` images all right, the exact binomial `((1 - level) / 2) ** (1 /
                n)` to 1.
            difference: values are differences of two models whose own values lie in `bounds`. Their interval is
                symmetric, which covers better where few items differ.

        Returns:
            Lower and upper bound: floats for `[n]`, arrays `[M]` for `[n, M]`. NaN where a subset has fewer than two
            images, and where small subsets leave fewer than 100 draws that have items of each.

        Raises:
            ValueError: for NaN, unequal lengths or numbers of models, an image that the benchmark lacks, a value
                outside `bounds`, no subset, or weights that do not fit.
        """
        if not 0 < level < 1:
            raise ValueError(f"level: found {level}, expected a share between 0 and 1, such as 0.95.")
        if bounds and difference:
            bounds = (bounds[0] - bounds[1], bounds[1] - bounds[0])
        parts = parts_of(subsets, "values")
        share = share_of_subsets(weights, len(parts))
        flat = np.ndim(subsets[0][0]) == 1
        for values, _ in subsets:
            _check_bounds(np.asarray(values, dtype=np.float64), bounds)
        low, high = self._studentize(parts, share, level, bounds, difference)
        return (float(low[0]), float(high[0])) if flat else (low, high)

    def macro_difference(
        self,
        subsets: Subsets,
        *,
        weights: Sequence[float] | None = None,
        bounds: tuple[float, float] | None = (0.0, 1.0),
    ) -> dict[str, NDArray[np.float64]]:
        """A weighted mean of subsets' mean differences, with interval and p that never contradict each other.

        The interval is `macro_interval`'s, p that of `macro_sign_flip_test`. The test decides about 0: where p is not
        below 0.05, an interval that leaves 0 out is widened to hold it; where p is below, one that holds 0 is cut to
        the side of the difference, at the difference divided by the number of images that differ.

        Args:
            subsets: `(difference, images)` of each, differences `[n, M]` of M pairs of models.
            weights: as in `macro_interval`.
            bounds: of the models' own values.

        Returns:
            `value`, `low`, `high` and `p`, each `[M]`.
        """
        low, high = self.macro_interval(subsets, weights=weights, bounds=bounds, difference=True)
        share = share_of_subsets(weights, len(subsets))
        means = np.stack([np.asarray(values, dtype=np.float64).mean(axis=0) for values, _ in subsets])
        value = means[0] if len(means) == 1 else share @ means
        p = macro_sign_flip_test(subsets, weights)
        # Interval and test ask the same of different approximations and may disagree near 0. The test is exact or
        # nearly so and decides; the bound moves by as little as makes them agree.
        nearest = value / np.maximum(differing_images(subsets, weights), 1)
        sure = p < 1 - LEVEL
        low = np.where(sure & (value > 0) & (low <= 0), nearest, low)
        high = np.where(sure & (value < 0) & (high >= 0), nearest, high)
        low, high = np.where(~sure & (low > 0), 0.0, low), np.where(~sure & (high < 0), 0.0, high)
        return {"value": value, "low": low, "high": high, "p": p}

    def _studentize(
        self,
        parts: list[Part],
        share: NDArray[np.float64],
        level: float,
        bounds: tuple[float, float] | None,
        symmetric: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        fewest = min(len(names) for names, _, _ in parts)
        unknown = np.full(parts[0][1].shape[1], np.nan)
        if fewest < 2:
            return unknown, unknown
        # The resampled statistic is t = (draw's mean - mean) / draw's spread, whose distribution depends little on the
        # unknown truth. Solving t for the truth turns the tails around: the upper quantile of t gives the lower bound.
        aligned = self._align(parts, share)
        mean, spread, _ = aligned.mean_and_spread(np.ones((1, len(aligned.used))))
        mean, spread = mean[0], spread[0]
        # No spread except for rounding: the sums are centered, so it is not the root of a rounding error.
        still = spread <= 1e-12 * np.maximum(1.0, aligned.largest)
        # If no draw can differ, the deviation is 0 / 1, and the interval comes only from the bounds below.
        deviation = self._deviations(aligned, mean, np.where(still, 1.0, LEAST_SPREAD * spread))
        if len(deviation) < FEWEST_DRAWS:
            return unknown, unknown
        tail = (1 - level) / 2
        if symmetric:
            above = np.quantile(np.abs(deviation), level, axis=0)
            below = -above
        else:
            below, above = np.quantile(deviation, [tail, 1 - tail], axis=0)
        low, high = np.where(still, mean, mean - above * spread), np.where(still, mean, mean - below * spread)
        if bounds:
            # If a share q of all images were different, n drawn ones would all be alike with (1 - q)^n. This q makes
            # that as rare as a tail, so it is as much as the images not seen can move the mean.
            unseen = 1 - tail ** (1 / fewest)
            low = np.maximum(np.where(still, mean - unseen * (mean - bounds[0]), low), bounds[0])
            high = np.minimum(np.where(still, mean + unseen * (bounds[1] - mean), high), bounds[1])
        return low, high

    def _deviations(
        self, aligned: Aligned, mean: NDArray[np.float64], least: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """`[draws, M]`: how far each draw's mean is from the whole set's, in units of the draw's own spread."""
        found, rows = [], max(1, CELLS // len(aligned.used))
        every = np.array_equal(aligned.used, np.arange(self.draws.shape[1]))
        for start in range(0, len(self.draws), rows):
            counts = self.draws[start : start + rows]
            drawn, spread, complete = aligned.mean_and_spread(counts if every else counts.take(aligned.used, axis=1))
            found.append(((drawn - mean) / np.maximum(spread, least))[complete])
        return np.concatenate(found)

    def _align(self, parts: list[Part], share: NDArray[np.float64]) -> Aligned:
        for names, _, _ in parts:
            absent = next((name for name in names if name not in self._position), None)
            if absent is not None:
                raise ValueError(
                    f"images: found {absent!r}, which is not one of the {len(self._position):,} images of this "
                    "bootstrap. Create it from the images of all items of the benchmark."
                )
        return Aligned(parts, self._position, share)


def _check_bounds(values: NDArray[np.float64], bounds: tuple[float, float] | None) -> None:
    if bounds is None:
        return
    outside = np.argwhere((values < bounds[0]) | (values > bounds[1]))
    if len(outside):
        raise ValueError(
            f"values, item {outside[0][0]}: found {values[tuple(outside[0])]:g}, expected {bounds[0]:g} to "
            f"{bounds[1]:g}. Pass bounds=None for unbounded values, difference=True for differences."
        )


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
    # The seeds' means vary by training and by the images that one seed happens to get right; the images' own variance
    # is added to that. The image variance of an average would count the second part twice.
    means = [np.average([part.mean() for part in subsets], weights=weights) for subsets in seeds]
    of_seeds = float(np.var(means, ddof=1)) / len(seeds)
    of_images = _variance_of_images(seeds, images, averaged, weights)
    # A single image in a subset hides how much images vary; the seeds' part is still a lower bound of the variance, so
    # its p can only be too small, and the larger of the two p is taken below.
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
    # With t = sqrt(freedom) tan(angle), the density is cos(angle) ** (freedom - 1) up to a factor, on an interval that
    # ends at a quarter turn: no tail is cut off. The same sum from 0 is the factor.
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
