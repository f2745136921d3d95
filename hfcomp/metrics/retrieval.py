"""Retrieval between two sets of embeddings: recall at k, and R-precision and mAP@R for several right keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome

Array: TypeAlias = NDArray[np.floating]
Positive: TypeAlias = NDArray[np.bool_] | Callable[[int, int], NDArray[np.bool_]]
"""The right keys: `[Q, M]`, or a function from `start, stop` to the rows of those queries, for datasets so large that
the whole matrix should never be in memory."""

ROUNDING = 1e-12
"""Scores that differ by less, at unit length, count as tied. Scores of equal embeddings differ by at most D * 2.2e-16,
because a matrix product may sum the columns at its edge in a different order; the last bit of fp32 is 6e-8."""

_MAX_QUERIES, _MAX_SCORES = 1024, 2**24
"""Queries, and scores, at a time. A score takes 8 bytes, the same again while positives are searched, and masks."""


@dataclass(frozen=True)
class RankBounds:
    """Best and worst rank of each query's best positive under tie-breaking.

    Attributes:
        worst: `[Q]` int, 1 + the number of other keys that score at least as high.
        best: `[Q]` int, 1 + the number of other keys that score higher.
    """

    worst: NDArray[np.int64]
    best: NDArray[np.int64]

    def within(self, k: int) -> ChoiceOutcome:
        """Tests whether the positive is among the first `k` keys. Tied if this depends on how ties are broken."""
        correct = self.worst <= k
        return ChoiceOutcome(correct=correct, tie=(self.best <= k) & ~correct)


def rank_scores(
    scores: Array, positive: NDArray[np.bool_], mask: NDArray[np.bool_] | None = None, *, margin: Array | float = 0.0
) -> RankBounds:
    """Ranks each row's best positive among its other keys. Positives do not count against each other.

    Args:
        scores: `[Q, M]`. A key with score NaN ranks before the positive, and so does every key if the positive's is
            NaN.
        positive: `[Q, M]`, which keys are right.
        mask: `[Q, M]`, which keys exist; by default all.
        margin: Difference up to which scores are tied; a number or `[Q, 1]`.
    """
    right, exists = positive, np.ones(scores.shape, dtype=bool) if mask is None else mask
    if scores.ndim != 2 or not scores.shape == right.shape == exists.shape:
        raise ValueError(
            f"scores {scores.shape}, positive {right.shape}, mask {exists.shape}: expected [Q, M] for all."
        )
    _require_positive(right & exists)
    # `max` keeps NaN, so a positive of a broken model is below every other key.
    top = np.where(right & exists, scores, -np.inf).max(axis=1, keepdims=True)
    others = exists & ~right
    # Not ">=" and ">", because every comparison with NaN is false and NaN must not come first.
    return RankBounds(
        worst=1 + (~(scores < top - margin) & others).sum(axis=1),
        best=1 + (~(scores <= top + margin) & others).sum(axis=1),
    )


def rank_bounds(
    queries: Array, keys: Array, positive: Positive | None = None, *, chunk: int | None = None
) -> RankBounds:
    """Computes [`retrieval_ranks`], and the ranks if ties were broken in the model's favor."""
    chunk = max(1, min(_MAX_QUERIES, _MAX_SCORES // max(1, len(keys)))) if chunk is None else chunk
    keys = keys.astype(np.float64)
    if positive is None and len(queries) != len(keys):
        raise ValueError(f"{len(queries)} queries and {len(keys)} keys: pass positive=[Q, M] if the numbers differ.")
    # fmax, because one key with NaN must not make every margin NaN.
    longest = np.fmax.reduce(np.linalg.norm(keys, axis=1), initial=0.0)
    worst, best = np.empty(len(queries), dtype=np.int64), np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), chunk):
        rows = queries[start : start + chunk].astype(np.float64)
        part = slice(start, start + len(rows))
        right = _positive_rows(positive, part.start, part.stop, len(keys))
        # The rounding of a dot product grows with both lengths; for unit vectors this is ROUNDING itself.
        margin = ROUNDING * longest * np.linalg.norm(rows, axis=1, keepdims=True)
        ranks = rank_scores(rows @ keys.T, right, margin=margin)
        worst[part], best[part] = ranks.worst, ranks.best
    return RankBounds(worst, best)


def retrieval_ranks(
    queries: Array, keys: Array, positive: Positive | None = None, *, chunk: int | None = None
) -> NDArray[np.int64]:
    """Computes the rank of each query's best positive: 1 + the number of other keys that score at least as high.

    Ties and NaN count against the model, so a constant scorer is never first. Scores are float64, and those that
    differ by no more than its rounding are tied: equal keys tie for sets of every size.

    Args:
        queries: `[Q, D]`, L2-normalized.
        keys: `[M, D]`, L2-normalized.
        positive: `[Q, M]`, which keys are right, or a function that returns its rows `start` to `stop`; by default key
            i for query i. Positives do not count against each other.
        chunk: Queries scored at a time; memory grows with `chunk * M`. Defaults to about 0.5 GB.

    Returns:
        `[Q]`, from 1 to M.
    """
    return rank_bounds(queries, keys, positive, chunk=chunk).worst


