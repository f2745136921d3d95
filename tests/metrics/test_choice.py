"""Choice between a true candidate and others: known scorers against chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.choice import ChoiceOutcome, all_higher, choose, credit, pair_scores
from tests import tolerances
from tests.metrics.scorers import unit


def test_a_perfect_and_an_inverted_scorer():
    true, others = np.full(5, 0.9), np.full((5, 3), 0.1)
    assert choose(true, others).accuracy == 1.0
    assert choose(1 - true, 1 - others).accuracy == 0.0
    assert choose(true, others).tie_rate == choose(1 - true, 1 - others).tie_rate == 0.0


def test_a_constant_scorer_is_never_right_and_always_tied():
    outcome = choose(np.full(4, 0.5), np.full((4, 2), 0.5))
    assert outcome.accuracy == 0.0
    assert outcome.tie_rate == 1.0


@pytest.mark.parametrize("others", [1, 3])
def test_a_random_scorer_is_at_chance(others):
    scores = np.random.default_rng(0).random((20_000, 1 + others))
    chance = 1 / (1 + others)
    error = math.sqrt(chance * (1 - chance) / 20_000)
    assert abs(choose(scores[:, 0], scores[:, 1:]).accuracy - chance) < 4 * error


def test_masked_candidates_take_no_part():
    true, others = np.array([0.5, 0.5, 0.5]), np.array([[0.4, 0.9], [0.9, 0.4], [0.5, 0.9]])
    mask = np.array([[True, False], [True, False], [True, False]])
    outcome = choose(true, others, mask)
    assert outcome.correct.tolist() == [True, False, False]
    assert outcome.tie.tolist() == [False, False, True]


def test_the_best_of_the_others_decides():
    assert choose(np.array([0.5]), np.array([[0.1, 0.6, 0.2]])).correct.tolist() == [False]


def test_nan_never_wins():
    outcome = choose(np.array([math.nan, 0.5, math.nan]), np.array([[0.1], [math.nan], [math.nan]]))
    assert not outcome.correct.any() and not outcome.tie.any()


@pytest.mark.parametrize(("tie", "expected"), [("wrong", [1, 0, 0]), ("half", [1, 0.5, 0]), ("win", [1, 1, 0])])
def test_what_a_tie_is_worth(tie, expected):
    outcome = ChoiceOutcome(np.array([True, False, False]), np.array([False, True, False]))
    assert credit(outcome, tie).tolist() == expected
    assert credit(outcome).tolist() == [1, 0, 0]


def test_an_unknown_rule_for_ties_is_refused():
    with pytest.raises(ValueError, match="tie: found 'lose'.* wrong, half, win"):
        credit(choose(np.zeros(1), np.zeros((1, 1))), "lose")


def test_a_tie_is_what_would_be_right_if_equal_scores_were_a_win():
    first = np.array([2.0, 1.0, 1.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0, 1.0, 1.0])
    second = np.array([2.0, 2.0, 1.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0, math.nan])
    outcome = all_higher(first, second)
    assert outcome.correct.tolist() == [True, False, False, False, False]
    assert outcome.tie.tolist() == [False, True, True, False, False]
    with pytest.raises(ValueError, match=r"\(1,\), \(2,\).*\[n\]"):
        all_higher((np.zeros(1), np.zeros(2)))


def test_no_items_give_no_number():
    outcome = choose(np.zeros(0), np.zeros((0, 2)))
    assert math.isnan(outcome.accuracy)
    assert math.isnan(outcome.tie_rate)


def test_an_item_without_candidates_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="item 1 .*other"):
        choose(np.zeros(2), np.zeros((2, 1)), np.array([[True], [False]]))
    with pytest.raises(ValueError, match=r"expected \[n\], \[n, K\]"):
        choose(np.zeros(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"true_score \(3,\) .*other_scores \(2, 1\)"):
        choose(np.zeros(3), np.zeros((2, 1)))


@pytest.mark.parametrize("size", [1, 7, 1500])
@pytest.mark.parametrize("width", [1, 16, 67, 768])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_equal_embeddings_score_equal_to_the_last_bit(size, width, kind):
    image, text = unit(size, width, seed=0), unit(size, width, seed=1).astype(kind)
    score = pair_scores(image, text)
    assert score.dtype == (np.float64 if kind == np.float64 else np.float32)
    np.testing.assert_allclose(
        score, np.einsum("nd,nd->n", image, text.astype(np.float64)), atol=tolerances.rounding(width)
    )
    for others in (1, 3):
        assert (pair_scores(image, np.repeat(text[:, None], others, axis=1)) == score[:, None]).all()
    # neither the place in the batch nor the layout in memory has a say
    assert (pair_scores(image[::-1], text[::-1])[::-1] == score).all()
    assert (pair_scores(np.asfortranarray(image), np.asfortranarray(text)) == score).all()


def test_pairs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"image \(2, 3\) .*text \(4, 2, 3\).*\[n, D\]"):
        pair_scores(np.zeros((2, 3)), np.zeros((4, 2, 3)))
    with pytest.raises(ValueError, match=r"image \(2, 3\) and text \(2, 4\)"):
        pair_scores(np.zeros((2, 3)), np.zeros((2, 4)))
