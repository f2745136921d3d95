"""Medians, correlations and kappa over draws of images."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from hfcomp.statistics import ImageBootstrap
from hfcomp.statistics.resampling import Kappa, Median, Pearson, Spearman, percentile_interval, resample

stats = pytest.importorskip("scipy.stats")


ITEMS = np.arange(150)
"""Every item is an image of its own."""
ONCE = np.ones((1, 150), dtype=np.uint8)
BOTH = pytest.mark.parametrize("correlation", [Pearson, Spearman])


@pytest.fixture
def drawn_columns():
    """Two columns with ties, and how often each item is drawn, twice."""
    generator = np.random.default_rng(0)
    first = np.round(generator.normal(size=150), 1)
    second = first + np.round(generator.normal(size=150), 1)
    return first, second, generator.integers(0, 4, (2, 150)).astype(np.uint8)


@BOTH
def test_a_weighted_correlation_is_that_of_repeated_items(drawn_columns, correlation):
    first, second, draws = drawn_columns
    by_scipy = stats.spearmanr if correlation is Spearman else stats.pearsonr
    expected = [by_scipy(np.repeat(first, times), np.repeat(second, times))[0] for times in draws]
    assert correlation(first, second, ITEMS)(draws) == pytest.approx(expected, abs=1e-12)
    moved = correlation(2.0**20 + first, 2.0**-30 * second, ITEMS)(draws)
    assert moved == pytest.approx(expected, abs=1e-6), "whatever the unit and the zero"


def test_a_weighted_median_is_that_of_repeated_items(drawn_columns):
    first, _, draws = drawn_columns
    assert Median(first, ITEMS)(draws).tolist() == [np.median(np.repeat(first, times)) for times in draws]
    for number in range(1, 8):
        assert Median(first[:number], ITEMS[:number])(ONCE) == np.median(first[:number])


@BOTH
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e8 / 3])
def test_a_constant_has_no_correlation(drawn_columns, correlation, constant):
    first = drawn_columns[0]
    assert np.isnan(correlation(first, np.full(150, constant), ITEMS)(ONCE))
    assert np.isnan(correlation(first, first, ITEMS)(0 * ONCE)) and np.isnan(Median(first, ITEMS)(0 * ONCE))
    assert correlation(1e-9 * first, 2e-9 * first, ITEMS)(ONCE) == pytest.approx(1)
    once, steps = np.append(np.full(149, constant), constant + 1), np.append(np.ones(149), 0)[None].astype(np.uint8)
    assert np.isnan(correlation(first, once, ITEMS)(steps)), "what is drawn is constant"


def test_pairs_of_one_image_are_drawn_together():
    """Twenty copies of each of 30 images are no more evidence than the images."""
    generator = np.random.default_rng(1)
    first = generator.normal(size=30)
    second = first + 2 * generator.normal(size=30)
    many, image = np.repeat([first, second], 20, axis=1), np.repeat(np.arange(30), 20)
    statistics = {
        (kind, number): kind(*values, images)
        for kind in (Pearson, Spearman)
        for number, (values, images) in {1: ((first, second), np.arange(30)), 20: (many, image)}.items()
    }
    estimates = resample(statistics, ImageBootstrap(np.arange(30), resamples=300).draws)
    np.testing.assert_allclose(estimates[Pearson, 1].draws, estimates[Pearson, 20].draws)
    np.testing.assert_allclose(estimates[Spearman, 1].draws, estimates[Spearman, 20].draws, atol=1e-12)
    bounds = estimates[Pearson, 1].bounds()
    assert bounds["low"] < estimates[Pearson, 1].value < bounds["high"]
    assert estimates[Pearson, 1].value == pytest.approx(np.corrcoef(first, second)[0, 1])


def test_what_sets_share_is_paired_and_what_they_do_not_share_is_independent():
    generator = np.random.default_rng(2)
    values = generator.normal(size=200)
    statistics = {
        "first": Median(values, np.arange(200)),
        "shared": Median(values + 1, np.arange(200)),
        "other": Median(values + 1, np.arange(200, 400)),
    }
    estimates = resample(statistics, ImageBootstrap(np.arange(400), resamples=400).draws)
    shared, other = (estimates[name] - estimates["first"] for name in ("shared", "other"))
    assert np.ptp(shared.draws) == pytest.approx(0, abs=1e-12) and shared.value == pytest.approx(1)
    assert np.std(other.draws) == pytest.approx(np.sqrt(2) * np.std(estimates["first"].draws), rel=0.25)


def test_kappa_of_draws_is_that_of_the_repeated_items():
    generator = np.random.default_rng(0)
    first, second = generator.integers(0, 3, size=(2, 30))
    draws = generator.multinomial(15, np.full(15, 1 / 15), size=20).astype(np.uint8)
    images = np.arange(30) // 2
    expected = [
        cohen_kappa_score(*(np.repeat(ratings, times[images]) for ratings in (first, second))) for times in draws
    ]
    np.testing.assert_allclose(Kappa(first, second, images, 3)(draws), expected, atol=1e-12)
    alone = np.zeros((1, 30), dtype=np.uint8)
    alone[0, int(np.flatnonzero(first == second)[0])] = 30
    assert np.isnan(Kappa(first, second, np.arange(30), 3)(alone)[0])


def test_too_few_defined_draws_give_no_interval():
    assert all(np.isnan(percentile_interval(np.r_[np.ones(99), np.full(50, np.nan)])))
    assert percentile_interval(np.r_[np.ones(100), np.nan]) == (1, 1)
