"""Average precision with many labels per image, and each image's contribution to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class AveragePrecision:
    """Average precision per class.

    Attributes:
        per_class: `[C]`, in [0, 1]; NaN for a class without positives or without negatives.
        tied: `[C]`, share of a class's positives that score exactly as high as one of its negatives; NaN as above.
        chance: `[C]`, mean over random orders, slightly above the share of positives; NaN as above.
    """

    per_class: NDArray[np.float64]
    tied: NDArray[np.float64]
    chance: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mAP, which is the mean over the classes that count, in [0, 1]; NaN if there are none."""
        return _mean(self.per_class)

    @property
    def mean_chance(self) -> float:
        """The mean mAP over random orders; NaN if no class counts."""
        return _mean(self.chance)

    @property
    def left_out(self) -> int:
        """Number of classes without a positive or without a negative."""
        return int(np.isnan(self.per_class).sum())


def average_precision(scores: NDArray[np.floating], labels: NDArray[np.bool_], *, chunk: int = 16) -> AveragePrecision:
    """Computes the average precision of each class over all its positives, without interpolation.

    `AP = 1/P * sum over positives i of p_i`, with `p_i` the share of positives among all images that score at least
    as high as i. A tie is not a retrieval: a positive that scores exactly as high as any negative adds 0 instead. So a
    constant scorer, which retrieves nothing, gets 0, whatever the share of positives. Without such ties the result
    equals `sklearn.metrics.average_precision_score`; ties among positives only change neither.

    A class without positives has no AP, and in a class without negatives every scorer gets 1, even a constant one.
    Both kinds are left out and counted. Chance is not 0 but about the share of positives, see `chance`.

    Args:
        scores: `[n, C]`, higher is more likely; compared only within a class.
        labels: `[n, C]` bool, the labels of each image.
        chunk: Classes at a time; memory grows with `chunk * n`.
    """
    _check(scores, labels)
    # A class without a positive or a negative stays NaN, because `_parts` leaves it out.
    result = np.full((3, labels.shape[1]), np.nan)
    for columns, part in _parts(scores, labels, chunk):
        positives = part.positive.sum(axis=0)
        result[0, columns] = part.precision.sum(axis=0) / positives
        result[1, columns] = 1 - part.retrieved.sum(axis=0) / positives
        result[2, columns] = _mean_over_orders(len(labels), positives)
    return AveragePrecision(*result)


def map_influence(scores: NDArray[np.floating], labels: NDArray[np.bool_], *, chunk: int = 16) -> NDArray[np.float64]:
    """Computes each image's first-order value of the mAP. The mean of the values is the mAP, their spread its error.

    Give image k the weight `w_k`, 1 at first. With sums over images that score at least as high as i,
    `A_i = sum of w_j over positives j` and `B_i = sum of w_j over all j`,

        AP(w) = sum over positives i of w_i p_i / sum over positives i of w_i,    p_i = A_i / B_i,  0 if tied
        dAP/dw_k = 1/P * ( [k positive] (p_k - AP) + sum over i of ([k positive] / B_i - A_i / B_i^2) )

    where the last sum runs over the positives i that are not tied and score at most as high as k. AP does not change
    when all weights are scaled, so these derivatives sum to 0 (Euler). The value of image k is
    `mAP + n * dmAP/dw_k`. Its variance over images, divided by n, is the infinitesimal-jackknife variance of the mAP.
    So intervals and paired tests that only support means over images apply to the mAP: pass the values, or the
    differences of two models' values, with `bounds=None`.

    Source: the infinitesimal jackknife (Jaeckel 1972; Efron, "The Jackknife, the Bootstrap and Other Resampling
    Plans", 1982, chapter 6). The derivative is our own.

    Args:
        scores: `[n, C]`, as for [`average_precision`].
        labels: `[n, C]` bool.
        chunk: Classes at a time.

    Returns:
        `[n]` float64, possibly below 0 or above 1. They are first-order, so classes need more than a few positives: in
        simulations against resampled images, the standard error is right within 5% on average with 30 positives per
        class, 10% too small with 10, and 15 to 20% too small with 4. Scores must rarely tie, too: a positive tied
        with a single negative jumps from 0 if that negative is not drawn, which no derivative reflects. Scores on a
        coarse grid make the error much too small, scores rounded to fp16 do not; see `AveragePrecision.tied`.
    """
    _check(scores, labels)
    total, slope, classes = 0.0, np.zeros(len(labels)), 0
    for columns, part in _parts(scores, labels, chunk):
        positives = part.positive.sum(axis=0)
        value = part.precision.sum(axis=0) / positives
        gain = _from_group(np.where(part.retrieved, 1 / part.above, 0.0), part.first)
        loss = _from_group(part.precision / part.above, part.first)
        sorted_slope = (np.where(part.positive, part.precision - value + gain, 0.0) - loss) / positives
        image_slope = np.empty_like(sorted_slope)
        np.put_along_axis(image_slope, part.order, sorted_slope, axis=0)
        # `gain` and `loss` are the two sums in the docstring over positives below k. They were computed in the order
        # of scores, and `put_along_axis` has restored the order of images.
        slope += image_slope.sum(axis=1)
        total, classes = total + value.sum(), classes + len(columns)
    if not classes:
        raise ValueError(f"labels: none of the {labels.shape[1]} classes has both positives and negatives.")
    return total / classes + len(labels) / classes * slope


