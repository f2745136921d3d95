"""Medians and correlations over draws of images."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.statistics.resampling import Correlation, Median, draw_statistics, percentile_interval

stats = pytest.importorskip("scipy.stats")


@pytest.fixture
def drawn():
    """Two columns with ties, and how often each item is drawn."""
    generator = np.random.default_rng(0)
    first = np.round(generator.normal(size=150), 1)
    second = first + np.round(generator.normal(size=150), 1)
    return first, second, generator.integers(0, 4, 150)


@pytest.mark.parametrize("ranks", [False, True])
def test_a_weighted_correlation_is_that_of_repeated_items(drawn, ranks):
    first, second, weights = drawn
    expected = (stats.spearmanr if ranks else stats.pearsonr)(np.repeat(first, weights), np.repeat(second, weights))
    assert Correlation(first, second, ranks=ranks)(weights.astype(float)) == pytest.approx(expected[0], abs=1e-12)


def test_a_weighted_median_is_that_of_repeated_items(drawn):
    first, _, weights = drawn
    assert Median(first)(weights.astype(float)) == np.median(np.repeat(first, weights))
    for number in range(1, 8):
        assert Median(first[:number])(np.ones(number)) == np.median(first[:number])


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e8 / 3])
def test_a_constant_has_no_correlation(drawn, ranks, constant):
    first = drawn[0]
    assert np.isnan(Correlation(first, np.full(150, constant), ranks=ranks)(np.ones(150)))
    assert np.isnan(Correlation(first, first, ranks=ranks)(np.zeros(150))) and np.isnan(Median(first)(np.zeros(150)))
    assert Correlation(1e-9 * first, 2e-9 * first, ranks=ranks)(np.ones(150)) == pytest.approx(1)


def test_pairs_of_one_image_are_drawn_together():
    """Twenty copies of each of 30 images are no more evidence than the images."""
    generator = np.random.default_rng(1)
    first = generator.normal(size=30)
    second = first + 2 * generator.normal(size=30)
    many, image = np.repeat([first, second], 20, axis=1), np.repeat(np.arange(30), 20)
    statistics = {
        "one": (Correlation(first, second), np.arange(30)),
        "copies": (Correlation(*many), image),
        "as if images of their own": (Correlation(*many), np.arange(600) % 30),
    }
    draws = draw_statistics(statistics, 30, resamples=300)
    np.testing.assert_allclose(draws["one"], draws["copies"])
    low, high = percentile_interval(draws["one"])
    assert low < Correlation(first, second)(np.ones(30)) < high


def test_what_sets_share_is_paired_and_what_they_do_not_share_is_independent():
    generator = np.random.default_rng(2)
    values = generator.normal(size=200)
    statistics = {
        "first": (Median(values), np.arange(200)),
        "shared": (Median(values + 1), np.arange(200)),
        "other": (Median(values + 1), np.arange(200, 400)),
    }
    draws = draw_statistics(statistics, 400, resamples=400)
    assert np.ptp(draws["shared"] - draws["first"]) == pytest.approx(0, abs=1e-12)
    assert np.std(draws["other"] - draws["first"]) == pytest.approx(np.sqrt(2) * np.std(draws["first"]), rel=0.25)


def test_too_few_defined_draws_give_no_interval():
    assert all(np.isnan(percentile_interval(np.r_[np.ones(99), np.full(50, np.nan)])))
    assert percentile_interval(np.r_[np.ones(100), np.nan]) == (1, 1)
