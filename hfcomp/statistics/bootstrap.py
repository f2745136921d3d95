"""Intervals for means of items that share images, and for differences over several seeds.

An image is drawn together with all its items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hfcomp.statistics.clusters import (
    Aligned,
    Images,
    Numbers,
    Part,
    Subsets,
    Values,
    distinct,
    share_of_subsets,
    subset_parts,
)
from hfcomp.statistics.significance import differing_images, macro_sign_flip_test, macro_standard_error

# A resample that happens to contain only equal images has no spread. Its deviation is then measured in quarters of the
# whole set's spread; otherwise sets of 60 images with few errors get intervals from 0 to 1.
LEAST_SPREAD = 0.25
# Level of the intervals of differences, consistent with p
LEVEL = 0.95
# Image counts drawn at a time: 8 MB, so the allocator keeps them
CELLS = 2**23
# Fewest draws that determine tails
FEWEST_DRAWS = 100
# Points of the numerical integral of Student's t, whose error is far below the printed digits
GRID = 4001
FEWEST_SEEDS = 3
"""Two seeds are too many for an interval over images only, and too few to estimate the spread over seeds."""


class ImageBootstrap:
    """Intervals of means over any items of a benchmark, from a single set of draws of its images.

    A draw takes as many images as the benchmark has, with replacement and with all their items, and recomputes the
    mean. The mean of a subset is then a ratio of two drawn sums. A draw without any item of the subset is left out.

    The interval is studentized: it resamples the deviation in units of the clustered standard error *of that draw*.
    The plain percentile interval is too narrow if there are few images or a share is near 0 or 1 (simulated: with 60
    images of 1 to 22 items and a share of 0.95, it covers 81 to 88% of the time). Source: Davison and Hinkley,
    "Bootstrap Methods and their Application" (1997), 5.2.1; the symmetric form for differences: Hall, "On symmetric
    bootstrap confidence intervals", JRSS B 50 (1988). The least spread of a draw is our choice.

    Args:
        images: Image of every item of the benchmark, in any order; repeats are expected.
        resamples: Number of draws. Memory use is `resamples * distinct images` bytes.
        seed: Random seed for the draws.

    Attributes:
        draws: `[resamples, distinct images]`, how often each image is drawn; images in sorted order.

    Raises:
        ValueError: For a missing image id, or fewer than 100 resamples.
    """

    def __init__(self, images: Images, *, resamples: int = 2000, seed: int = 0) -> None:
        if resamples < FEWEST_DRAWS:
            raise ValueError(
                f"resamples: found {resamples}, expected at least {FEWEST_DRAWS}, which the tails need. Use 2000."
            )
        names, _ = distinct(images)
        self._position = {name: index for index, name in enumerate(names)}
        # Draw images, not items: items of an image are right or wrong together, and drawing them one by one would
        # treat 22 captions of a photo as 22 independent facts. All intervals of a benchmark use these same draws, so a
        # difference of two models is paired draw by draw.
        generator = np.random.default_rng(seed)
        number = len(names)
        # A count above 255 practically never occurs, so a byte holds it.
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
        """Computes `macro_interval` for a single subset."""
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
        """Computes the interval of a weighted mean of several subsets' means.

        Args:
            subsets: For each subset, values `[n]`, or `[n, M]` for M models that share items and draws, and each
                item's image `[n]`.
            level: Coverage.
            weights: Weight of each subset's mean, in any unit. Equal by default, as in SugarCrepe's macro average.
            bounds: Smallest and largest value that an item can have; `None` for unbounded values. The interval stays
                within them. If all images have the same mean, so draws do not differ, it shows how much unseen images
                could change: with `n` images all right, the exact binomial `((1 - level) / 2) ** (1 / n)` to 1.
            difference: Whether values are differences of two models whose own values lie in `bounds`. Their interval
                is symmetric, which covers better if few items differ.

        Returns:
            Lower and upper bound: floats for `[n]`, arrays `[M]` for `[n, M]`. NaN if a subset has fewer than two
            images, or if small subsets leave fewer than 100 draws that have items of each.

        Raises:
            ValueError: For NaN, different lengths or numbers of models, an image that the benchmark lacks, a value
                outside `bounds`, no subset, or weights that do not match.
        """
        if not 0 < level < 1:
            raise ValueError(f"level: found {level}, expected a number between 0 and 1, such as 0.95.")
        if bounds and difference:
            bounds = (bounds[0] - bounds[1], bounds[1] - bounds[0])
        parts = subset_parts(subsets, "values")
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
    ) -> dict[str, Numbers]:
        """Computes a weighted mean of subsets' mean differences, with an interval and p that never contradict.

        The interval comes from `macro_interval` and p from `macro_sign_flip_test`. The test decides about 0: if p is
        not below 0.05, an interval that excludes 0 is widened to include it. If p is below 0.05 but the interval
        includes 0, its end on the far side of 0 is moved to the difference divided by the number of differing images.

        Args:
            subsets: `(difference, images)` of each subset, with differences `[n, M]` of M pairs of models.
            weights: As in `macro_interval`.
            bounds: Bounds of the models' own values.

        Returns:
            `value`, `low`, `high` and `p`, each `[M]`.
        """
        low, high = self.macro_interval(subsets, weights=weights, bounds=bounds, difference=True)
        share = share_of_subsets(weights, len(subsets))
        means = np.stack([np.asarray(values, dtype=np.float64).mean(axis=0) for values, _ in subsets])
        value = means[0] if len(means) == 1 else share @ means
        p = macro_sign_flip_test(subsets, weights)
        # Interval and test answer the same question with different approximations and may disagree near 0. The test is
        # exact or nearly so, so it decides; the bound moves just enough to agree with it.
        nearest = value / np.maximum(differing_images(subsets, weights), 1)
        significant = p < 1 - LEVEL
        low = np.where(significant & (value > 0) & (low <= 0), nearest, low)
        high = np.where(significant & (value < 0) & (high >= 0), nearest, high)
        low, high = np.where(~significant & (low > 0), 0.0, low), np.where(~significant & (high < 0), 0.0, high)
        return {"value": value, "low": low, "high": high, "p": p}

    def _studentize(
        self, parts: list[Part], share: Numbers, level: float, bounds: tuple[float, float] | None, symmetric: bool
    ) -> tuple[Numbers, Numbers]:
        fewest = min(len(names) for names, _, _ in parts)
        unknown = np.full(parts[0][1].shape[1], np.nan)
        if fewest < 2:
            return unknown, unknown
        # The resampled statistic is t = (draw's mean - mean) / draw's spread, whose distribution depends little on the
        # unknown truth. Solving t for the truth swaps the tails: the upper quantile of t gives the lower bound.
        aligned = self._align(parts, share)
        mean, spread, _ = aligned.mean_and_spread(np.ones((1, len(aligned.used))))
        mean, spread = mean[0], spread[0]
        # No spread except for rounding. The sums are centered, so it is not the root of a rounding error.
        is_constant = spread <= 1e-12 * np.maximum(1.0, aligned.largest)
        # If no draw can differ, the deviation is 0 / 1, and only the bounds below determine the interval.
        deviation = self._deviations(aligned, mean, np.where(is_constant, 1.0, LEAST_SPREAD * spread))
        if len(deviation) < FEWEST_DRAWS:
            return unknown, unknown
        tail = (1 - level) / 2
        if symmetric:
            above = np.quantile(np.abs(deviation), level, axis=0)
            below = -above
        else:
            below, above = np.quantile(deviation, [tail, 1 - tail], axis=0)
        low = np.where(is_constant, mean, mean - above * spread)
        high = np.where(is_constant, mean, mean - below * spread)
        if bounds:
            # If a share q of all images were different, all n drawn images would still be alike with probability
            # (1 - q)^n. The q that makes this as rare as a tail is how far the unseen images can move the mean.
            unseen = 1 - tail ** (1 / fewest)
            low = np.maximum(np.where(is_constant, mean - unseen * (mean - bounds[0]), low), bounds[0])
            high = np.minimum(np.where(is_constant, mean + unseen * (bounds[1] - mean), high), bounds[1])
        return low, high

    def _deviations(self, aligned: Aligned, mean: Numbers, least: Numbers) -> Numbers:
        """`[draws, M]`: distance of each draw's mean from the whole set's, in units of the draw's own spread."""
        deviations, rows = [], max(1, CELLS // len(aligned.used))
        every = np.array_equal(aligned.used, np.arange(self.draws.shape[1]))
        for start in range(0, len(self.draws), rows):
            counts = self.draws[start : start + rows]
            drawn, spread, complete = aligned.mean_and_spread(counts if every else counts.take(aligned.used, axis=1))
            deviations.append(((drawn - mean) / np.maximum(spread, least))[complete])
        return np.concatenate(deviations)

    def _align(self, parts: list[Part], share: Numbers) -> Aligned:
        for names, _, _ in parts:
            missing = next((name for name in names if name not in self._position), None)
            if missing is not None:
                raise ValueError(
                    f"images: found {missing!r}, which is not one of the {len(self._position):,} images of this "
                    "bootstrap. Create the bootstrap from the images of all items of the benchmark."
                )
        return Aligned(parts, self._position, share)


def _check_bounds(values: Numbers, bounds: tuple[float, float] | None) -> None:
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
    seeds: Sequence[Sequence[Numbers]],
    images: Sequence[Images],
    *,
    weights: Sequence[float] | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> dict[str, float]:
    """Computes the mean difference over seeds, with an interval and a p that generalize to other images and seeds.

    The variance of the mean is the sum of two parts: the variance of the seeds' means divided by their number, with
    one degree of freedom less than there are seeds, and the variance of the images. The second part leaves out what
    depends on image and seed together (an image that one seed happens to get right), because the first part already
    includes it. The statistic is compared with a mixture of Student's t with either number of degrees of freedom, in
    the proportions of the two variances. Satterthwaite's single number of degrees of freedom covers too little with
    few seeds, because it is computed from the same uncertain variance. The interval is never narrower, and p never
    smaller, than those of `ImageBootstrap.macro_difference` on outcomes averaged over seeds, which cover only other
    images.

    Args:
        bootstrap: Bootstrap over the images.
        seeds: For each seed, the paired differences `[n]` of every subset.
        images: Images of each subset, `[n]`.
        weights: Weight of each subset's mean. Equal by default.
        bounds: Bounds of the models' own values.

    Returns:
        `value`, `low`, `high`, `p`, and `seeds`, the number of seeds. With one seed, the numbers cover only other
        images, for this seed. With two, bounds and p are NaN. Bounds are NaN if the images give none. If the images'
        variance is unknown (a subset with a single image), p is the larger of theirs and that of a t-test over the
        seeds' means.
    """
    averaged: Subsets = [
        (np.mean(of_subset, axis=0)[:, None], names)
        for of_subset, names in zip(zip(*seeds, strict=True), images, strict=True)
    ]
    result = {
        key: float(value[0])
        for key, value in bootstrap.macro_difference(averaged, weights=weights, bounds=bounds).items()
    }
    result["seeds"] = len(seeds)
    if len(seeds) == 1:
        return result
    if len(seeds) < FEWEST_SEEDS:
        return result | dict.fromkeys(("low", "high", "p"), math.nan)
    # The seeds' means vary by training and by the images that a seed happens to get right; the images' own variance is
    # added to that. The image variance of an average would count the second part twice.
    means = [np.average([part.mean() for part in subsets], weights=weights) for subsets in seeds]
    seed_variance = float(np.var(means, ddof=1)) / len(seeds)
    image_variance = _image_variance(seeds, images, averaged, weights)
    # A single image in a subset hides how much images vary. The seeds' part is still a lower bound of the variance, so
    # its p can only be too small, and the larger of the two p values is taken below.
    known = math.isfinite(image_variance)
    variance = seed_variance + (image_variance if known else 0.0)
    if variance == 0:
        return result
    share, fewest = seed_variance / variance, min(len(set(names)) for names in images)

    def tail(t: float) -> float:
        image_tail = (1 - share) * students_tail(t, fewest - 1) if share < 1 else 0.0
        return share * students_tail(t, len(seeds) - 1) + image_tail

    result["p"] = max(result["p"], tail(result["value"] / math.sqrt(variance)))
    if not known or math.isnan(result["low"]):
        return result
    half = two_sided_quantile(tail) * math.sqrt(variance)
    result["low"] = min(result["low"], result["value"] - half)
    result["high"] = max(result["high"], result["value"] + half)
    if bounds:
        widest = bounds[1] - bounds[0]
        result["low"], result["high"] = max(result["low"], -widest), min(result["high"], widest)
    return result


def _image_variance(
    seeds: Sequence[Sequence[Numbers]], images: Sequence[Images], averaged: Subsets, weights: Sequence[float] | None
) -> float:
    """Variance of the mean over the choice of images, without the joint variance of images and seeds; NaN if unknown.

    If `a` is the first and `e` the second, a single seed's mean varies by `a + e`, the average of S by `a + e / S`.
    """
    number = len(seeds)
    columns = [np.stack(own, axis=1) for own in zip(*seeds, strict=True)]
    single = float(np.mean(macro_standard_error(list(zip(columns, images, strict=True)), weights) ** 2))
    average = float(macro_standard_error(averaged, weights)[0]) ** 2
    variance = (number * average - single) / (number - 1)
    return max(0.0, variance) if math.isfinite(variance) else math.nan


def students_tail(t: float, freedom: float) -> float:
    """Probability that Student's t is further from 0 than `t`, on either side.

    Args:
        t: The statistic.
        freedom: Degrees of freedom, above 0; need not be an integer.
    """
    # With t = sqrt(freedom) tan(angle), the density is cos(angle) ** (freedom - 1) up to a factor, on an interval that
    # ends at a quarter turn, so no tail is cut off. The same sum from 0 is the factor.
    start = math.atan(abs(t) / math.sqrt(freedom))
    parts = []
    for low in (start, 0.0):
        middles = low + (np.arange(GRID) + 0.5) * (math.pi / 2 - low) / GRID
        parts.append(float((np.cos(middles) ** (freedom - 1)).mean()) * (math.pi / 2 - low))
    return parts[0] / parts[1]


def two_sided_quantile(tail: Callable[[float], float], level: float = LEVEL) -> float:
    """Solves `tail(t) = 1 - level` for the statistic t."""
    low, high = 0.0, 1.0
    while tail(high) > 1 - level:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - level else (low, middle)
    return high
