"""Intervals and tests for means of items that share images: an image with all its items is one draw."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A resample that happens to hold equal images only has no spread; its deviation is then counted in quarters of the
# spread of the whole set. Without it, sets of 60 images with few errors get intervals that reach from 0 to 1.
LEAST_SPREAD = 0.25
# Up to this many images with a difference, all 2 ** 13 signs are tried instead of a sample of them.
EXACT_IMAGES = 13
# Draws at a time: what bounds the memory of one step.
BLOCK = 250

Images = Sequence[Any] | NDArray[Any]


class ImageBootstrap:
    """Intervals of means over any items of a benchmark, from one set of draws of its images.

    A draw takes as many images as the benchmark has, with replacement and with all their items, and recomputes the
    mean. The mean of a subset is then a ratio of two drawn sums; a draw without any item of the subset is left out.

    The interval is studentised: what is resampled is the deviation in units of the clustered standard error *of that
    draw*. The plain percentile interval is too narrow where images are few or a share is near 0 or 1 (simulated: 60
    images of 1 to 22 items, share 0.95: it covers 81 to 88 % of the time). Source: Davison and Hinkley,
    "Bootstrap Methods and their Application" (1997), 5.2.1; the symmetric form for differences: Hall, "On symmetric
    bootstrap confidence intervals", JRSS B 50 (1988). The least spread of a draw is our choice.

    Args:
        images: the image of every item of the benchmark, in any order; repeats are expected.
        resamples: number of draws. It holds `resamples * distinct images` bytes.
        seed: of the draws.

    Raises:
        ValueError: for a missing image id, or fewer than 100 resamples.
    """

    def __init__(self, images: Images, *, resamples: int = 2000, seed: int = 0) -> None:
        if resamples < 100:
            raise ValueError(f"resamples: found {resamples}, expected at least 100: tails need draws. Use 2000.")
        names, _ = _distinct(images)
        self._position = {name: index for index, name in enumerate(names)}
        generator = np.random.default_rng(seed)
        number = len(names)
        # a count above 255 has no chance to occur, so a byte holds it
        self._weights = np.zeros((resamples, number), dtype=np.uint8)
        for row in self._weights:
            row[:] = np.bincount(generator.integers(number, size=number), minlength=number) if number else 0

    def interval(
        self,
        values: NDArray[Any] | Sequence[float],
        images: Images,
        level: float = 0.95,
        *,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        difference: bool = False,
    ) -> tuple[Any, Any]:
        """Interval of the mean over items.

        Args:
            values: `[n]`, or `[n, M]` for M models that share items and draws.
            images: `[n]`, each item's image.
            level: coverage.
            bounds: smallest and largest value that an item can have; `None` for values without such. The interval
                stays inside. Where all images have the same mean, so that draws do not differ, it shows what the
                images not seen could change: with `n` images all right, the exact binomial `((1 - level) / 2) ** (1 /
                n)` to 1.
            difference: `values` are differences of two models whose own values lie in `bounds`. Their interval is
                symmetric, which covers better where few items differ.

        Returns:
            Lower and upper bound: floats for `[n]`, arrays `[M]` for `[n, M]`. NaN with fewer than two images.

        Raises:
            ValueError: for NaN, unequal lengths, an image that the benchmark lacks, or a value outside `bounds`.
        """
        return self.macro_interval([(values, images)], level, bounds=bounds, difference=difference)

    def macro_interval(
        self,
        subsets: Sequence[tuple[NDArray[Any] | Sequence[float], Images]],
        level: float = 0.95,
        *,
        bounds: tuple[float, float] | None = (0.0, 1.0),
        difference: bool = False,
    ) -> tuple[Any, Any]:
        """Interval of the mean of several subsets' means, each with the same weight, as SugarCrepe's macro average.

        Args:
            subsets: `(values, images)` of each, as in `interval`.
            level: coverage.
            bounds: as in `interval`.
            difference: as in `interval`.

        Returns:
            As `interval`; NaN where a subset has fewer than two images.

        Raises:
            ValueError: as `interval`, and for no subset or unequal numbers of models.
        """
        if not subsets:
            raise ValueError("subsets: found none, expected (values, images) of at least one.")
        if not 0 < level < 1:
            raise ValueError(f"level: found {level}, expected a share between 0 and 1, such as 0.95.")
        if bounds and difference:
            bounds = (bounds[0] - bounds[1], bounds[1] - bounds[0])
        parts = [_per_image(values, images, "values") for values, images in subsets]
        flat = np.ndim(subsets[0][0]) == 1
        if len({sums.shape[1] for _, sums, _ in parts}) > 1:
            raise ValueError(f"subsets: found {[part[1].shape[1] for part in parts]} models, expected equal numbers.")
        for values, _ in subsets:
            _check_bounds(np.asarray(values, dtype=np.float64), bounds)
        low, high = self._studentised(parts, level, bounds, difference)
        return (float(low[0]), float(high[0])) if flat else (low, high)

    def _studentised(
        self, parts: list[_Part], level: float, bounds: tuple[float, float] | None, symmetric: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        fewest = min(len(names) for names, _, _ in parts)
        if fewest < 2:
            return np.full(parts[0][1].shape[1], np.nan), np.full(parts[0][1].shape[1], np.nan)
        used, sums, sizes = self._align(parts)
        mean, spread, _ = _mean_and_spread(np.ones((1, len(used))), sums, sizes)
        mean, spread = mean[0], spread[0]
        still = spread <= 1e-12 * np.maximum(1.0, np.abs(sums).max(axis=(0, 1)))  # but for rounding, no spread
        deviation = self._deviations(used, sums, sizes, mean, np.where(still, 1.0, LEAST_SPREAD * spread))
        tail = (1 - level) / 2
        if symmetric:
            above = np.quantile(np.abs(deviation), level, axis=0)
            below = -above
        else:
            below, above = np.quantile(deviation, [tail, 1 - tail], axis=0)
        low, high = np.where(still, mean, mean - above * spread), np.where(still, mean, mean - below * spread)
        if bounds:
            unseen = 1 - tail ** (1 / fewest)
            low = np.maximum(np.where(still, mean - unseen * (mean - bounds[0]), low), bounds[0])
            high = np.minimum(np.where(still, mean + unseen * (bounds[1] - mean), high), bounds[1])
        return low, high

    def _deviations(
        self,
        used: NDArray[np.intp],
        sums: NDArray[np.float64],
        sizes: NDArray[np.float64],
        mean: NDArray[np.float64],
        least: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """`[draws, M]`: how far each draw's mean is from the whole set's, in units of the draw's own spread."""
        found = []
        for start in range(0, len(self._weights), BLOCK):
            weights = self._weights[start : start + BLOCK, used].astype(np.float64)
            drawn, spread, complete = _mean_and_spread(weights, sums, sizes)
            found.append(((drawn - mean) / np.maximum(spread, least))[complete])
        return np.concatenate(found)

    def _align(self, parts: list[_Part]) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
        """The subsets' sums `[K, I, M]` and sizes `[K, I]` over the I images that any of them has."""
        for names, _, _ in parts:
            absent = next((name for name in names if name not in self._position), None)
            if absent is not None:
                raise ValueError(
                    f"images: found {absent!r}, which is none of the {len(self._position):,} images that this "
                    "bootstrap draws. Make it from the images of all items of the benchmark."
                )
        places = [np.array([self._position[name] for name in names], dtype=np.intp) for names, _, _ in parts]
        used = np.unique(np.concatenate(places))
        sums = np.zeros((len(parts), len(used), parts[0][1].shape[1]))
        sizes = np.zeros((len(parts), len(used)))
        for index, (place, (_, part_sums, part_sizes)) in enumerate(zip(places, parts, strict=True)):
            where = np.searchsorted(used, place)
            sums[index, where], sizes[index, where] = part_sums, part_sizes
        return used, sums, sizes


