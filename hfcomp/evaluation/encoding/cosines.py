"""Cosines of images and texts of which each distinct one is encoded once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import pair_scores

ROWS = 4096
"""Pairs whose vectors are gathered at a time."""
Numbers = NDArray[np.float64]


def indexed_cosines(
    first: NDArray[np.float32], rows: NDArray[np.integer], second: NDArray[np.float32], others: NDArray[np.integer]
) -> Numbers:
    """`[n]`: of vectors by number; NaN where one of the two is missing.

    Args:
        first: `[m, D]`, L2-normalised.
        rows: `[n]`, which of them each pair has, -1 for none.
        second: `[k, D]`, L2-normalised.
        others: `[n]`, likewise.
    """
    found = np.full(len(rows), np.nan)
    there = np.flatnonzero((rows >= 0) & (others >= 0))
    for start in range(0, len(there), ROWS):
        part = there[start : start + ROWS]
        found[part] = pair_scores(first[rows[part]], second[others[part]])
    return found
