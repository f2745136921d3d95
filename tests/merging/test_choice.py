"""The choice of a point: never a dominated one, whatever the scores."""

from __future__ import annotations

import math
import random

import pytest

from hfcomp.merging.choice import RULES, Point, choose_point, non_dominated, rule_text

ALPHAS = [index / 10 for index in range(11)]


def points(*scores: tuple[float, float]) -> list[Point]:
    return [Point(index / max(1, len(scores) - 1), *own) for index, own in enumerate(scores)]


def is_dominated(point: Point, others: list[Point]) -> bool:
    """Applies the definition, coordinate by coordinate."""
    return any(
        other.composition >= point.composition
        and other.general >= point.general
        and (other.composition > point.composition or other.general > point.general)
        for other in others
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("tolerance", [0.0, 0.01, 0.3, 1.0])
def test_a_dominated_point_is_never_chosen(rule, tolerance):
    draw = random.Random(f"{rule} {tolerance}")
    for _ in range(500):
        levels = draw.choice([2, 3, 5, 20, 10**6])  # few levels give many ties
        given = [Point(alpha, *(draw.randrange(levels) / levels for _ in range(2))) for alpha in ALPHAS]
        chosen = choose_point(draw.sample(given, len(given)), rule, tolerance)
        assert not is_dominated(chosen, given)
        assert [point for point in given if not is_dominated(point, given)] == non_dominated(given)
        if rule == "mean":
            assert math.isclose(sum(chosen[1:]), max(sum(point[1:]) for point in given))
            continue
        kept = [point for point in given if point.general >= given[0].general - tolerance - 1e-9]
        assert chosen in kept
        assert chosen.composition == max(point.composition for point in kept)


def test_the_best_composition_within_the_tolerance_is_chosen():
    given = points((0.3, 0.9), (0.4, 0.895), (0.5, 0.889), (0.6, 0.7))
    assert choose_point(given) == given[1]
    assert choose_point(given, tolerance=0.0) == given[0]
    assert choose_point(given, tolerance=0.3) == given[3]
    assert choose_point(given, "mean") == given[2]


def test_a_loss_of_exactly_the_tolerance_is_allowed_though_floats_round():
    given = points((0.3, 1.0), (0.4, 0.3))
    assert 1.0 - 0.7 > 0.3
    assert choose_point(given, tolerance=0.7) == given[1]


def test_of_equal_points_the_nearest_to_the_base_is_chosen():
    given = points((0.3, 0.8), (0.5, 0.8), (0.5, 0.8))
    assert choose_point(given[::-1]) == given[1]
    assert choose_point(given[::-1], "mean") == given[1]


def test_a_base_that_nothing_betters_stays():
    given = points((0.5, 0.8), (0.4, 0.9), (0.3, 0.7))
    assert choose_point(given) == given[0]


@pytest.mark.parametrize(
    ("given", "rule", "tolerance", "said"),
    [
        (points((0.1, 0.2)), "knee", 0.01, "rule: found 'knee',.* tolerance, mean"),
        (points((0.1, 0.2)), "mean", 1.5, "tolerance: found 1.5,.* 0 to 1"),
        ([Point(0.5, 0.1, 0.2)], "mean", 0.01, r"alphas \[0.5\],.* 0"),
        (points((0.1, 0.2), (0.1, math.nan)), "mean", 0.01, "alpha 1 .* 0.1 and nan"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(given, rule, tolerance, said):
    with pytest.raises(ValueError, match=said):
        choose_point(given, rule, tolerance)


def test_the_rule_in_words_has_its_tolerance():
    assert "at most 1 point below the base's" in rule_text("tolerance", 0.01)
    assert "at most 2.5 points below the base's" in rule_text("tolerance", 0.025)
    assert rule_text("mean", 0.01) != rule_text("tolerance", 0.01)
