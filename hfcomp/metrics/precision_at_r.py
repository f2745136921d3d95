"""Retrieval of all that is right, where a query has several right keys: R-precision and mAP@R."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome
from hfcomp.metrics.retrieval import ROUNDING


@dataclass(frozen=True)
class PrecisionAtR:
    """What came of each query with its R right keys.

    Attributes:
        r_precision: `[Q]`, share of right keys among the first R, 0 to 1.
        map_at_r: `[Q]`, the mean over the first R places of the precision up to there, where the key is right, else 0.
        first: whether the first key is a right one (recall@1).
    """

    r_precision: NDArray[np.float64]
    map_at_r: NDArray[np.float64]
    first: ChoiceOutcome


def precision_at_r(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positives: Sequence[NDArray[np.integer]],
    *,
    chunk: int = 256,
) -> PrecisionAtR:
    """R-precision and mAP@R of each query, as in the authors' code of ECCV Caption (Chun et al. 2022).

    Every tie counts against the model: wrong keys rank before right ones of the same score, and so does NaN.

    Args:
        queries: `[Q, D]`, L2-normalised.
        keys: `[M, D]`, L2-normalised.
        positives: the numbers of each query's right keys, at least one, each once.
        chunk: queries scored at a time; memory grows with `chunk * M`.
    """
    if len(queries) != len(positives):
        raise ValueError(f"{len(queries)} queries and right keys of {len(positives)}: expected as many.")
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    found = np.empty((2, len(queries)))
    correct, tie = np.zeros(len(queries), dtype=bool), np.zeros(len(queries), dtype=bool)
    for start in range(0, len(queries), chunk):
        # One query at a time, because the number of right keys differs between queries.
        for row, scores in enumerate(queries[start : start + chunk] @ keys.T, start=start):
            worst, best = _ranks(scores, np.asarray(positives[row]), row)
            number = np.arange(1, len(worst) + 1)
            within = worst <= len(worst)
            found[:, row] = within.mean(), np.where(within, number / worst, 0.0).mean()
            correct[row] = worst[0] == 1
            tie[row] = best[0] == 1 and not correct[row]
    return PrecisionAtR(found[0], found[1], ChoiceOutcome(correct, tie))


def _ranks(
    scores: NDArray[np.float64], positive: NDArray[np.integer], row: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The worst and the best rank of a query's right keys under tie-breaking, in the order of their scores."""
    if not len(positive):
        raise ValueError(f"query {row} has no right key.")
    wrong = np.delete(scores, positive)
    right = np.sort(-scores[positive]) * -1  # NaN last
    number = np.arange(1, len(right) + 1)
    # not "at least as high" and "higher": every comparison with NaN is false, and NaN has to count as before
    worst = number + (~(wrong < right[:, None] - ROUNDING)).sum(axis=1)
    best = number + (~(wrong <= right[:, None] + ROUNDING)).sum(axis=1)
    return worst, best


def r_precision_chance(positives: NDArray[np.integer], keys: int) -> NDArray[np.float64]:
    """R-precision, and recall@1, of a random order, for `[Q]` numbers of right keys among `keys`."""
    return np.asarray(positives, dtype=np.float64) / keys


def map_at_r_chance(positives: NDArray[np.integer], keys: int) -> NDArray[np.float64]:
    """mAP@R of a random order.

    The key at place r is right with probability R / M, with M `keys` and R from `positives` `[Q]`; then
    (r - 1) (R - 1) / (M - 1) right keys are before it on average.
    """
    chances = {}
    for number in np.unique(positives):
        place = np.arange(1, number + 1)
        precision = (1 + (place - 1) * (number - 1) / max(keys - 1, 1)) / place
        chances[int(number)] = float(number / keys * precision.mean())
    return np.array([chances[int(number)] for number in positives], dtype=np.float64)