def _positive_rows(positive: Positive | None, start: int, stop: int, keys: int) -> NDArray[np.bool_]:
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
        raise ValueError(f"query {start + int(empty[0])} has no positive key. Every query needs at least one.")


def recall_at_k(queries: Array, keys: Array, positive: Positive | None = None, *, k: int = 1) -> float:
    """Computes the share of queries, 0 to 1, whose best positive is in the first `k` keys; see [`retrieval_ranks`]."""
    return float((retrieval_ranks(queries, keys, positive) <= k).mean())


def recall_chance(
    positives: NDArray[np.integer] | int, keys: NDArray[np.integer] | int, k: int = 1
) -> NDArray[np.float64]:
    """Computes the chance of a right key among the first `k` in random order: `[Q]`, or one number for all queries."""
    # Multiply the chances that each draw in turn is wrong. Binomial coefficients would overflow for large datasets.
    # The product is 0 if fewer than `k` keys are wrong, because no scorer can fail there.
    wrong, missed = np.subtract(keys, positives), np.ones(np.broadcast_shapes(np.shape(positives), np.shape(keys)))
    for drawn in range(k):
        missed = missed * np.clip(wrong - drawn, 0, None) / np.clip(np.subtract(keys, drawn), 1, None)
    return 1 - missed


@dataclass(frozen=True)
class PrecisionAtR:
    """Outcomes of each query with its R right keys.

    Attributes:
        r_precision: `[Q]`, share of right keys among the first R, 0 to 1.
        map_at_r: `[Q]`, mean over the first R positions of the precision up to there if the key is right, else 0.
        first: Whether the first key is right (recall@1).
    """

    r_precision: NDArray[np.float64]
    map_at_r: NDArray[np.float64]
    first: ChoiceOutcome


def precision_at_r(
    queries: Array, keys: Array, positives: Sequence[NDArray[np.integer]], *, chunk: int = 256
) -> PrecisionAtR:
    """Computes R-precision and mAP@R of each query, as in the ECCV Caption authors' code (Chun et al. 2022).

    Every tie counts against the model: wrong keys rank before right ones with the same score. So does NaN.

    Args:
        queries: `[Q, D]`, L2-normalized.
        keys: `[M, D]`, L2-normalized.
        positives: Numbers of each query's right keys, at least one, each listed once.
        chunk: Queries scored at a time; memory grows with `chunk * M`.
    """
    if len(queries) != len(positives):
        raise ValueError(f"{len(queries)} queries, but right keys for {len(positives)}: expected the same number.")
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    precision = np.empty((2, len(queries)))
    correct, tie = np.zeros(len(queries), dtype=bool), np.zeros(len(queries), dtype=bool)
    for start in range(0, len(queries), chunk):
        # One query at a time, because the number of right keys differs between queries
        for row, scores in enumerate(queries[start : start + chunk] @ keys.T, start=start):
            worst, best = _ranks(scores, np.asarray(positives[row]), row)
            number = np.arange(1, len(worst) + 1)
            within = worst <= len(worst)
            precision[:, row] = within.mean(), np.where(within, number / worst, 0.0).mean()
            correct[row] = worst[0] == 1
            tie[row] = best[0] == 1 and not correct[row]
    return PrecisionAtR(precision[0], precision[1], ChoiceOutcome(correct, tie))


def _ranks(
    scores: NDArray[np.float64], positive: NDArray[np.integer], row: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the worst and best rank of a query's right keys under tie-breaking, in the order of their scores."""
    if not len(positive):
        raise ValueError(f"query {row} has no right key. Every query needs at least one.")
    wrong = np.delete(scores, positive)
    right = np.sort(-scores[positive]) * -1  # NaN last
    number = np.arange(1, len(right) + 1)
    # Not ">=" and ">", because every comparison with NaN is false and a wrong key with NaN must count as ahead.
    worst = number + (~(wrong < right[:, None] - ROUNDING)).sum(axis=1)
    best = number + (~(wrong <= right[:, None] + ROUNDING)).sum(axis=1)
    return worst, best


def r_precision_chance(positives: NDArray[np.integer], keys: int) -> NDArray[np.float64]:
    """Computes R-precision and recall@1 of a random order, for `[Q]` numbers of right keys among `keys`."""
    return np.asarray(positives, dtype=np.float64) / keys


def map_at_r_chance(positives: NDArray[np.integer], keys: int) -> NDArray[np.float64]:
    """Computes mAP@R of a random order.

    With M `keys` and R right ones (from `positives` `[Q]`), the key at position r is right with probability R / M, and
    then on average (r - 1) (R - 1) / (M - 1) right keys come before it.
    """
    chances = {}
    for number in np.unique(positives):
        position = np.arange(1, number + 1)
        precision = (1 + (position - 1) * (number - 1) / max(keys - 1, 1)) / position
        chances[int(number)] = float(number / keys * precision.mean())
    return np.array([chances[int(number)] for number in positives], dtype=np.float64)
