"""Intervals of averages over subsets that share images hold the truth as often as they say, and as the docs say."""

from __future__ import annotations

import math

import pytest

from tests.statistics.coverage import ACCURACIES, IMAGES, simulate

FEW_IMAGES = {50: 0.02, 100: 0.015}
"""How far from 95% few images may be beside the error of the run; docs/statistics.md has the measured table."""
MANY_IMAGES = 0.01


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ACCURACIES)
@pytest.mark.parametrize("images", IMAGES)
def test_the_average_of_subsets_that_share_images_is_covered(images, accuracy):
    sets = 1000 if images < 1000 else 400
    average, difference = simulate(images, accuracy, sets=sets, resamples=1000)
    error = 3 * math.sqrt(0.95 * 0.05 / sets)
    for coverage in (average, difference):
        assert abs(coverage.joint - 0.95) <= error + FEW_IMAGES.get(images, MANY_IMAGES), coverage
    # as if independent, averages are covered too seldom; a difference of accurate models hardly is: few items differ
    assert average.independent < 0.93
    assert difference.independent < 0.93 or accuracy > 0.5
