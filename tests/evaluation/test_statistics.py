"""Intervals that draw whole images."""

from __future__ import annotations

import numpy as np

from hfcomp.evaluation.statistics import clustered_interval


def test_items_that_repeat_an_image_add_no_information():
    generator = np.random.default_rng(0)
    once = generator.random(200) < 0.7
    images = np.arange(200)
    low, high = clustered_interval(once, images)
    low_five, high_five = clustered_interval(np.repeat(once, 5), np.repeat(images, 5))
    assert abs((high_five - low_five) - (high - low)) < 0.01
    low_naive, high_naive = clustered_interval(np.repeat(once, 5), np.arange(1000))
    assert (high_naive - low_naive) < 0.6 * (high_five - low_five)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        rates = generator.beta(4, 2, size=150)  # images differ in difficulty: mean 2/3
        outcomes = generator.random((150, 4)) < rates[:, None]
        low, high = clustered_interval(outcomes.ravel(), np.repeat(np.arange(150), 4), resamples=400, seed=trial)
        covered += low <= 2 / 3 <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_one_image_has_no_interval():
    assert np.isnan(clustered_interval(np.array([True, False]), ["a", "a"])).all()


def test_the_seed_decides_the_draws():
    outcomes, images = np.arange(40) % 3 == 0, np.arange(40)
    assert clustered_interval(outcomes, images, seed=3) == clustered_interval(outcomes, images, seed=3)
