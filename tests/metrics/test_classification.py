"""Top-k and mean-per-class accuracy: known scorers against chance, ties, chunks, intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.choice import choose
from hfcomp.metrics.classification import class_scores, top_k
from tests.metrics.scorers import unit


def test_a_perfect_and_an_inverted_scorer():
    labels = np.arange(12) % 4
    scores = np.eye(4)[labels]
    assert top_k(scores, labels).accuracy == 1.0
    assert top_k(-scores, labels, k=3).accuracy == 0.0
    assert top_k(scores, labels).tie_rate == top_k(-scores, labels, k=3).tie_rate == 0.0


@pytest.mark.parametrize("k", [1, 5])
def test_a_constant_scorer_is_never_right_and_always_tied(k):
    outcome = top_k(np.full((9, 7), 0.5), np.arange(9) % 7, k)
    assert outcome.accuracy == 0.0
    assert outcome.tie_rate == 1.0


@pytest.mark.parametrize("k", [1, 5])
def test_a_random_scorer_is_at_chance(k):
    generator = np.random.default_rng(0)
    accuracy = top_k(generator.random((20_000, 20)), generator.integers(20, size=20_000), k).accuracy
    chance = k / 20
    assert abs(accuracy - chance) < 4 * math.sqrt(chance * (1 - chance) / 20_000)


def test_ranks_and_ties_by_hand():
    scores = np.array([[0.9, 0.5, 0.5, 0.1]])
    by_class = {own: [top_k(scores, np.array([own]), k) for k in (1, 2, 3)] for own in range(4)}
    assert [[bool(outcome.correct[0]) for outcome in row] for row in by_class.values()] == [
        [True, True, True],
        [False, False, True],  # rank 3: one is ahead, one is tied
        [False, False, True],
        [False, False, False],
    ]
    assert [[bool(outcome.tie[0]) for outcome in row] for row in by_class.values()] == [
        [False, False, False],
        [False, True, False],
        [False, True, False],
        [False, False, False],
    ]


def test_the_first_of_one_is_the_choice_among_all():
    scores = np.random.default_rng(1).integers(4, size=(200, 5)).astype(float)
    labels = np.arange(200) % 5
    own = np.arange(5) == labels[:, None]
    expected = choose(scores[own], scores, ~own)
    actual = top_k(scores, labels)
    assert actual.correct.tolist() == expected.correct.tolist()
    assert actual.tie.tolist() == expected.tie.tolist()
    assert actual.tie.any() and actual.correct.any()


def test_nan_counts_against_the_model():
    scores = np.array([[np.nan, 0.1, 0.2], [0.5, np.nan, 0.2], [0.5, 0.1, 0.2], [-np.inf, -np.inf, -np.inf]])
    for k, expected in ((1, [False, False, True, False]), (2, [False, True, True, False])):
        outcome = top_k(scores, np.zeros(4, dtype=int), k)
        assert outcome.correct.tolist() == expected
        assert outcome.tie.tolist() == [False, False, False, True]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_rows_by_function_equal_the_matrix(chunk):
    image, classes, labels = unit(40, 8, seed=0), unit(6, 8, seed=1), np.arange(40) % 6
    asked = []

    def rows(start, stop):
        asked.append(stop - start)
        return class_scores(image, classes)(start, stop)

    actual = top_k(rows, labels, 2, chunk=chunk)
    expected = top_k(image.astype(np.float64) @ classes.T, labels, 2, chunk=3)
    assert actual.correct.tolist() == expected.correct.tolist()
    assert 0 < actual.accuracy < 1
    assert max(asked) == min(chunk, 40) and sum(asked) == 40


@pytest.mark.parametrize("size", [6, 33, 735])
@pytest.mark.parametrize("width", [16, 67, 768])
def test_equal_class_embeddings_tie_whatever_the_shapes(size, width):
    image, classes = unit(size, width, seed=0), np.repeat(unit(1, width, seed=1), 7, axis=0)
    outcome = top_k(class_scores(image, classes), np.arange(size) % 7, 5)
    assert outcome.accuracy == 0.0
    assert outcome.tie_rate == 1.0


def test_errors_name_what_was_found():
    scores, labels = np.zeros((4, 3)), np.array([0, 1, 2, 0])
    with pytest.raises(ValueError, match="k: found 3 .*3 classes, .* 1 to 2"):
        top_k(scores, labels, 3)
    with pytest.raises(ValueError, match="item 3: found 5, .* 0 to 2"):
        top_k(scores, np.array([0, 1, 2, 5]), chunk=2)
    with pytest.raises(ValueError, match="labels, item 1: found -1"):
        top_k(scores, np.array([0, -1, 2, 0]))
    with pytest.raises(ValueError, match="expected integers"):
        top_k(scores, np.zeros(4))
    with pytest.raises(ValueError, match=r"scores .*\(4, 3\), labels \(3,\)"):
        top_k(scores, labels[:3])
    with pytest.raises(ValueError, match=r"\(1, 3\) .*items 2 to 4, .* 2 rows"):
        top_k(lambda start, stop: scores[: 2 if start == 0 else 1], labels, chunk=2)
    with pytest.raises(ValueError, match=r"image \(2, 3\) and classes \(4, 2\)"):
        class_scores(np.zeros((2, 3)), np.zeros((4, 2)))
