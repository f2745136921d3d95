"""How often intervals of a difference over seeds hold the truth: `python -m tests.statistics.seed_coverage`.

A simulated study trains two variants with several seeds and scores them on the same 200 images, with 1 to 3 items
each. An item is right where `mean + image + variant on this image + seed of this variant + item of this seed` is above
0, all but the first drawn from normal distributions. The truth is known: the variants' means differ by `gain`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from hfcomp.statistics import ImageBootstrap
from hfcomp.statistics.bootstrap import difference_over_seeds

IMAGES = 200
OF_IMAGE, OF_VARIANT_ON_IMAGE, OF_ITEM = 0.5, 0.1, 0.4
"""Variances, besides that of seeds."""
SEED_POINTS = (0.0, 1.0, 3.0, 10.0)
"""Standard deviations of a seed's effect on a variant, in points of accuracy, about."""
SEEDS = (3, 4, 5, 10)
POINT = 100 * NormalDist().pdf(0)
"""Points of accuracy of a latent unit, about the mean."""


@dataclass(frozen=True)
class Studies:
    """What simulated studies found.

    Attributes:
        coverage: share of the intervals that hold the truth.
        alarms: share of p below 0.05.
        width: mean width of the intervals, in standard deviations of the differences times 2 x 1.96, which an interval
            has whose variance is known.
    """

    coverage: float
    alarms: float
    width: float


def simulate(seeds: int, points: float, *, studies: int, gain: float = 0.0, resamples: int = 1000) -> Studies:
    """Coverage and rejections of `difference_over_seeds`.

    Args:
        seeds: number of them.
        points: standard deviation of a seed's effect, see `SEED_POINTS`.
        studies: number of them.
        gain: true difference in latent units; 0 for equal variants, whose rejections are false alarms.
        resamples: of the bootstrap, which the studies share, as they share the images' numbers of items.
    """
    generator = np.random.default_rng([seeds, round(10 * points), round(100 * gain)])
    names = np.repeat(np.arange(IMAGES), generator.integers(1, 4, size=IMAGES))
    bootstrap = ImageBootstrap(names, resamples=resamples)
    total = (OF_IMAGE + OF_VARIANT_ON_IMAGE + OF_ITEM + (points / POINT) ** 2) ** 0.5
    truth = NormalDist().cdf(gain / total) - 0.5
    intervals = []
    for _ in range(studies):
        image = OF_IMAGE**0.5 * generator.standard_normal(IMAGES)
        right = []
        for mean in (gain, 0.0):
            own = image + OF_VARIANT_ON_IMAGE**0.5 * generator.standard_normal(IMAGES)
            of_seed = points / POINT * generator.standard_normal((seeds, 1))
            items = OF_ITEM**0.5 * generator.standard_normal((seeds, len(names)))
            right.append(mean + own[names] + of_seed + items > 0)
        differences = right[0].astype(float) - right[1]
        intervals.append(difference_over_seeds(bootstrap, [[difference] for difference in differences], [names]))
    value, low, high, p = (
        np.array([interval[key] for interval in intervals]) for key in ("value", "low", "high", "p")
    )
    width = np.mean(high - low) / (2 * NormalDist().inv_cdf(0.975) * np.std(value))
    return Studies(float(np.mean((low <= truth) & (truth <= high))), float(np.mean(p < 0.05)), float(width))


def main(studies: int) -> None:
    """Prints the table of docs/statistics.md."""
    print("| seeds | seed effect | coverage | false alarms | width |\n|---|---|---|---|---|")
    for seeds in SEEDS:
        for points in SEED_POINTS:
            summary = simulate(seeds, points, studies=studies)
            cells = f"{100 * summary.coverage:.1f}% | {100 * summary.alarms:.1f}% | {summary.width:.2f}"
            print(f"| {seeds} | {points:g} point{'s' * (points != 1)} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
