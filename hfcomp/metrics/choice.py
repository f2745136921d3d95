"""Choice of the true candidate by score, with outcomes per item and a summary in three numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

TieRule: TypeAlias = Literal["wrong", "half", "win"]
"""Value of a tie: nothing, half a point, or a full point (as in released scripts that take an argmax with the true
candidate first)."""

_TIE_CREDIT = {"wrong": 0.0, "half": 0.5, "win": 1.0}


@dataclass(frozen=True)
class ChoiceOutcome:
    """Outcomes of items that are correct if certain scores are strictly higher than others.

    Attributes:
        correct: `[n]` bool, whether every comparison of the item is strictly right.
        tie: `[n]` bool, whether the item is wrong but would be correct if every tied comparison were a win.
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


def credit(outcome: ChoiceOutcome, tie: TieRule = "wrong") -> NDArray[np.float64]:
    """Computes the value of each item, `[n]`: 1 if correct, and 0, 1/2 or 1 for a tie."""
    if tie not in _TIE_CREDIT:
        raise ValueError(f"tie: found {tie!r}, expected one of {', '.join(_TIE_CREDIT)}.")
    # A constant scorer gets 0 only with "wrong".
    return outcome.correct + _TIE_CREDIT[tie] * outcome.tie


def all_higher(*pairs: tuple[NDArray[np.floating], NDArray[np.floating]]) -> ChoiceOutcome:
    """Compares several pairs of scores per item, which is correct if all of them are strictly right.

    Args:
        pairs: For each comparison, the scores `[n]` that must be higher and those `[n]` that must be lower.

    Returns:
        Correct and tied items. An item with NaN is neither.
    """
    shapes = {np.shape(scores) for pair in pairs for scores in pair}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"scores of shapes {', '.join(map(str, sorted(shapes)))}: expected [n], the same for all.")
    correct = np.logical_and.reduce([high > low for high, low in pairs])
    possible = np.logical_and.reduce([high >= low for high, low in pairs])
    return ChoiceOutcome(correct=correct, tie=possible & ~correct)


_ROWS = 1024
"""Rows that `pair_scores` multiplies at a time. The products take as much memory as the embeddings of these rows."""


def pair_scores(image: NDArray[np.floating], text: NDArray[np.floating]) -> NDArray[np.floating]:
    """Computes the score of each item's texts, in at least fp32. Equal embeddings give bit-identical scores.

    Args:
        image: `[n, D]`.
        text: `[n, D]` or `[n, K, D]`.

    Returns:
        `[n]` or `[n, K]`.
    """
    if image.ndim != 2 or text.ndim not in (2, 3) or (len(text), text.shape[-1]) != image.shape:
        raise ValueError(f"image {image.shape} and text {text.shape}: expected [n, D] and [n, D] or [n, K, D].")
    kind = np.result_type(image, text, np.float32)
    scores = np.empty(text.shape[:-1], dtype=kind)
    for start in range(0, len(image), _ROWS):
        part = slice(start, start + _ROWS)
        images = image[part] if text.ndim == 2 else image[part, None]
        # Not a matrix product, which may sum the columns at its edge in a different order: scores of equal embeddings
        # could differ in the last bit, and a tie would look like a win. Here every score is a sum over contiguous
        # memory, whatever the number of items and texts.
        scores[part] = np.multiply(images, text[part], dtype=kind, order="C").sum(axis=-1)
    return scores


def choose(
    true_score: NDArray[np.floating], other_scores: NDArray[np.floating], mask: NDArray[np.bool_] | None = None
) -> ChoiceOutcome:
    """Decides whether the true candidate wins, by strict comparison, so a constant scorer gets 0.

    Args:
        true_score: `[n]`.
        other_scores: `[n, K]`.
        mask: `[n, K]`, which of the other candidates exist. An item without any raises an error.
    """
    if other_scores.ndim != 2 or len(true_score) != len(other_scores):
        raise ValueError(f"true_score {true_score.shape} and other_scores {other_scores.shape}: expected [n], [n, K].")
    if mask is not None:
        if not mask.any(axis=1).all():
            row = int(np.flatnonzero(~mask.any(axis=1))[0])
            raise ValueError(f"item {row} has no other candidate. Every item needs at least one.")
        other_scores = np.where(mask, other_scores, -np.inf)
    # Without items, K may be 0 too, and `max` would raise.
    best = other_scores.max(axis=1) if len(other_scores) else np.zeros(0)
    return ChoiceOutcome(correct=true_score > best, tie=true_score == best)


def summary(
    outcome: ChoiceOutcome,
    chance: float | NDArray[np.floating],
    tie: TieRule = "wrong",
    *,
    name: str = "accuracy",
    prefix: str = "",
) -> dict[str, float]:
    """Summarizes an outcome as accuracy, ties and chance.

    Returns:
        `accuracy` (mean credit), `tie_rate` (share of ties, whatever their value) and `chance`, each from 0 to 1.
    """
    if not len(outcome.correct):
        raise ValueError("there are no items to score.")
    return {
        f"{prefix}{name}": float(credit(outcome, tie).mean()),
        f"{prefix}tie_rate": outcome.tie_rate,
        f"{prefix}chance": float(np.mean(chance)),
    }


def pad_rows(rows: Sequence[Sequence[float] | NDArray[np.floating]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Pads rows to the longest.

    Returns:
        Values `[n, K]`, 0 in padding, and the mask `[n, K]` of existing values. K is at least 1.
    """
    lengths = np.array([len(row) for row in rows], dtype=np.intp)
    mask = np.arange(max(lengths.max(initial=0), 1)) < lengths[:, None]
    values = np.zeros(mask.shape, dtype=np.float64)
    for index, row in enumerate(rows):
        numbers = np.asarray(row, dtype=np.float64)
        if numbers.ndim != 1:
            raise ValueError(f"row {index} has shape {numbers.shape}: expected a flat list of numbers.")
        values[index, : len(numbers)] = numbers
    return finite(values), mask


def finite(scores: Any) -> NDArray[np.float64]:
    """Converts scores to an array and raises on NaN, which means a broken model rather than a wrong answer."""
    values = np.asarray(scores, dtype=np.float64)
    rows = np.argwhere(np.isnan(values))
    if len(rows):
        raise ValueError(f"row {rows[0][0]}: the score is NaN. Check the model that produced it.")
    return values
