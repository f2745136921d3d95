"""Choosing the true one among candidates by score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ChoiceOutcome:
    """What came of each item of a choice.

    Attributes:
        correct: `[n]` bool, the true candidate scores strictly higher than every other.
        tie: `[n]` bool, the best other candidate scores exactly as high; never correct.
    """

    correct: NDArray[np.bool_]
    tie: NDArray[np.bool_]

    @property
    def accuracy(self) -> float:
        """Share of correct items, in [0, 1]; NaN for no items."""
        return float(self.correct.mean()) if len(self.correct) else float("nan")

    @property
    def tie_rate(self) -> float:
        """Share of ties, in [0, 1]; NaN for no items."""
        return float(self.tie.mean()) if len(self.tie) else float("nan")


def choose(
    true_score: NDArray[np.floating], other_scores: NDArray[np.floating], mask: NDArray[np.bool_] | None = None
) -> ChoiceOutcome:
    """Whether the true candidate wins, by strict comparison: a constant scorer gets 0.

    Args:
        true_score: `[n]`.
        other_scores: `[n, K]`.
        mask: `[n, K]`, which of the others exist; an item without any is refused.

    Raises:
        ValueError: for shapes that do not fit or an item with no other candidate.
    """
    if other_scores.ndim != 2 or len(true_score) != len(other_scores):
        raise ValueError(f"true_score {true_score.shape} and other_scores {other_scores.shape}: expected [n], [n, K].")
    if mask is not None:
        if not mask.any(axis=1).all():
            row = int(np.flatnonzero(~mask.any(axis=1))[0])
            raise ValueError(f"item {row} has no other candidate.")
        other_scores = np.where(mask, other_scores, -np.inf)
    best = other_scores.max(axis=1) if len(other_scores) else np.zeros(0)
    return ChoiceOutcome(correct=true_score > best, tie=true_score == best)