def sign_flip_test(
    difference: NDArray[Any] | Sequence[float], images: Images, *, permutations: int = 10_000, seed: int = 0
) -> Any:
    """Two-sided p-value of "the two models are equal": an image's summed difference could have either sign.

    The statistic is the absolute sum over items. With at most 13 images that differ all signs are tried, and p is
    exact; else p is `(1 + hits) / (1 + permutations)`, which is never 0 (Phipson and Smyth, "Permutation p-values
    should never be zero", 2010).

    Args:
        difference: `[n]`, one model's value minus the other's, paired by item; or `[n, M]` for M pairs of models.
        images: `[n]`, each item's image.
        permutations: number of random signs.
        seed: of the signs.

    Returns:
        p in (0, 1]: a float for `[n]`, an array `[M]` for `[n, M]`. 1.0 where no image differs.

    Raises:
        ValueError: for NaN or unequal lengths.
    """
    _, sums, _ = _per_image(difference, images, "difference")
    sums = np.where(np.abs(sums) > 1e-12 * np.abs(sums).max(initial=0.0), sums, 0.0)
    differs = sums != 0
    count = differs.sum(axis=0)
    p = np.ones(sums.shape[1])
    for column in np.flatnonzero((count > 0) & (count <= EXACT_IMAGES)):
        p[column] = _all_signs(sums[differs[:, column], column])
    many = np.flatnonzero(count > EXACT_IMAGES)
    if len(many):
        p[many] = _random_signs(sums[differs[:, many].any(axis=1)][:, many], permutations, seed)
    return float(p[0]) if np.ndim(difference) == 1 else p


