"""Precision, recall and order on four levels: by hand, by loops, known scorers against chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.hierarchy import hierarchy
from tests.metrics.scorers import unit

ROOT = np.array([1.0, 0.0])
UP = np.array([[1.0, 0.0], [0.96, 0.28], [0.8, 0.6], [0.6, 0.8]])
DOWN = UP * [1, -1]
TEXT = np.stack([UP, DOWN])
SHARED = np.array([[0, 1, 2, 3], [0, 4, 5, 6]])
"""The most general text is the same for both images."""


def test_by_hand():
    """Both images lie up: the second one retrieves the first one's texts, of which the most general is its own too."""
    image = np.array([[0.6, 0.8], [0.6, 0.8]])
    measures = hierarchy(image, TEXT, ROOT, SHARED)
    assert measures.precision.tolist() == [1.0, 1 / 4]
    assert measures.recall.tolist() == [1.0, 1 / 4]
    assert measures.rank_correlation.tolist() == [1.0, 1.0]
    assert not measures.tie.any()


def test_a_tie_retrieves_one_wrong_text():
    """As texts of their own, the two most general ones tie; the other three are found one by one."""
    measures = hierarchy(np.array([[0.6, 0.8], [0.6, -0.8]]), TEXT, ROOT)
    assert measures.precision.tolist() == measures.recall.tolist() == [3 / 4, 3 / 4]
    assert measures.tie.all()


def test_order_by_hand():
    swapped = np.stack([UP[[0, 1, 3, 2]], UP[[3, 2, 1, 0]], UP[[0, 0, 1, 2]]])
    measures = hierarchy(np.tile([0.6, 0.8], (3, 1)), swapped, ROOT)
    # five pairs in order and one not; all six reversed; five in order and one level
    assert measures.rank_correlation == pytest.approx([4 / 6, -1, 5 / 6])


def test_a_perfect_and_an_inverted_scorer():
    image = np.array([[0.6, 0.8], [0.6, -0.8]])
    perfect = hierarchy(image, TEXT, ROOT, SHARED)
    assert perfect.precision.mean() == perfect.recall.mean() == perfect.rank_correlation.mean() == 1.0
    inverted = hierarchy(-image, TEXT[:, ::-1], ROOT, SHARED[:, ::-1])
    # the text that both share is alone within the first radius, whatever its score
    assert inverted.precision.tolist() == inverted.recall.tolist() == [1 / 4, 1 / 4]
    assert inverted.rank_correlation.tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("width", [1, 16, 67, 768])
def test_a_constant_scorer_gets_nothing(width):
    vector, other = unit(1, width, seed=0)[0], unit(7, width, seed=1)
    for image in (np.tile(vector, (7, 1)), other):
        measures = hierarchy(image, np.tile(vector, (7, 4, 1)), unit(width, seed=2))
        assert measures.tie.all()
        for values in (measures.precision, measures.recall, measures.rank_correlation):
            assert set(values.tolist()) == {0.0}


def test_a_random_scorer_is_at_chance():
    """Distances and scores in separate dimensions, so that neither tells of the other; level 1 is shared by pairs."""
    identity = np.arange(40).reshape(10, 4)
    identity[1::2, 0] = identity[::2, 0]
    measured, declared = [], []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        text = np.concatenate([generator.random((10, 4, 1)), unit(10, 4, 8, seed=seed)], axis=-1)
        text[1::2, 0] = text[::2, 0]
        image = np.concatenate([np.zeros((10, 1)), unit(10, 8, seed=1000 + seed)], axis=-1)
        measures = hierarchy(image, text, np.zeros(9), identity, thresholds=12)
        measured.append([measures.precision.mean(), measures.recall.mean(), measures.rank_correlation.mean()])
        declared.append([measures.precision_chance, measures.recall_chance, 0.0])
    gap = np.array(measured) - declared
    assert (np.abs(gap.mean(axis=0)) < 4 * gap.std(axis=0) / math.sqrt(len(gap))).all()
    assert np.mean(declared, axis=0)[0] > 1 / 10  # shared texts raise it above one in ten images


def measures_by_loops(image, text, root, identity, thresholds):
    flat, names = text.reshape(-1, text.shape[-1]), identity.ravel()
    radius = [math.dist(vector, root) for vector in flat]
    precision, recall = [], []
    for row, own in zip(image, identity, strict=True):
        nearest = set()
        for limit in np.linspace(min(radius), max(radius), thresholds):
            inside = {
                name: vector @ row for name, vector, r in zip(names, flat, radius, strict=True) if r <= limit + 1e-15
            }
            nearest.add(max(inside, key=inside.get))
        precision.append(len(nearest & set(own)) / len(nearest))
        recall.append(np.mean([name in nearest for name in own]))
    return precision, recall


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_equal_to_loops_in_chunks(chunk):
    identity = np.arange(80).reshape(20, 4)
    identity[5:, 0] = identity[np.arange(15) % 5, 0]
    text, root = unit(20, 4, 6, seed=0).astype(float), unit(6, seed=1).astype(float)
    text[5:, 0] = text[np.arange(15) % 5, 0]
    image = 0.5 * text[:, 3] + unit(20, 6, seed=2)
    measures = hierarchy(image, text, root, identity, thresholds=9, chunk=chunk)
    precision, recall = measures_by_loops(image, text, root, identity, 9)
    assert measures.precision == pytest.approx(precision) and measures.recall == pytest.approx(recall)
    assert 0 < np.mean(precision) < 1


def test_nan_is_never_retrieved():
    image = np.array([[0.6, 0.8], [0.6, math.nan]])
    measures = hierarchy(image, TEXT, ROOT, SHARED)
    assert measures.precision.tolist() == [1.0, 0.0] and measures.recall.tolist() == [1.0, 0.0]
    broken = TEXT.copy()
    broken[0, 3] = math.nan
    measures = hierarchy(np.array([[0.6, 0.8], [0.6, -0.8]]), broken, ROOT, SHARED)
    assert measures.recall.tolist() == [3 / 4, 1.0] and measures.rank_correlation.tolist() == [0.5, 1.0]
    nothing = hierarchy(image, np.full_like(TEXT, math.nan), ROOT)
    for values in (nothing.precision, nothing.recall, nothing.rank_correlation):
        assert not values.any()
    assert (nothing.precision_chance, nothing.recall_chance) == (0.0, 0.0)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"text \(2, 3, 2\) .*root \(2,\): .*\[n, D\], \[n, 4, D\]"):
        hierarchy(np.zeros((2, 2)), TEXT[:, :3], ROOT)
    with pytest.raises(ValueError, match=r"root \(3,\)"):
        hierarchy(np.zeros((2, 2)), TEXT, np.zeros(3))
    with pytest.raises(ValueError, match=r"identity \(2, 3\): expected \(2, 4\)"):
        hierarchy(np.zeros((2, 2)), TEXT, ROOT, SHARED[:, :3])
