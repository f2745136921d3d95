"""The two scores of SugarCrepe++: known scorers, ties, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.two_positive import CHANCE, image_to_text, text_only


def of(score, *columns):
    return score(*(np.asarray(column, dtype=float) for column in columns))


def test_a_perfect_an_inverted_and_a_constant_scorer():
    high, low = np.full(4, 0.9), np.full(4, 0.1)
    assert of(image_to_text, high, high, low).accuracy == of(text_only, high, low, low).accuracy == 1.0
    assert of(image_to_text, low, low, high).accuracy == of(text_only, low, high, high).accuracy == 0.0
    for score in (image_to_text, text_only):
        constant = of(score, high, high, high)
        assert (constant.accuracy, constant.tie_rate) == (0.0, 1.0)


@pytest.mark.parametrize("score", [image_to_text, text_only])
def test_a_random_scorer_is_at_chance(score):
    columns = np.random.default_rng(0).random((3, 20_000))
    assert abs(score(*columns).accuracy - CHANCE) < 4 * math.sqrt(CHANCE * (1 - CHANCE) / 20_000)


def test_image_to_text_by_hand():
    # both above; one below; one level with the negative; one level and one below
    outcome = of(image_to_text, [0.9, 0.9, 0.5, 0.5], [0.8, 0.2, 0.6, 0.2], [0.3, 0.3, 0.5, 0.5])
    assert outcome.correct.tolist() == [True, False, False, False]
    assert outcome.tie.tolist() == [False, False, True, False]


def test_text_only_by_hand():
    # nearest; farther than the caption; farther than the paraphrase; level
    outcome = of(text_only, [0.9, 0.7, 0.7, 0.7], [0.5, 0.8, 0.1, 0.7], [0.4, 0.1, 0.8, 0.1])
    assert outcome.correct.tolist() == [True, False, False, False]
    assert outcome.tie.tolist() == [False, False, False, True]


@pytest.mark.parametrize("score", [image_to_text, text_only])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_never_wins(score, place):
    columns = [[0.9], [0.9], [0.1]] if score is image_to_text else [[0.9], [0.1], [0.1]]
    columns[place] = [math.nan]
    assert not of(score, *columns).correct.any() and not of(score, *columns).tie.any()


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\(1,\), \(2,\): expected \[n\]"):
        of(image_to_text, [1], [1, 2], [1])
