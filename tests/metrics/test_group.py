"""Text, image and group score from four scores: known scorers, ties one by one, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.group import CHANCE, group_score

NAMES = ("text", "image", "group")


def of(*scores):
    return group_score(*(np.asarray(column, dtype=float) for column in scores))


def test_a_perfect_an_inverted_and_a_constant_scorer():
    high, low = np.full(4, 0.9), np.full(4, 0.1)
    for name in NAMES:
        assert getattr(of(high, low, low, high), name).accuracy == 1.0
        assert getattr(of(low, high, high, low), name).accuracy == 0.0
        assert getattr(of(low, high, high, low), name).tie_rate == 0.0
        constant = getattr(of(high, high, high, high), name)
        assert (constant.accuracy, constant.tie_rate) == (0.0, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_random_scorer_is_at_chance(name):
    scores = np.random.default_rng(0).random((4, 20_000))
    chance = CHANCE[name]
    error = math.sqrt(chance * (1 - chance) / 20_000)
    assert abs(getattr(of(*scores), name).accuracy - chance) < 4 * error


def test_by_hand():
    # all right; images right only; captions right only; one image wins both captions
    outcome = of([0.9, 0.5, 0.6, 0.9], [0.1, 0.1, 0.7, 0.8], [0.2, 0.6, 0.1, 0.7], [0.8, 0.8, 0.9, 0.6])
    assert outcome.text.correct.tolist() == [True, False, True, False]
    assert outcome.image.correct.tolist() == [True, True, False, False]
    assert outcome.group.correct.tolist() == [True, False, False, False]


def test_each_score_has_its_own_ties():
    # c0_i0 == c1_i0: the captions of image 0 tie; images are told apart. In the second row text is wrong besides.
    outcome = of([0.5, 0.5], [0.1, 0.9], [0.5, 0.5], [0.9, 0.1])
    assert outcome.text.tie.tolist() == [True, False]
    assert outcome.image.tie.tolist() == [False, False]
    assert outcome.image.correct.tolist() == [True, False]
    assert outcome.group.tie.tolist() == [True, False]


def test_nan_never_wins():
    for place in range(4):
        scores = [0.9, 0.1, 0.1, 0.9]
        scores[place] = math.nan
        outcome = of(*([one] for one in scores))
        assert not outcome.group.correct.any() and not outcome.group.tie.any()


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"scores of shapes \(1,\), \(2,\): expected \[n\]"):
        of([1], [1, 2], [1], [1])
    with pytest.raises(ValueError, match=r"expected \[n\]"):
        of([[1]], [[1]], [[1]], [[1]])
