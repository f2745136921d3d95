"""The choice of a point between a base and a tuned model, from two scores of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

Rule = Literal["tolerance", "mean"]
RULES: tuple[Rule, ...] = get_args(Rule)
TOLERANCE = 0.01
# Room for rounding: 1 - 0.7 is above 0.3 in floating point.
SLACK = 1e-9


class Point(NamedTuple):
    """Scores at a point, higher is better."""

    alpha: float  # 0 is the base, 1 the tuned model
    composition: float  # what training is to gain
    general: float  # what it may forget


def non_dominated(points: Sequence[Point]) -> list[Point]:
    """The points than which no other is at least as good in both scores and better in one; equal points all stay."""
    return [one for one in points if not any(_dominates(other, one) for other in points)]


def choose_point(points: Sequence[Point], rule: Rule = "tolerance", tolerance: float = TOLERANCE) -> Point:
    """The point that a rule picks, never a dominated one.

    `tolerance`: of the points that are not dominated and whose general score is at most `tolerance` below the base's,
    the one with the highest score of composition. `mean`: the one with the highest mean of both scores. Of equal ones
    the nearest to the base is taken.

    Args:
        points: among them the base, of alpha 0.
        rule: `tolerance` or `mean`.
        tolerance: that may be lost of the general score, from 0 to 1.

    Raises:
        ValueError: for an unknown rule, a tolerance that is not from 0 to 1, points without the base, or a score that
            is not finite.
    """
    check_rule(rule, tolerance)
    base = next((one for one in points if one.alpha == 0), None)
    if base is None:
        raise ValueError(f"points: found alphas {[one.alpha for one in points]}, expected 0, the base, among them.")
    for one in points:
        if not (math.isfinite(one.composition) and math.isfinite(one.general)):
            raise ValueError(f"points: alpha {one.alpha:g} has the scores {one.composition} and {one.general}.")
    # Sorted by alpha, because `max` takes the first of equal points: the one nearest to the base was changed least.
    front = sorted(non_dominated(points), key=lambda one: one.alpha)
    if rule == "mean":
        return max(front, key=lambda one: one.composition + one.general)
    # Never empty: if the base is dominated, what dominates it is not below it.
    kept = [one for one in front if one.general >= base.general - tolerance - SLACK]
    return max(kept, key=lambda one: one.composition)


def check_rule(rule: str, tolerance: float) -> None:
    if rule not in RULES:
        raise ValueError(f"rule: found {rule!r}, expected one of {', '.join(RULES)}.")
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance: found {tolerance:g}, expected 0 to 1, such as 0.01 for one percentage point.")


def rule_text(rule: Rule, tolerance: float) -> str:
    if rule == "mean":
        return "the highest mean of both scores among the points that no other dominates"
    points = f"{100 * tolerance:g} point" + ("" if tolerance == 0.01 else "s")
    return (
        "the highest score of composition among the points that no other dominates and whose general score is at "
        f"most {points} below the base's"
    )


def _dominates(one: Point, other: Point) -> bool:
    # Equal points do not dominate each other, or both would be dropped.
    return one.composition >= other.composition and one.general >= other.general and one[1:] != other[1:]