@dataclass(frozen=True)
class _Ranked:
    """Some classes' images in descending order of score; every array is `[n, classes]`.

    Images with the same score in a class form a group.

    Attributes:
        order: Image at each position.
        first: First position of the group.
        positive: Whether the image is positive.
        retrieved: Whether it is positive and its group has no negative.
        above: Number of images down to the end of the group.
        precision: Share of positives among these if `retrieved`, else 0.
    """

    order: NDArray[np.intp]
    first: NDArray[np.intp]
    positive: NDArray[np.bool_]
    retrieved: NDArray[np.bool_]
    above: NDArray[np.float64]
    precision: NDArray[np.float64]


def _parts(
    scores: NDArray[np.floating], labels: NDArray[np.bool_], chunk: int
) -> Iterator[tuple[NDArray[np.intp], _Ranked]]:
    """Yields the classes that have positives and negatives, `chunk` at a time."""
    usable = np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0))
    for start in range(0, len(usable), chunk):
        columns = usable[start : start + chunk]
        yield columns, _rank(scores[:, columns], labels[:, columns])


def _rank(scores: NDArray[np.floating], labels: NDArray[np.bool_]) -> _Ranked:
    # NumPy sorts NaN after all numbers, so it would come first here, but `_check` has rejected it.
    order = np.argsort(scores, axis=0, kind="stable")[::-1]
    ranked = np.take_along_axis(scores, order, axis=0)
    positive = np.take_along_axis(labels, order, axis=0)
    position = np.arange(len(scores))[:, None]
    new = np.ones(scores.shape, dtype=bool)
    new[1:] = ranked[1:] != ranked[:-1]
    # The first and the last position of every image's group, by running maximum and minimum instead of a loop over
    # groups
    first = np.maximum.accumulate(np.where(new, position, 0), axis=0)
    ends = np.ones(scores.shape, dtype=bool)
    ends[:-1] = new[1:]
    last = np.minimum.accumulate(np.where(ends, position, len(scores))[::-1], axis=0)[::-1]
    count = np.cumsum(positive, axis=0)
    above_positive = np.take_along_axis(count, last, axis=0)
    # Positives of the group: those down to its end, minus those before its first position. The group has no negative
    # if all of its members are positive.
    in_group: NDArray[np.intp] = above_positive - np.take_along_axis(count - positive, first, axis=0)
    retrieved = positive & (in_group == last - first + 1)
    above = last + 1.0
    precision = np.where(retrieved, above_positive / above, 0.0)
    return _Ranked(order, first, positive, retrieved, above, precision)


def _from_group(values: NDArray[np.float64], first: NDArray[np.intp]) -> NDArray[np.float64]:
    # Sum from the group's first position, because an image's weight also counts for positives that tie with it.
    return np.take_along_axis(np.cumsum(values[::-1], axis=0)[::-1], first, axis=0)


def _mean_over_orders(images: int, positives: NDArray[np.integer]) -> NDArray[np.float64]:
    """Returns the mean AP over all orders; a positive at position r has (1 + (r - 1) (P - 1) / (n - 1)) / r."""
    harmonic = (1 / np.arange(1, images + 1)).mean()
    return harmonic + (positives - 1) / (images - 1) * (1 - harmonic)


def _mean(values: NDArray[np.float64]) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _check(scores: NDArray[np.floating], labels: NDArray[np.bool_]) -> None:
    if scores.ndim != 2 or scores.shape != labels.shape:
        raise ValueError(f"scores {scores.shape} and labels {labels.shape}: expected [n, C] for both.")
    if labels.dtype != np.bool_:
        raise ValueError(f"labels: found {labels.dtype}, expected bool (whether an image has a label).")
    missing = np.argwhere(np.isnan(scores))
    if len(missing):
        raise ValueError(f"scores, image {missing[0][0]}, class {missing[0][1]}: found nan, which cannot be ranked.")
