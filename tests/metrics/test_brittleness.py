"""Hard positives: known scorers against chance, ties, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hfcomp.metrics.brittleness import CHANCE, brittleness


def of(*columns):
    return brittleness(*(np.asarray(column, dtype=float) for column in columns))


def shares(*columns) -> tuple[float, float, float]:
    found = of(*columns)
    return found.original.accuracy, found.augmented.accuracy, found.brittle.accuracy


def test_known_scorers():
    high, low = np.full(4, 0.9), np.full(4, 0.1)
    assert shares(high, high, low) == (1.0, 1.0, 0.0)
    assert shares(low, low, high) == (0.0, 0.0, 0.0)
    # any change of words is wrong to it
    assert shares(high, low, np.full(4, 0.5)) == (1.0, 0.0, 1.0)
    constant = of(high, high, high)
    for part in (constant.original, constant.augmented, constant.brittle):
        assert (part.accuracy, part.tie_rate) == (0.0, 1.0)


def test_a_random_scorer_is_at_chance():
    found = of(*np.random.default_rng(0).random((3, 20_000)))
    for name, chance in CHANCE.items():
        assert abs(getattr(found, name).accuracy - chance) < 4 * math.sqrt(chance * (1 - chance) / 20_000)


def test_the_six_orders_and_the_ties_by_hand():
    #           c>p>n p>c>n c>n>p p>n>c n>c>p n>p>c c>p=n c=n>p c=p>n
    caption = [3.0, 2.0, 3.0, 1.0, 2.0, 1.0, 2.0, 2.0, 2.0]
    positive = [2.0, 3.0, 1.0, 3.0, 1.0, 2.0, 1.0, 1.0, 2.0]
    negative = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 2.0, 1.0]
    found = of(caption, positive, negative)
    assert np.flatnonzero(found.original.correct).tolist() == [0, 1, 2, 6, 8]
    assert np.flatnonzero(found.augmented.correct).tolist() == [0, 1, 8]
    assert np.flatnonzero(found.brittle.correct).tolist() == [2, 3]
    assert np.flatnonzero(found.original.tie).tolist() == [7]
    assert np.flatnonzero(found.augmented.tie).tolist() == [6]
    assert np.flatnonzero(found.brittle.tie).tolist() == [6, 7]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_never_wins(place):
    columns = [[0.9], [0.8], [0.1]]
    columns[place] = [math.nan]
    found = of(*columns)
    assert not found.augmented.correct.any() and not found.augmented.tie.any()
    assert not found.brittle.correct.any() and not found.brittle.tie.any()


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"\(1,\), \(2,\): expected \[n\]"):
        of([1], [1, 2], [1])
