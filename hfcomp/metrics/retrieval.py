"""Recall at k between two sets of embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def retrieval_ranks(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: NDArray[np.bool_] | None = None,
    *,
    chunk: int = 1024,
) -> NDArray[np.int64]:
    """Rank of each query's best positive: 1 + the number of other keys that score at least as high.

    A tie counts against the model, so that a constant scorer is never first.

    Args:
        queries: `[Q, D]`, L2-normalised.
        keys: `[M, D]`, L2-normalised.
        positive: `[Q, M]`, which keys are right; by default key i for query i.
        chunk: queries scored at a time.

    Returns:
        `[Q]`, from 1 to M.

    Raises:
        ValueError: when a query has no positive, or without `positive` when the sets differ in size.
    """
    queries, keys = queries.astype(np.float32), keys.astype(np.float32)
    if positive is None and len(queries) != len(keys):
        raise ValueError(f"{len(queries)} queries and {len(keys)} keys: pass positive=[Q, M] when they differ.")
    if positive is not None and not positive.any(axis=1).all():
        row = int(np.flatnonzero(~positive.any(axis=1))[0])
        raise ValueError(f"query {row} has no positive key.")
    ranks = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), chunk):
        scores = queries[start : start + chunk] @ keys.T
        if positive is None:
            right = np.zeros_like(scores, dtype=bool)
            right[np.arange(len(scores)), start + np.arange(len(scores))] = True
        else:
            right = positive[start : start + chunk]
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        ranks[start : start + chunk] = 1 + ((scores >= best) & ~right).sum(axis=1)
    return ranks


def recall_at_k(
    queries: NDArray[np.floating],
    keys: NDArray[np.floating],
    positive: NDArray[np.bool_] | None = None,
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
