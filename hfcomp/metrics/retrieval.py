"""Recall at k between two sets of embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Positive: TypeAlias = NDArray[np.bool_] | Callable[[int, int], NDArray[np.bool_]]
"""Which keys are right: `[Q, M]`, or a function from `start, stop` to the rows of those queries, for sets so large
that the whole matrix should never be in memory."""

_ROUNDING = 1e-12
"""Scores that differ by less, at unit length, count as tied. Those of equal embeddings differ by D * 2.2e-16 at most,
as a matrix product may add up the columns at its edge in another order; the last bit of fp32 is 6e-8."""


def retrieval_ranks(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: Positive | None = None,
    *,
    chunk: int = 1024,
) -> NDArray[np.int64]:
    """Rank of each query's best positive: 1 + the number of other keys that score at least as high.

    A tie counts against the model, so that a constant scorer is never first, and so does NaN. Scores are float64, and
    those that differ by no more than its rounding are tied: equal keys tie at every size of the sets.

    Args:
        queries: `[Q, D]`, L2-normalised.
        keys: `[M, D]`, L2-normalised.
        positive: `[Q, M]`, which keys are right, or a function that gives its rows `start` to `stop`; by default key i
            for query i. Positives never stand in each other's way.
        chunk: queries scored at a time; memory grows with `chunk * M`.

    Returns:
        `[Q]`, from 1 to M.

    Raises:
        ValueError: when a query has no positive, `positive` has another shape, or without `positive` when the sets
            differ in size.
    """
    queries, keys = queries.astype(np.float64), keys.astype(np.float64)
    if positive is None and len(queries) != len(keys):
        raise ValueError(f"{len(queries)} queries and {len(keys)} keys: pass positive=[Q, M] when they differ.")
    longest = np.fmax.reduce(np.linalg.norm(keys, axis=1), initial=0.0)
    ranks = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), chunk):
        part = queries[start : start + chunk]
        right = _right(positive, start, start + len(part), len(keys))
        scores = part @ keys.T
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        margin = _ROUNDING * longest * np.linalg.norm(part, axis=1, keepdims=True)
        # not "at least as high": every comparison with NaN is false, and NaN must not come first
        ranks[start : start + chunk] = 1 + (~(scores < best - margin) & ~right).sum(axis=1)
    return ranks


def _right(positive: Positive | None, start: int, stop: int, keys: int) -> NDArray[np.bool_]:
    """The rows `start` to `stop` of `positive`, checked."""
    if positive is None:
        return np.arange(start, stop)[:, None] == np.arange(keys)
    rows = positive(start, stop) if callable(positive) else positive[start:stop]
    if rows.shape != (stop - start, keys):
        raise ValueError(
            f"positive has shape {rows.shape} for the queries {start} to {stop}, expected {(stop - start, keys)}: a "
            "row for every query, a column for every key."
        )
    if not rows.any(axis=1).all():
        raise ValueError(f"query {start + int(np.flatnonzero(~rows.any(axis=1))[0])} has no positive key.")
    return rows


def recall_at_k(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: Positive | None = None,
    *,
    k: int = 1,
) -> float:
    """Share of queries whose best positive is among the first `k` keys, in [0, 1].

    Args:
        queries: `[Q, D]`, L2-normalised.
        keys: `[M, D]`, L2-normalised.
        positive: as in [`retrieval_ranks`], which says how ties count.
        k: at least 1.
    """
    return float((retrieval_ranks(queries, keys, positive) <= k).mean())
