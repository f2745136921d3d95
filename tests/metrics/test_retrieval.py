"""Recall at k: known scorers against chance, ties, several positives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.retrieval import recall_at_k, retrieval_ranks
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


@pytest.mark.parametrize("k", [1, 5])
def test_a_random_scorer_is_at_chance(k):
    found = [recall_at_k(unit(50, 16, seed=seed), unit(50, 16, seed=1000 + seed), k=k) for seed in range(40)]
    chance = k / 50
    assert abs(np.mean(found) - chance) < 5 * math.sqrt(chance * (1 - chance) / 2000)


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

    found = retrieval_ranks(queries, keys, positive, chunk=chunk)
    assert found.tolist() == retrieval_ranks(queries, keys, matrix).tolist()
    assert max(asked) == min(chunk, 20) and sum(asked) == 20


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_chunks_change_nothing(chunk):
    queries, keys = unit(20, 4, seed=1), unit(20, 4, seed=2)
    expected = [1 + sum(keys @ q >= (keys @ q)[i]) - 1 for i, q in enumerate(queries)]
    assert retrieval_ranks(queries, keys, chunk=chunk).tolist() == expected


def test_sets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 queries and 3 keys: pass positive"):
        retrieval_ranks(unit(2, 4, seed=0), unit(3, 4, seed=0))
    with pytest.raises(ValueError, match="query 1 has no positive key"):
        retrieval_ranks(unit(2, 4, seed=0), unit(2, 4, seed=0), np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="query 1 has no positive key"):
        retrieval_ranks(unit(2, 4, seed=0), unit(2, 4, seed=0), np.array([[True, False], [False, False]]), chunk=1)
    with pytest.raises(ValueError, match=r"positive has shape \(2, 2\) for the queries 0 to 2, expected \(2, 3\)"):
        retrieval_ranks(unit(2, 4, seed=0), unit(3, 4, seed=0), np.eye(2, dtype=bool))
