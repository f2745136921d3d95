"""Retrieval between two sets of embeddings: recall at k, and R-precision and mAP@R where several keys are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome

Positive: TypeAlias = NDArray[np.bool_] | Callable[[int, int], NDArray[np.bool_]]
"""Which keys are right: `[Q, M]`, or a function from `start, stop` to the rows of those queries, for sets so large
that the whole matrix should never be in memory."""

ROUNDING = 1e-12
"""Scores that differ by less, at unit length, count as tied. Those of equal embeddings differ by D * 2.2e-16 at most,
as a matrix product may add up the columns at its edge in another order; the last bit of fp32 is 6e-8."""

_MOST_QUERIES, _SCORES = 1024, 2**24
"""Queries, and scores, at a time: a score takes 8 bytes, as much while positives are found, and some for masks."""


@dataclass(frozen=True)
class RankBounds:
    """The best and worst rank of each query's best positive under tie-breaking.

    Attributes:
        worst: `[Q]` int, 1 + the number of other keys that score at least as high.
        best: `[Q]` int, 1 + the number of other keys that score higher.
    """

    worst: NDArray[np.int64]
    best: NDArray[np.int64]

    def within(self, k: int) -> ChoiceOutcome:
        """Correct where the positive is among the first `k` keys however ties are broken, tied where it depends."""
        correct = self.worst <= k
        return ChoiceOutcome(correct=correct, tie=(self.best <= k) & ~correct)


def rank_scores(
    scores: NDArray[np.floating],
    positive: NDArray[np.bool_],
    mask: NDArray[np.bool_] | None = None,
    *,
    margin: NDArray[np.floating] | float = 0.0,
) -> RankBounds:
    """Ranks of each row's best positive among its other keys. Positives never stand in each other's way.

    Args:
        scores: `[Q, M]`. A key whose score is NaN, and every key if the positive's is, ranks before the positive.
        positive: `[Q, M]`, which keys are right.
        mask: `[Q, M]`, which keys exist; by default all.
        margin: scores that differ by no more are tied; a number or `[Q, 1]`.
    """
    right, exists = positive, np.ones(scores.shape, dtype=bool) if mask is None else mask
    if scores.ndim != 2 or not scores.shape == right.shape == exists.shape:
        raise ValueError(
            f"scores {scores.shape}, positive {right.shape}, mask {exists.shape}: expected [Q, M] for all."
        )
    _require_positive(right & exists)
    # NaN passes through `max`: a positive of a broken model is then below every other key.
    top = np.where(right & exists, scores, -np.inf).max(axis=1, keepdims=True)
    others = exists & ~right
    # Not ">=" and ">": every comparison with NaN is false, and NaN must not come first.
    return RankBounds(
        worst=1 + (~(scores < top - margin) & others).sum(axis=1),
        best=1 + (~(scores <= top + margin) & others).sum(axis=1),
    )


def rank_bounds(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: Positive | None = None,
    *,
    chunk: int | None = None,
) -> RankBounds:
    """As [`retrieval_ranks`], with the ranks that ties broken in the model's favor would give."""
    chunk = max(1, min(_MOST_QUERIES, _SCORES // max(1, len(keys)))) if chunk is None else chunk
    keys = keys.astype(np.float64)
    if positive is None and len(queries) != len(keys):
        raise ValueError(f"{len(queries)} queries and {len(keys)} keys: pass positive=[Q, M] when they differ.")
    # fmax, because one key with NaN must not make every margin NaN.
    longest = np.fmax.reduce(np.linalg.norm(keys, axis=1), initial=0.0)
    worst, best = np.empty(len(queries), dtype=np.int64), np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), chunk):
        rows = queries[start : start + chunk].astype(np.float64)
        part = slice(start, start + len(rows))
        right = _right(positive, part.start, part.stop, len(keys))
        # The rounding of a dot product grows with both lengths; for unit vectors this is ROUNDING itself.
        margin = ROUNDING * longest * np.linalg.norm(rows, axis=1, keepdims=True)
        ranks = rank_scores(rows @ keys.T, right, margin=margin)
        worst[part], best[part] = ranks.worst, ranks.best
    return RankBounds(worst, best)


def retrieval_ranks(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: Positive | None = None,
    *,
    chunk: int | None = None,
) -> NDArray[np.int64]:
    """Rank of each query's best positive: 1 + the number of other keys that score at least as high.

    A tie counts against the model, so that a constant scorer is never first, and so does NaN. Scores are float64, and
    those that differ by no more than its rounding are tied: equal keys tie at every size of the sets.

    Args:
        queries: `[Q, D]`, L2-normalized.
        keys: `[M, D]`, L2-normalized.
        positive: `[Q, M]`, which keys are right, or a function that gives its rows `start` to `stop`; by default key i
            for query i. Positives never stand in each other's way.
        chunk: queries scored at a time; memory grows with `chunk * M`. By default as many as take about 0.5 GB.

    Returns:
        `[Q]`, from 1 to M.
    """
    return rank_bounds(queries, keys, positive, chunk=chunk).worst


def _right(positive: Positive | None, start: int, stop: int, keys: int) -> NDArray[np.bool_]:
    if positive is None:
        return np.arange(start, stop)[:, None] == np.arange(keys)
    rows = positive(start, stop) if callable(positive) else positive[start:stop]
    if rows.shape != (stop - start, keys):
        raise ValueError(
            f"positive has shape {rows.shape} for the queries {start} to {stop}, expected {(stop - start, keys)}: "
            "one row per query, one column per key."
        )
    _require_positive(rows, start)
    return rows


def _require_positive(rows: NDArray[np.bool_], start: int = 0) -> None:
    empty = np.flatnonzero(~rows.any(axis=1))
    if len(empty):
        raise ValueError(f"query {start + int(empty[0])} has no positive key.")


def recall_at_k(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: Positive | None = None,
    *,
    k: int = 1,
) -> float:
    """Share of queries whose best positive is among the first `k` keys, in [0, 1]; see [`retrieval_ranks`]."""
    return float((retrieval_ranks(queries, keys, positive) <= k).mean())


def recall_chance(
    positives: NDArray[np.integer] | int, keys: NDArray[np.integer] | int, k: int = 1
) -> NDArray[np.float64]:
    """Chance that a random order puts a right key among the first `k`: `[Q]`, or one for all queries."""
    # The product of the chances that each draw in turn is wrong, instead of binomial coefficients, which overflow for
    # large sets. It reaches 0 if fewer than `k` keys are wrong, so nobody can fail there.
    wrong, missed = np.subtract(keys, positives), np.ones(np.broadcast_shapes(np.shape(positives), np.shape(keys)))
    for drawn in range(k):
        missed = missed * np.clip(wrong - drawn, 0, None) / np.clip(np.subtract(keys, drawn), 1, None)
    return 1 - missed


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
        queries: `[Q, D]`, L2-normalized.
        keys: `[M, D]`, L2-normalized.
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
    # Not ">=" and ">": every comparison with NaN is false, so a wrong key with NaN counts as ahead.
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