def smallest_difference(
    difference: NDArray[Any] | Sequence[float], images: Images, *, power: float = 0.8, level: float = 0.95
) -> Any:
    """The smallest true difference of two models' means that a set of this size and spread would find.

    `(z(1 - (1 - level) / 2) + z(power))` times the clustered standard error of the mean difference: with a smaller
    true difference, "no significant difference" says little.

    Args:
        difference: `[n]`, one model's value minus the other's, paired by item; or `[n, M]`.
        images: `[n]`, each item's image.
        power: how often a true difference of that size is found.
        level: 1 minus the share of false alarms.

    Returns:
        In the unit of `difference`: a float for `[n]`, an array `[M]` for `[n, M]`. NaN with fewer than two images,
        and where every image has the same difference: then the set says nothing about the spread.

    Raises:
        ValueError: for NaN, unequal lengths, or a level or power outside (0, 1).
    """
    for name, share in (("power", power), ("level", level)):
        if not 0 < share < 1:
            raise ValueError(f"{name}: found {share}, expected a share between 0 and 1.")
    names, sums, sizes = _per_image(difference, images, "difference")
    found = np.full(sums.shape[1], np.nan)
    if len(names) > 1:
        _, spread, _ = _mean_and_spread(np.ones((1, len(names))), sums[None], sizes[None])
        error = np.sqrt(len(names) / (len(names) - 1)) * spread[0]
        normal = NormalDist()
        factor = normal.inv_cdf(1 - (1 - level) / 2) + normal.inv_cdf(power)
        found = np.where(error > 1e-12 * np.maximum(1.0, np.abs(sums).max(axis=0)), factor * error, np.nan)
    return float(found[0]) if np.ndim(difference) == 1 else found


# Of one set of items: the names of its I images, their sums `[I, M]` and numbers of items `[I]`.
_Part = tuple[list[Any], NDArray[np.float64], NDArray[np.float64]]


