"""Whether two models differ, and how large a difference a set could show; an image with all its items is one draw."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.clusters import Aligned, Images, Subsets, Values, parts_of, per_image, share_of_subsets

# Up to this many images with a difference, all 2 ** 13 signs are tried instead of a sample of them.
EXACT_IMAGES = 13
# Draws at a time: what bounds the memory of one step.
BLOCK = 250


def sign_flip_test(difference: Values, images: Images, *, permutations: int = 10_000, seed: int = 0) -> Any:
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
    _, sums, _ = per_image(difference, images, "difference")
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


def macro_sign_flip_test(
    subsets: Subsets, weights: Sequence[float] | None = None, *, permutations: int = 10_000, seed: int = 0
) -> Any:
    """`sign_flip_test` of a weighted mean of subsets' means, which is a weighted sum of items.

    An image's sign flips in all subsets at once.

    Args:
        subsets: `(difference, images)` of each, as in `sign_flip_test`.
        weights: what each subset's mean counts; by default all the same.
        permutations: number of random signs.
        seed: of the signs.

    Returns:
        As `sign_flip_test`.

    Raises:
        ValueError: as `sign_flip_test`; for no subset, an empty one, or weights that do not fit.
    """
    parts_of(subsets, "difference")  # names what is wrong by subset, before the subsets are put together
    share = share_of_subsets(weights, len(subsets))
    if not all(len(images) for _, images in subsets):
        raise ValueError("subsets: found one without items, expected at least one item in each. Leave it out.")
    weighted = [
        weight / len(images) * np.asarray(values, dtype=np.float64)
        for weight, (values, images) in zip(share, subsets, strict=True)
    ]
    images = np.concatenate([np.asarray(images) for _, images in subsets])
    return sign_flip_test(np.concatenate(weighted), images, permutations=permutations, seed=seed)


def smallest_difference(difference: Values, images: Images, *, power: float = 0.8, level: float = 0.95) -> Any:
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
    return macro_smallest_difference([(difference, images)], power=power, level=level)


def macro_smallest_difference(
    subsets: Subsets, weights: Sequence[float] | None = None, *, power: float = 0.8, level: float = 0.95
) -> Any:
    """`smallest_difference` of a weighted mean of subsets' means.

    Args:
        subsets: `(difference, images)` of each, as in `smallest_difference`.
        weights: what each subset's mean counts; by default all the same.
        power: how often a true difference of that size is found.
        level: 1 minus the share of false alarms.

    Returns:
        As `smallest_difference`; NaN where a subset has fewer than two images.

    Raises:
        ValueError: as `smallest_difference`, and for no subset or weights that do not fit.
    """
    for name, chance in (("power", power), ("level", level)):
        if not 0 < chance < 1:
            raise ValueError(f"{name}: found {chance}, expected a share between 0 and 1.")
    parts = parts_of(subsets, "difference")
    share = share_of_subsets(weights, len(parts))
    found = np.full(parts[0][1].shape[1], np.nan)
    if min(len(names) for names, _, _ in parts) > 1:
        position = {name: index for index, name in enumerate(sorted({name for part in parts for name in part[0]}))}
        aligned = Aligned(parts, position, share)
        number = len(aligned.used)
        _, spread, _ = aligned.mean_and_spread(np.ones((1, number)))
        error = np.sqrt(number / (number - 1)) * spread[0]
        normal = NormalDist()
        factor = normal.inv_cdf(1 - (1 - level) / 2) + normal.inv_cdf(power)
        least = 1e-12 * np.maximum(1.0, aligned.largest)
        found = np.where(error > least, factor * error, np.nan)
    return float(found[0]) if np.ndim(subsets[0][0]) == 1 else found


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
