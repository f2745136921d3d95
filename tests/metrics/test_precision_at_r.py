"""R-precision and mAP@R against plain loops and all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from hfcomp.metrics.retrieval import map_at_r_chance, precision_at_r, r_precision_chance


def plain(order: list[int], right: set[int]) -> tuple[float, float]:
    """Counts like the authors of ECCV Caption: precision at each of the first R places."""
    number = len(right)
    precisions = [len(right & set(order[:place])) / place for place in range(1, number + 1)]
    hits = [precision if order[place] in right else 0.0 for place, precision in enumerate(precisions)]
    return precisions[-1], sum(hits) / number


def test_equals_plain_loops():
    generator = np.random.default_rng(0)
    queries, keys = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (generator.standard_normal((30, 8)), generator.standard_normal((40, 8)))
    )
    positives = [generator.choice(40, size=size, replace=False) for size in generator.integers(1, 9, size=30)]
    precision = precision_at_r(queries, keys, positives, chunk=7)
    for row, right in enumerate(positives):
        order = list(np.argsort(-(keys @ queries[row])))
        expected = plain(order, set(right.tolist()))
        assert (precision.r_precision[row], precision.map_at_r[row]) == pytest.approx(expected)
        assert precision.first.correct[row] == (order[0] in right)


def test_a_perfect_an_inverted_and_a_constant_scorer():
    keys = np.eye(4)
    query = np.array([[1.0, 1.0, 0.0, 0.0]]) / 2**0.5
    right = [np.array([0, 1])]
    perfect, inverted = precision_at_r(query, keys, right), precision_at_r(-query, keys, right)
    assert (perfect.r_precision, perfect.map_at_r, perfect.first.correct) == (1, 1, True)
    assert (inverted.r_precision, inverted.map_at_r, inverted.first.correct) == (0, 0, False)
    constant = precision_at_r(query, np.ones((4, 4)) / 2, right)
    assert (constant.r_precision, constant.map_at_r) == (0, 0) and constant.first.tie and not constant.first.correct
    assert precision_at_r(query * np.nan, keys, right).map_at_r == 0


def test_the_second_of_three_right_keys_behind_a_wrong_one():
    scores = np.array([0.9, 0.8, 0.7, 0.6])
    precision = precision_at_r(np.ones((1, 1)), scores[:, None], [np.array([0, 2, 3])])
    assert precision.r_precision == pytest.approx(2 / 3) and precision.map_at_r == pytest.approx((1 + 2 / 3) / 3)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_chance_is_the_mean_of_all_orders(number):
    right = set(range(number))
    every = [plain(list(order), right) for order in permutations(range(5))]
    expected = np.mean(every, axis=0)
    assert r_precision_chance(np.array([number]), 5)[0] == pytest.approx(expected[0])
    assert map_at_r_chance(np.array([number]), 5)[0] == pytest.approx(expected[1])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="1 queries, .*2"):
        precision_at_r(np.ones((1, 1)), np.ones((2, 1)), [np.array([0]), np.array([1])])
    with pytest.raises(ValueError, match="query 0 .*right"):
        precision_at_r(np.ones((1, 1)), np.ones((2, 1)), [np.array([], dtype=int)])
