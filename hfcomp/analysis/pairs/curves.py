"""LOESS curves of similarities against concreteness, as in the paper's Figure 4."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POINTS = 60
FEWEST_PAIRS, FEWEST_VALUES = 10, 3
STEP = 0.01
"""Of the range: values nearer to each other than that share a fit, without which time would be quadratic in pairs."""


def loess(
    across: NDArray[np.float64], up: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A robust LOESS curve (Cleveland, "Robust locally weighted regression", JASA 74, 1979), by statsmodels.

    Args:
        across: `[n]`, finite.
        up: `[n]`, finite.
        share: of the pairs that each fit takes in.

    Returns:
        The curve's points, `[k]` across and `[k]` up; none for fewer than 10 pairs or 3 different values.

    Raises:
        ImportError: without statsmodels.
    """
    try:
        from statsmodels.nonparametric.smoothers_lowess import lowess
    except ImportError as error:
        raise ImportError("the LOESS curve needs statsmodels: pip install 'hfcomp[plots]'") from error
    if len(across) < FEWEST_PAIRS or len(np.unique(across)) < FEWEST_VALUES:
        return np.zeros(0), np.zeros(0)
    width = float(np.ptp(across))
    with np.errstate(invalid="ignore", divide="ignore"):  # a fit of equal values is NaN, and left out
        fitted = lowess(up, across, frac=share, delta=STEP * width, return_sorted=True)
    fitted = fitted[np.isfinite(fitted).all(axis=1)]
    if not len(fitted):
        return np.zeros(0), np.zeros(0)
    places, first = np.unique(fitted[:, 0], return_index=True)
    grid = np.linspace(places[0], places[-1], POINTS)
    return grid, np.interp(grid, places, fitted[first, 1])
