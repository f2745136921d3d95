"""Tests for differences of two models, the smallest detectable difference, and corrections for multiple tests.

An image is drawn together with all its items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hfcomp.statistics.clusters import (
    Aligned,
    Images,
    Subsets,
    Values,
    distinct,
    per_image,
    product,
    share_of_subsets,
    subset_parts,
)

# Up to this many images with a difference, all 2 ** 13 signs are tried instead of a random sample.
EXACT_IMAGES = 13
# With fewer images than this, statistics equal to the observed one count half; otherwise p would hardly reach 0.05.
MID_P_IMAGES = 10
# Discordance of items of one image is estimated as if this many further pairs of items had been fully alike. Our
# choice: a few differing items say nothing against it.
ALIKE_PAIRS = 10
# Draws at a time, which limits the memory of a step
BLOCK = 250


def sign_flip_test(difference: Values, images: Images, *, permutations: int = 10_000, seed: int = 0) -> Any:
    """Computes the two-sided p-value of "the two models are equal", by which an image's difference may have any sign.

    The statistic is the absolute sum over items. If at most 13 images differ, all signs are tried and p is exact. With
    fewer than ten, it is the mid-p, in which a statistic equal to the observed one counts half (Fagerland, Lydersen
    and Laake, "The McNemar test for binary matched-pairs data: mid-p and asymptotic are better than exact
    conditional", 2013). Otherwise p is `(1 + hits) / (1 + permutations)`, which is never 0 (Phipson and Smyth,
    "Permutation p-values should never be zero", 2010).

    Args:
        difference: `[n]`, one model's value minus the other's, paired by item; or `[n, M]` for M pairs of models.
        images: `[n]`, each item's image.
        permutations: Number of random signs.
        seed: Random seed for the signs.

    Returns:
        p in (0, 1]: a float for `[n]`, an array `[M]` for `[n, M]`. 1.0 if no image differs.

    Raises:
        ValueError: For NaN or different lengths.
    """
    _, sums, _ = per_image(difference, images, "difference")
    sums = _without_rounding(sums)
    # An image without a difference adds 0 with either sign and changes no statistic, so it is left out. The number of
    # those that differ decides whether all signs can be tried.
    differs = sums != 0
    count = differs.sum(axis=0)
    p = np.ones(sums.shape[1])
    for column in np.flatnonzero((count > 0) & (count <= EXACT_IMAGES)):
        p[column] = _all_signs(sums[differs[:, column], column])
    many = np.flatnonzero(count > EXACT_IMAGES)
    if len(many):
        p[many] = _random_signs(sums[differs[:, many].any(axis=1)][:, many], permutations, seed)
    return float(p[0]) if np.ndim(difference) == 1 else p


def macro_sign_flip_test(
    subsets: Subsets, weights: Sequence[float] | None = None, *, permutations: int = 10_000, seed: int = 0
) -> Any:
    """Computes `sign_flip_test` of a weighted mean of subsets' means; an image's sign flips in all subsets at once.

    Args:
        subsets: `(difference, images)` of each subset, as in `sign_flip_test`.
        weights: Weight of each subset's mean. Equal by default.
        permutations: Number of random signs.
        seed: Random seed for the signs.

    Raises:
        ValueError: As in `sign_flip_test`; also for no subset, an empty one, or weights that do not match.
    """
    return sign_flip_test(*_as_one_sum(subsets, weights), permutations=permutations, seed=seed)


def differing_images(subsets: Subsets, weights: Sequence[float] | None = None) -> NDArray[np.intp]:
    """`[M]`, the number of images with a difference, which the sign-flip test permutes."""
    _, sums, _ = per_image(*_as_one_sum(subsets, weights), "difference")
    return _without_rounding(sums).astype(bool).sum(axis=0)


def _as_one_sum(subsets: Subsets, weights: Sequence[float] | None) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """The items of all subsets, each as its contribution to the weighted mean, and their images."""
    subset_parts(subsets, "difference")  # reports errors by subset, before the subsets are concatenated
    share = share_of_subsets(weights, len(subsets))
    if not all(len(images) for _, images in subsets):
        raise ValueError("subsets: found one without items, expected at least one item in each. Remove it.")
    # A weighted mean of means is a sum of weighted items, so the plain test works. An image in several subsets keeps
    # its name and so flips in all of them at once, because its items are not independent.
    weighted = [
        weight / len(images) * np.asarray(values, dtype=np.float64)
        for weight, (values, images) in zip(share, subsets, strict=True)
    ]
    return np.concatenate(weighted), np.concatenate([np.asarray(images) for _, images in subsets])


def _without_rounding(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(sums) > 1e-12 * np.abs(sums).max(initial=0.0), sums, 0.0)


def smallest_difference(difference: Values, images: Images, *, power: float = 0.8, level: float = 0.95) -> Any:
    """Estimates the smallest true difference of two models' means that a set of this size and spread would detect.

    It is the largest of three values, so it also holds if few items differ:

    - `z = z(1 - (1 - level) / 2) + z(power)` times the clustered standard error of the observed mean difference;
    - the `d` that is `z` times the standard error it implies itself: if no more items differ than a difference of `d`
      takes, an item's variance is `s d - d^2`, with `s` the usual size of a difference (1 if items are right or
      wrong), times the design effect of the images' items;
    - the `d` at which, in `power` of the cases, enough images differ for `sign_flip_test` to fall below `1 - level`.

    For smaller true differences, "no significant difference" is uninformative.

    Args:
        difference: `[n]`, one model's value minus the other's, paired by item; or `[n, M]`.
        images: `[n]`, each item's image.
        power: Probability that a true difference of that size is detected.
        level: 1 minus the false alarm rate.

    Returns:
        In the unit of `difference`: a float for `[n]`, an array `[M]` for `[n, M]`. NaN with fewer than two images, if
        every image has the same non-zero difference (the spread is then unknown), or if there are too few images to
        detect any difference. If no item differs, the second and third values are still known.

    Raises:
        ValueError: For NaN, different lengths, or a level or power outside (0, 1).
    """
    return macro_smallest_difference([(difference, images)], power=power, level=level)


def macro_smallest_difference(
    subsets: Subsets, weights: Sequence[float] | None = None, *, power: float = 0.8, level: float = 0.95
) -> Any:
    """Computes `smallest_difference` of a weighted mean of subsets' means; NaN if a subset has fewer than two images.

    Args:
        subsets: `(difference, images)` of each subset, as in `smallest_difference`.
        weights: Weight of each subset's mean. Equal by default.
        power: Probability that a true difference of that size is detected.
        level: 1 minus the false alarm rate.

    Raises:
        ValueError: As in `smallest_difference`; also for no subset, or weights that do not match.
    """
    for name, chance in (("power", power), ("level", level)):
        if not 0 < chance < 1:
            raise ValueError(f"{name}: found {chance}, expected a number between 0 and 1.")
    error = macro_standard_error(subsets, weights)
    normal = NormalDist()
    factor = normal.inv_cdf(1 - (1 - level) / 2) + normal.inv_cdf(power)
    implied = _implied_difference(subsets, share_of_subsets(weights, len(subsets)), factor, power, level)
    same = np.all([(np.asarray(own) == 0).all(axis=0) for own, _ in subsets], axis=0)  # no item differs
    known = (error > 0) | (same & (error == 0))
    smallest = np.where(known, np.maximum(factor * error, implied), np.nan)
    return float(smallest[0]) if np.ndim(subsets[0][0]) == 1 else smallest


def macro_standard_error(subsets: Subsets, weights: Sequence[float] | None = None) -> NDArray[np.float64]:
    """`[M]`, the standard error of a weighted mean of subsets' means, clustered by image.

    0 if the spread is only rounding; NaN if a subset has fewer than two images.
    """
    parts = subset_parts(subsets, "difference")
    share = share_of_subsets(weights, len(parts))
    if min(len(names) for names, _, _ in parts) < 2:
        return np.full(parts[0][1].shape[1], np.nan)
    position = {name: index for index, name in enumerate(sorted({name for part in parts for name in part[0]}))}
    aligned = Aligned(parts, position, share)
    number = len(aligned.used)
    _, spread, _ = aligned.mean_and_spread(np.ones((1, number)))
    # Residuals from the mean of the same images are too small by this factor, as in a sample variance.
    error = np.sqrt(number / (number - 1)) * spread[0]
    return np.where(error > 1e-12 * np.maximum(1.0, aligned.largest), error, 0.0)


def _implied_difference(
    subsets: Subsets, share: NDArray[np.float64], factor: float, power: float, level: float
) -> NDArray[np.float64]:
    """`[M]`, the smallest difference that is detected if no more items differ than it takes to produce it."""
    values = np.concatenate([np.asarray(own, float).reshape(len(own), -1) for own, _ in subsets])  # [n, M]
    weight = np.concatenate(
        [np.full(len(own), part / len(own)) for part, (own, _) in zip(share, subsets, strict=True)]
    )
    index = distinct(np.concatenate([np.asarray(images) for _, images in subsets]))[1]
    items = np.bincount(index)
    # Items of an image that agree count for less than the same number of independent items: by a factor of `largest`
    # if they are fully alike, 1 if independent, and in between by how large their products are. `ALIKE_PAIRS` is a
    # prior.
    largest = (np.bincount(index, weight) ** 2).sum() / (weight**2).sum()  # the design effect of fully alike items
    sums = np.stack([np.bincount(index, column) for column in values.T], axis=1)  # [I, M]
    alike = np.maximum((sums**2).sum(axis=0) - (values**2).sum(axis=0), 0.0)
    pairs = ((items[index] - 1)[:, None] * values**2).sum(axis=0)
    design = 1 + (largest - 1) * np.minimum((alike + ALIKE_PAIRS) / (pairs + ALIKE_PAIRS), 1.0)
    total = (weight[:, None] * np.abs(values)).sum(axis=0)
    size = np.where(total > 0, (weight[:, None] * values**2).sum(axis=0) / np.where(total > 0, total, 1.0), 1.0)
    per_item = design * (weight**2).sum()
    enough = np.array([_share_for_enough(int(1 / share + 1e-9), power, level) for share in per_item])
    return size * np.maximum(factor**2 * per_item / (1 + factor**2 * per_item), enough)


def _share_for_enough(number: int, power: float, level: float) -> float:
    """The share of `number` images that must differ, all alike, for the test to detect it; NaN if none suffices."""
    # With k images that all differ in the same direction, the smallest p is that of all signs equal: 2 of 2^k, or half
    # of it as mid-p. Below `fewest`, no outcome is significant. The share is then found by bisection on the binomial
    # tail, which falls as the share grows; 40 halvings exceed the printed digits.
    fewest = math.floor(-math.log2(1 - level)) + 1  # for the mid-p, 2 ** -fewest is below 1 - level
    fewest += fewest >= MID_P_IMAGES
    if number < fewest:
        return float("nan")
    low, high = 0.0, 1.0
    for _ in range(40):
        share = (low + high) / 2
        missed = sum(math.comb(number, k) * share**k * (1 - share) ** (number - k) for k in range(fewest))
        low, high = (share, high) if 1 - missed < power else (low, share)
    return high


def _all_signs(sums: NDArray[np.float64]) -> float:
    # Bit j of a code is the sign of image j. Each code occurs with both signs, so the test is two-sided by itself.
    codes = np.arange(2 ** len(sums))[:, None]
    signs = 1 - 2 * ((codes >> np.arange(len(sums))) & 1)
    statistic = np.abs(signs @ sums)
    p = float(np.mean(statistic >= _threshold(sums)))
    if len(sums) < MID_P_IMAGES:
        # The threshold lies just below the observed value and the second limit just above it, so ties count half.
        rounding = 2 * (np.abs(sums.sum()) - _threshold(sums))
        p = (p + float(np.mean(statistic > _threshold(sums) + rounding))) / 2
    return p


def _random_signs(sums: NDArray[np.float64], permutations: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    hits = np.zeros(sums.shape[1])
    total, reached = sums.sum(axis=0), _threshold(sums)
    for start in range(0, permutations, BLOCK):
        rows = min(BLOCK, permutations - start)
        # Eight signs per byte, because random bits are the main cost, not the product. With kept images k, the signed
        # sum is kept - dropped = 2 kept - total.
        bits = np.frombuffer(generator.bytes(rows * -(-len(sums) // 8)), dtype=np.uint8).reshape(rows, -1)
        kept = np.unpackbits(bits, axis=1, count=len(sums))
        hits += (np.abs(2 * product(kept, sums) - total) >= reached).sum(axis=0)
    return (1 + hits) / (1 + permutations)


def _threshold(sums: NDArray[np.float64]) -> Any:
    """The observed statistic, minus what rounding could take from an equal one."""
    return np.abs(sums.sum(axis=0)) - 1e-9 * np.abs(sums).sum(axis=0)


def holm(p: ArrayLike) -> NDArray[np.float64]:
    """Corrected p-values that control the family-wise error rate: Holm's step-down procedure (1979)."""
    p = np.asarray(p, dtype=np.float64)
    # The smallest p is multiplied by n, the next by the number of those left. The running maximum keeps the order, so
    # a larger p never gets a smaller corrected one.
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def false_discovery_rate(p: ArrayLike) -> NDArray[np.float64]:
    """q-values: among the differences with q below a level, at most that share is false (Benjamini, Hochberg 1995)."""
    p = np.asarray(p, dtype=np.float64)
    # From the largest p down, each is multiplied by n and divided by its rank. A smaller p never gets a larger q.
    order = np.argsort(-p, kind="stable")
    adjusted = np.empty(len(p))
    scaled = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


def adjust(primary: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> None:
    """Corrects the p-values of a report's differences in place. A difference without p (of two seeds) stays without.

    Args:
        primary: Differences that the report is made for. Each gets `p_holm`, Holm's correction for their number.
        others: All other differences. Each gets `q` of Benjamini and Hochberg.
    """
    for key, method, family in (("p_holm", holm, primary), ("q", false_discovery_rate, others)):
        tested = [difference for difference in family if not math.isnan(difference["p"])]
        for difference in family:
            difference[key] = math.nan
        for difference, corrected in zip(tested, method([difference["p"] for difference in tested]), strict=True):
            difference[key] = float(corrected)
