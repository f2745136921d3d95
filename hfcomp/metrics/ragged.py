"""Scores from lists: numbers that are there, and rows of different lengths as one array and a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def padded(rows: Sequence[Sequence[float] | NDArray[np.floating]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows filled up to the longest.

    Returns:
        Values `[n, K]`, 0 where nothing was, and the mask `[n, K]` of what was there. K is at least 1.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    mask = np.arange(max(lengths.max(initial=0), 1)) < lengths[:, None]
    values = np.zeros(mask.shape, dtype=np.float64)
    for index, row in enumerate(rows):
        given = np.asarray(row, dtype=np.float64)
        if given.ndim != 1:
            raise ValueError(f"row {index} has shape {given.shape}: expected a flat list of numbers.")
        values[index, : len(given)] = given
    return finite(values), mask


def finite(scores: Any) -> NDArray[np.float64]:
    """Converts scores to an array and raises on NaN, which means a broken model rather than a wrong answer."""
    found = np.asarray(scores, dtype=np.float64)
    rows = np.argwhere(np.isnan(found))
    if len(rows):
        raise ValueError(f"row {rows[0][0]}: the score is NaN. Check the model that produced it.")
    return found
