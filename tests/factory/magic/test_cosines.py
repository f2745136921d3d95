"""The distribution of cosines, against a plain loop over all pairs."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from hfcomp.factory.magic.cosines import Cosines, Histogram
from hfcomp.factory.magic.similarity import similar_pairs
from tests.factory.magic.test_building import vectors


def all_cosines(points: np.ndarray) -> np.ndarray:
    """Cosines of all pairs `[n, n]`, those of a row and itself -1."""
    cosines = np.array([[math.fsum(map(float, a.astype(float) * b)) for b in points] for a in points]).round(6)
    np.fill_diagonal(cosines, -1)
    return cosines


@pytest.mark.parametrize("block", [1, 7, 256])
def test_every_pair_is_counted_once_in_blocks_of_any_size(block):
    points = vectors(60)
    points[5] = 0  # a concept without a vector
    cosines, expected = Cosines.between(points, block=block), all_cosines(np.delete(points, 5, axis=0))
    pairs = expected[np.triu_indices(59, 1)]
    assert (cosines.pairs.total, cosines.nearest.total) == (59 * 58 // 2, 59)
    for threshold in (-0.999, -0.3, 0.0, 0.5, 0.85):
        assert cosines.pairs.above(threshold) == (pairs > threshold).sum()
        assert cosines.nearest.above(threshold) == (expected.max(axis=1) > threshold).sum()
    for share in (0.0, 0.25, 0.5, 0.99, 1.0):
        # The lowest number that at least this share does not exceed, rounded up to three digits.
        exact = sorted(pairs)[max(math.ceil(share * len(pairs)) - 1, 0)]
        assert cosines.pairs.quantile(share) == pytest.approx(math.ceil(exact * 1000) / 1000, abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.25, 1.0])
def test_a_threshold_is_exceeded_by_its_share_of_the_pairs_and_no_higher_one_is(share):
    points = vectors(40)
    pairs = Cosines.between(points).pairs
    threshold = pairs.threshold(share)
    number = len(similar_pairs(points, threshold, np.arange(len(points)))[0]) // 2
    assert pairs.above(threshold) == number >= max(share * pairs.total, 1)
    assert pairs.above(round(threshold + 0.001, 3)) < max(share * pairs.total, 1)


def test_a_cosine_on_an_edge_is_not_above_it():
    angles = np.arccos([1.0, 0.85, 0.5])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    pairs = Cosines.between(points).pairs  # float64: a float32 is not 0.85
    assert pairs.counts == {"0.500": 1, "0.850": 1, "0.882": 1}
    assert (pairs.above(0.849), pairs.above(0.85)) == (2, 1)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_few_concepts(number):
    cosines = Cosines.between(vectors(number))
    assert cosines.pairs.total == number // 2 and cosines.nearest.total == number * (number // 2)
    assert bool(cosines.tables()) == (number == 2)
    equal = Cosines.between(vectors(1)[[0] * 3])
    assert equal.pairs.quantile(0) == equal.pairs.quantile(1) == 1.0 and equal.pairs.threshold(0) == 0.999


def test_tables_have_quantiles_and_numbers_above_thresholds():
    pairs = {f"0.{n}00": 10 for n in range(1, 10)}
    quantiles, above = Cosines(Histogram({"0.900": 3}), Histogram(pairs)).tables()
    assert quantiles.rows[1] == ["all pairs", "0.100", "0.300", "0.500", "0.700", "0.900", "0.900", "0.900"]
    assert above.header[1:] == ["0.4", "0.5", "0.6", "0.7", "0.8", "0.85", "0.9", "0.95"]
    assert above.rows[1] == ["all pairs", "50", "40", "30", "20", "10", "10", "0", "0"]
    quantiles, above = Cosines().tables(small=[0.3, 0.85, 0.95])
    assert quantiles.rows == [
        ["small concepts, nearest", "0.300", "0.300", "0.850", "0.950", "0.950", "0.950", "0.950"]
    ]
    assert above.rows == [["small concepts, nearest", "2", "2", "2", "2", "2", "1", "1", "0"]]


def test_the_matrix_is_never_whole():
    points = vectors(4_000)
    tracemalloc.start()
    Cosines.between(points)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # 128 MB for the matrix
