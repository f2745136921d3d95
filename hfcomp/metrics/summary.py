"""An outcome in three numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, TieRule, credit


def summary(
    outcome: ChoiceOutcome,
    chance: float | NDArray[np.floating],
    tie: TieRule = "wrong",
    *,
    name: str = "accuracy",
    prefix: str = "",
) -> dict[str, float]:
    """Accuracy, ties and chance of an outcome.

    Returns:
        `accuracy` (mean credit), `tie_rate` (share of ties, whatever they are worth) and `chance`, each 0 to 1.
    """
    if not len(outcome.correct):
        raise ValueError("there are no items to score.")
    return {
        f"{prefix}{name}": float(credit(outcome, tie).mean()),
        f"{prefix}tie_rate": outcome.tie_rate,
        f"{prefix}chance": float(np.mean(chance)),
    }