def _mean_and_spread(
    weights: NDArray[np.float64], sums: NDArray[np.float64], sizes: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The mean of K ratios for every draw, and its clustered standard error without the factor of small samples.

    With `m_k = S_k / N_k`, the residual of image i is `r_i = sum_k (s_ik - m_k n_ik) / (K N_k)` and the variance is
    `sum_i w_i r_i^2`; multiplied out, it is a few products with the weights and no `[B, I, M]`.

    Args:
        weights: `[B, I]`, how often each image is drawn.
        sums: `[K, I, M]`.
        sizes: `[K, I]`.

    Returns:
        Means `[B, M]`, spreads `[B, M]`, and `[B]`, whether the draw has items of every subset; other rows are not
        meaningful.
    """
    subsets = len(sizes)
    drawn = weights @ sizes.T  # [B, K]
    number = np.maximum(drawn, 1).T[:, :, None]  # [K, B, 1]
    ratio = np.stack([weights @ part for part in sums]) / number  # [K, B, M]
    variance = np.zeros(ratio.shape[1:])
    for k in range(subsets):
        for j in range(k, subsets):
            product = weights @ (sums[k] * sums[j])
            product -= ratio[j] * (weights @ (sums[k] * sizes[j, :, None]))
            product -= ratio[k] * (weights @ (sizes[k, :, None] * sums[j]))
            product += ratio[k] * ratio[j] * (weights @ (sizes[k] * sizes[j]))[:, None]
            variance += (1 if j == k else 2) * product / (number[k] * number[j] * subsets**2)
    return ratio.mean(axis=0), np.sqrt(np.maximum(variance, 0)), (drawn > 0).all(axis=1)


def _all_signs(sums: NDArray[np.float64]) -> float:
    codes = np.arange(2 ** len(sums))[:, None]
    signs = 1 - 2 * ((codes >> np.arange(len(sums))) & 1)
    return float(np.mean(np.abs(signs @ sums) >= _reached(sums)))


def _random_signs(sums: NDArray[np.float64], permutations: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    hits = np.zeros(sums.shape[1])
    total, reached = sums.sum(axis=0), _reached(sums)
    for start in range(0, permutations, BLOCK):
        rows = min(BLOCK, permutations - start)
        bits = np.frombuffer(generator.bytes(rows * -(-len(sums) // 8)), dtype=np.uint8).reshape(rows, -1)
        kept = np.unpackbits(bits, axis=1, count=len(sums)).astype(np.float64)
        hits += (np.abs(2 * (kept @ sums) - total) >= reached).sum(axis=0)
    return (1 + hits) / (1 + permutations)


def _reached(sums: NDArray[np.float64]) -> Any:
    """The observed statistic, less what rounding could take from an equal one."""
    return np.abs(sums.sum(axis=0)) - 1e-9 * np.abs(sums).sum(axis=0)


def _per_image(values: NDArray[Any] | Sequence[float], images: Images, name: str) -> _Part:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in (1, 2):
        raise ValueError(f"{name}: found {table.ndim} dimensions, expected [items] or [items, models].")
    if len(table) != len(images):
        raise ValueError(f"{name}: found {len(table):,} items but {len(images):,} images. Pass each item's image.")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        raise ValueError(
            f"{name}, item {bad[0][0]}: found {table[tuple(bad[0])]}, expected a finite number. Leave the item out "
            "of all models, or give it the value of a wrong answer."
        )
    table = table[:, None] if table.ndim == 1 else table
    names, index = _distinct(images)
    columns = [np.bincount(index, weights=column, minlength=len(names)) for column in table.T]
    sums = np.stack(columns, axis=1) if columns else np.zeros((len(names), 0))
    return names, sums, np.bincount(index, minlength=len(names)).astype(np.float64)


def _distinct(images: Images) -> tuple[list[Any], NDArray[np.intp]]:
    array = images if isinstance(images, np.ndarray) else np.asarray(images, dtype=object)
    missing = next((row for row, name in enumerate(array.tolist()) if name is None or name != name), None)
    if missing is not None:
        raise ValueError(f"images, item {missing}: found no image id. Every item needs its image.")
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), index


def _check_bounds(values: NDArray[np.float64], bounds: tuple[float, float] | None) -> None:
    if bounds is None:
        return
    outside = np.argwhere((values < bounds[0]) | (values > bounds[1]))
    if len(outside):
        raise ValueError(
            f"values, item {outside[0][0]}: found {values[tuple(outside[0])]:g}, expected {bounds[0]:g} to "
            f"{bounds[1]:g}. Pass bounds=None for values without bounds, difference=True for differences of shares."
        )
