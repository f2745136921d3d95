"""Ranks among keyword alternatives: known scorers against chance, ragged rows, ties, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.choice import pad_rows
from hfcomp.metrics.keyword_ranking import keyword_ranking


def test_a_perfect_an_inverted_and_a_constant_scorer():
    true, others = np.full(4, 0.9), np.full((4, 7), 0.1)
    perfect = keyword_ranking(true, others)
    assert perfect.first.accuracy == perfect.reciprocal_rank.mean() == 1.0 and set(perfect.rank) == {1}
    inverted = keyword_ranking(-true, -others)
    assert inverted.first.accuracy == 0.0 and set(inverted.rank) == {8}
    assert inverted.reciprocal_rank == pytest.approx(1 / 8)
    constant = keyword_ranking(np.full(4, 0.1), others)
    assert (constant.first.accuracy, constant.first.tie_rate) == (0.0, 1.0)
    assert set(constant.rank) == {8} and set(constant.reciprocal_rank) == {0.0}


@pytest.mark.parametrize("others", [1, 8])
def test_a_random_scorer_is_at_chance(others):
    scores = np.random.default_rng(0).random((20_000, 1 + others))
    ranking = keyword_ranking(scores[:, 0], scores[:, 1:])
    chance = 1 / (1 + others)
    assert set(ranking.chance) == {chance}
    assert abs(ranking.first.accuracy - chance) < 4 * math.sqrt(chance * (1 - chance) / 20_000)
    error = ranking.reciprocal_rank.std() / math.sqrt(20_000)
    assert abs(ranking.reciprocal_rank.mean() - ranking.reciprocal_rank_chance.mean()) < 4 * error


def test_ragged_rows_by_hand():
    others, mask = pad_rows([[0.1], [0.3, 0.6, 0.2], [0.5, 0.1], [0.2], [0.9, 0.1, 0.4, 0.3]])
    ranking = keyword_ranking(np.array([0.9, 0.4, 0.5, 0.2, -0.1]), others, mask)
    assert ranking.first.correct.tolist() == [True, False, False, False, False]
    assert ranking.first.tie.tolist() == [False, False, True, True, False]
    assert ranking.rank.tolist() == [1, 2, 2, 2, 5]
    # the fourth ranks nothing: its two candidates score the same
    assert ranking.reciprocal_rank == pytest.approx([1, 1 / 2, 1 / 2, 0, 1 / 5])
    assert ranking.chance == pytest.approx([1 / 2, 1 / 4, 1 / 3, 1 / 2, 1 / 5])
    # over two candidates (1 + 1/2) / 2, over four (1 + 1/2 + 1/3 + 1/4) / 4
    assert ranking.reciprocal_rank_chance[:2] == pytest.approx([3 / 4, 25 / 48])


def test_nan_never_helps():
    ranking = keyword_ranking(np.array([math.nan, 0.5]), np.array([[0.1, 0.2], [0.1, math.nan]]))
    assert not ranking.first.correct.any() and not ranking.first.tie.any()
    assert ranking.rank.tolist() == [3, 2]
    assert ranking.reciprocal_rank.tolist() == [0.0, 0.5]


def test_items_without_alternatives_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="item 1 .*other"):
        keyword_ranking(np.zeros(2), *pad_rows([[0.1], []]))
    with pytest.raises(ValueError, match=r"expected \[n\], \[n, K\]"):
        keyword_ranking(np.zeros(3), np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"row 1 .*\(1, 2\)"):
        pad_rows([[1.0], [[1.0, 2.0]]])


def test_no_items_give_no_rows():
    assert keyword_ranking(np.zeros(0), np.zeros((0, 2))).rank.tolist() == []
