"""Chooses a point between a base and a tuned model from two scores per point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

Rule = Literal["tolerance", "mean"]
RULES: tuple[Rule, ...] = get_args(Rule)
TOLERANCE = 0.01
# Rounding slack: 1 - 0.7 is above 0.3 in floating point.
SLACK = 1e-9


class Point(NamedTuple):
    """Scores of a point; higher is better."""

    alpha: float  # 0 is the base, 1 the tuned model
    composition: float  # what training should improve
    general: float  # what it may forget


def non_dominated(points: Sequence[Point]) -> list[Point]:
    """Returns the points that no other point matches in both scores and beats in one. Equal points are all kept."""
    return [point for point in points if not any(_dominates(other, point) for other in points)]


def choose_point(points: Sequence[Point], rule: Rule = "tolerance", tolerance: float = TOLERANCE) -> Point:
    """Chooses a point by a rule, never a dominated one.

    `tolerance`: among the non-dominated points whose general score is at most `tolerance` below the base's, the point
    with the highest compositional score. `mean`: the point with the highest mean of both scores. Among equal points,
    the one nearest to the base is chosen.

    Args:
        points: Points, including the base with alpha 0.
        rule: `tolerance` or `mean`.
        tolerance: Allowed loss of the general score, from 0 to 1.

    Raises:
        ValueError: If the rule is unknown, the tolerance is not between 0 and 1, the base is missing, or a score is
            not finite.
    """
    check_rule(rule, tolerance)
    base = next((point for point in points if point.alpha == 0), None)
    if base is None:
        alphas = [point.alpha for point in points]
        raise ValueError(f"points: found alphas {alphas}, expected 0, the base, among them.")
    for point in points:
        if not (math.isfinite(point.composition) and math.isfinite(point.general)):
            raise ValueError(
                f"points: alpha {point.alpha:g} has the scores {point.composition} and {point.general}, expected "
                "finite numbers."
            )
    # Sort by alpha, because `max` takes the first of equal points: the one nearest to the base changed least.
    front = sorted(non_dominated(points), key=lambda point: point.alpha)
    if rule == "mean":
        return max(front, key=lambda point: point.composition + point.general)
    # This is never empty: if the base is dominated, the point that dominates it is not below it.
    allowed = [point for point in front if point.general >= base.general - tolerance - SLACK]
    return max(allowed, key=lambda point: point.composition)


def check_rule(rule: str, tolerance: float) -> None:
    if rule not in RULES:
        raise ValueError(f"rule: found {rule!r}, expected one of {', '.join(RULES)}.")
    if not 0 <= tolerance <= 1:
        raise ValueError(f"tolerance: found {tolerance:g}, expected 0 to 1, such as 0.01 for one percentage point.")


def rule_text(rule: Rule, tolerance: float) -> str:
    if rule == "mean":
        return "the highest mean of both scores among the non-dominated points"
    points = f"{100 * tolerance:g} point" + ("" if tolerance == 0.01 else "s")
    return (
        "the highest compositional score among the non-dominated points whose general score is at most "
        f"{points} below the base's"
    )


def _dominates(point: Point, other: Point) -> bool:
    # Equal points do not dominate each other; otherwise both would be dropped.
    return point.composition >= other.composition and point.general >= other.general and point[1:] != other[1:]
