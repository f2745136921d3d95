"""Recall at k: known scorers against chance, ties, several positives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.retrieval import rank_bounds, rank_scores, recall_at_k, recall_chance, retrieval_ranks
from tests.metrics.scorers import unit


def test_a_perfect_scorer_is_first_and_an_inverted_one_last():
    keys = unit(30, 8, seed=0)
    assert retrieval_ranks(keys, keys).tolist() == [1] * 30
    assert recall_at_k(keys, keys) == 1.0
    assert retrieval_ranks(-keys, keys).tolist() == [30] * 30
    assert recall_at_k(-keys, keys, k=29) == 0.0
    assert recall_at_k(-keys, keys, k=30) == 1.0


def test_a_constant_scorer_is_never_first():
    same = np.ones((6, 4), dtype=np.float32) / 2
    assert retrieval_ranks(same, same).tolist() == [6] * 6
    assert recall_at_k(same, same, k=5) == 0.0


@pytest.mark.parametrize("size", [6, 7, 33, 100, 735])
@pytest.mark.parametrize("width", [16, 64, 512, 768])
def test_a_constant_scorer_is_last_whatever_the_shapes(size, width):
    """The columns at the edge of a matrix product may differ in the last bit."""
    queries, key = unit(size, width, seed=0), unit(1, width, seed=1)
    assert set(retrieval_ranks(queries, np.repeat(key, size, axis=0)).tolist()) == {size}
    half = np.repeat(key.astype(np.float16), size, axis=0)
    assert set(retrieval_ranks(queries, half, chunk=5).tolist()) == {size}


def test_scores_a_bit_apart_are_told_apart():
    queries = np.array([[1.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    keys = np.array([[0.5, 0.0], [np.nextafter(np.float32(0.5), np.float32(1)), 0.0]], dtype=np.float32)
    assert retrieval_ranks(queries, keys).tolist() == [2, 1]


def test_nan_is_never_first():
    keys = unit(5, 8, seed=0)
    assert retrieval_ranks(np.full_like(keys, np.nan), keys).tolist() == [5] * 5
    broken = keys.copy()
    broken[2] = np.nan
    assert retrieval_ranks(keys, broken).tolist() == [2, 2, 5, 2, 2]


def test_ties_are_known_at_every_k():
    # query 0 is beaten once and tied twice, query 1 tied once, query 2 first, query 3 last
    scores = np.array([[0.5, 0.9, 0.5, 0.5], [0.1, 0.4, 0.4, 0.2], [0.1, 0.1, 0.8, 0.1], [0.3, 0.2, 0.1, 0.0]])
    ranks = rank_scores(scores, np.eye(4, dtype=bool))
    assert ranks.worst.tolist() == [4, 2, 1, 4] and ranks.best.tolist() == [2, 1, 1, 4]
    assert ranks.within(1).correct.tolist() == [False, False, True, False]
    assert ranks.within(1).tie.tolist() == [False, True, False, False]
    assert ranks.within(2).correct.tolist() == [False, True, True, False]
    assert ranks.within(2).tie.tolist() == [True, False, False, False]


def test_a_constant_scorer_ties_for_the_first_place():
    queries, key = unit(33, 67, seed=0), unit(1, 67, seed=1)
    ranks = rank_bounds(queries, np.repeat(key, 33, axis=0), chunk=5)
    assert set(ranks.best) == {1} and set(ranks.worst) == {33}
    assert ranks.within(1).accuracy == 0.0 and ranks.within(1).tie_rate == 1.0


def test_nan_is_not_even_tied():
    scores = np.array([[math.nan, 0.1], [math.nan, 0.5]])
    ranks = rank_scores(scores, np.eye(2, dtype=bool))
    assert ranks.worst.tolist() == ranks.best.tolist() == [2, 2]


def test_masked_keys_take_no_part():
    scores, mask = np.array([[0.5, 0.9, 0.1], [0.5, 0.1, 0.9]]), np.array([[True, False, True], [True, True, False]])
    positive = np.array([[True, False, False], [True, False, True]])
    assert rank_scores(scores, positive, mask).worst.tolist() == [1, 1]
    with pytest.raises(ValueError, match="query 0 .*positive"):
        rank_scores(scores[:1], ~mask[:1], mask[:1])
    with pytest.raises(ValueError, match=r"scores \(2, 3\), positive \(2, 2\), mask \(2, 3\)"):
        rank_scores(scores, positive[:, :2], mask)


def test_chance_of_one_of_several_right_keys():
    # two of five right: both draws miss with (3/5) (2/4); one of four: 2/4; one of three: 2/3
    chance = recall_chance(np.array([2, 1, 1]), np.array([5, 4, 3]), 2)
    assert chance == pytest.approx([1 - 3 / 10, 2 / 4, 2 / 3])
    assert recall_chance(2, np.array([3, 2]), 2).tolist() == [1.0, 1.0]
    scores = np.random.default_rng(0).random((20_000, 5))
    positive = np.tile([True, False, True, False, False], (20_000, 1))
    assert rank_scores(scores, positive).within(2).accuracy == pytest.approx(chance[0], abs=0.015)


@pytest.mark.parametrize("k", [1, 5])
def test_a_random_scorer_is_at_chance(k):
    recalls = [recall_at_k(unit(50, 16, seed=seed), unit(50, 16, seed=1000 + seed), k=k) for seed in range(40)]
    chance = k / 50
    assert abs(np.mean(recalls) - chance) < 5 * math.sqrt(chance * (1 - chance) / 2000)


def test_ranks_by_hand():
    queries, keys = np.eye(3, dtype=np.float32), np.array([[0.5, 0, 0.9], [0.7, 0.1, 0.9], [0.5, 0.2, 0.1]])
    # scores of query i are column i: the positive of 0 is beaten once and tied once, that of 1 beaten once
    assert retrieval_ranks(queries, keys).tolist() == [3, 2, 3]
    assert recall_at_k(queries, keys, k=2) == pytest.approx(1 / 3)


def test_the_best_of_several_positives_counts():
    queries, keys = np.array([[1.0, 0.0]]), np.array([[0.3, 0], [0.9, 0], [0.8, 0], [0.1, 0]])
    positive = np.array([[True, False, True, False]])
    assert retrieval_ranks(queries, keys, positive).tolist() == [2]
    # other positives never stand in the way
    assert retrieval_ranks(queries, keys, np.array([[True, True, True, False]])).tolist() == [1]
    tied = np.array([[0.8, 0], [0.8, 0]])
    assert retrieval_ranks(queries, tied, np.array([[True, True]])).tolist() == [1]


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_positives_by_function_equal_the_matrix(chunk):
    queries, keys, groups = unit(20, 4, seed=1), unit(30, 4, seed=2), np.arange(30) % 20
    matrix = np.arange(20)[:, None] == groups
    asked = []

    def positive(start, stop):
        asked.append(stop - start)
        return np.arange(start, stop)[:, None] == groups

    ranks = retrieval_ranks(queries, keys, positive, chunk=chunk)
    assert ranks.tolist() == retrieval_ranks(queries, keys, matrix).tolist()
    assert max(asked) == min(chunk, 20) and sum(asked) == 20


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_chunks_change_nothing(chunk):
    queries, keys = unit(20, 4, seed=1), unit(20, 4, seed=2)
    expected = [1 + sum(keys @ q >= (keys @ q)[i]) - 1 for i, q in enumerate(queries)]
    assert retrieval_ranks(queries, keys, chunk=chunk).tolist() == expected


def test_sets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 queries .*3 keys: .*positive"):
        retrieval_ranks(unit(2, 4, seed=0), unit(3, 4, seed=0))
    with pytest.raises(ValueError, match="query 1 .*positive"):
        retrieval_ranks(unit(2, 4, seed=0), unit(2, 4, seed=0), np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="query 1 .*positive"):
        retrieval_ranks(unit(2, 4, seed=0), unit(2, 4, seed=0), np.array([[True, False], [False, False]]), chunk=1)
    with pytest.raises(ValueError, match=r"positive .*\(2, 2\) .*queries 0 to 2, .*\(2, 3\)"):
        retrieval_ranks(unit(2, 4, seed=0), unit(3, 4, seed=0), np.eye(2, dtype=bool))
