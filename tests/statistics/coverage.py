"""How often 95% intervals of averages hold the truth: `python -m tests.statistics.coverage`.

A simulated benchmark has seven subsets of 30 to 90% of its images, with 1 to 3 items each, so that an image is in 3.6
of them. An item is right where `mean + image + image in this subset + model on this image + item` is above 0, all but
the first drawn from normal distributions: what makes an image hard makes it so in every subset. The truth is known, as
the probit of that mean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from hfcomp.statistics import ImageBootstrap

TAKEN = (0.9, 0.7, 0.5, 0.5, 0.4, 0.3, 0.3)
"""Share of the images in each subset."""
SPREAD = (-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3)
"""How much easier each subset is, in standard deviations."""
OF_IMAGE, OF_IMAGE_IN_SUBSET, OF_MODEL_ON_IMAGE, OF_ITEM, OF_MODEL_ON_ITEM = 0.6, 0.2, 0.3, 0.5, 0.4
"""Variances. Two models share what is not of a model."""
TOTAL = OF_IMAGE + OF_IMAGE_IN_SUBSET + OF_MODEL_ON_IMAGE + OF_ITEM + OF_MODEL_ON_ITEM
SETS_OF_A_DESIGN = 100
"""Simulated sets that share their images and subsets, and so their draws."""
IMAGES = (50, 100, 200, 500, 2000)
ACCURACIES = (0.5, 0.95)
GAIN = {0.5: 0.05, 0.95: 0.01}
"""What the second model is better by, about."""

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
Subsets = list[tuple[NDArray[np.float64], NDArray[np.intp]]]


@dataclass(frozen=True)
class Coverage:
    """How many of the simulated sets have an interval that holds the truth.

    Attributes:
        joint: coverage of the bootstrap of all subsets together.
        independent: coverage where subsets' intervals are combined as if they were independent.
    """

    joint: float
    independent: float


def simulate(images: int, accuracy: float, *, sets: int, seed: int = 0, resamples: int = 2000) -> Iterator[Coverage]:
    """Coverage of the average of a model, and of the difference of two.

    Args:
        images: of a set.
        accuracy: of the first model, about.
        sets: number of simulated sets, a multiple of `SETS_OF_A_DESIGN`.
        seed: of everything.
        resamples: of a bootstrap.
    """
    generator = np.random.default_rng([seed, images, round(1000 * accuracy)])
    intervals: dict[str, list[tuple[Bounds, Bounds, float]]] = {"average": [], "difference": []}
    for _ in range(sets // SETS_OF_A_DESIGN):
        models, truths = _set(generator, images, accuracy)
        bootstrap = ImageBootstrap(np.concatenate([names for _, names in models[0]]), resamples=resamples)
        pairs = [(second - first, names) for (first, names), (second, _) in zip(*models, strict=True)]
        gain = bootstrap.macro_difference(pairs)
        alone = bootstrap.macro_interval(models[0]), _apart(bootstrap.interval, models[0])
        both = (gain["low"], gain["high"]), _apart(partial(bootstrap.interval, difference=True), pairs)
        intervals["average"].append((*alone, truths[0]))
        intervals["difference"].append((*both, truths[1] - truths[0]))
    for designs in intervals.values():
        held_by = ([_holds(design[way], design[2]) for design in designs] for way in (0, 1))
        yield Coverage(*(float(np.mean(sets_held)) for sets_held in held_by))


def _holds(bounds: Bounds, truth: float) -> NDArray[np.bool_]:
    return (bounds[0] <= truth) & (truth <= bounds[1])


def _set(generator: np.random.Generator, images: int, accuracy: float) -> tuple[list[Subsets], list[float]]:
    """Two models' subsets, values `[n, SETS_OF_A_DESIGN]`, and their true averages."""
    normal, spread = NormalDist(), TOTAL**0.5
    means = [spread * normal.inv_cdf(share) for share in (accuracy, accuracy + GAIN[accuracy])]
    columns = (SETS_OF_A_DESIGN,)

    def draw(variance: float, *size: int) -> NDArray[np.float64]:
        return variance**0.5 * generator.standard_normal((*size, *columns))

    image, own = draw(OF_IMAGE, images), draw(OF_MODEL_ON_IMAGE, 2, images)
    models: list[Subsets] = [[], []]
    for taken, easier in zip(TAKEN, SPREAD, strict=True):
        chosen = generator.choice(images, size=round(taken * images), replace=False)
        place = np.repeat(np.arange(len(chosen)), generator.integers(1, 4, size=len(chosen)))
        shared = (image[chosen] + draw(OF_IMAGE_IN_SUBSET, len(chosen)))[place] + draw(OF_ITEM, len(place))
        for index, mean in enumerate(means):
            latent = mean + easier * spread + shared + own[index, chosen[place]] + draw(OF_MODEL_ON_ITEM, len(place))
            models[index].append(((latent > 0).astype(float), chosen[place]))
    return models, [float(np.mean([normal.cdf(mean / spread + offset) for offset in SPREAD])) for mean in means]


def _apart(interval: Callable[..., Bounds], subsets: Subsets) -> Bounds:
    """The mean of subsets' means with the root of the sum of their squared sides."""
    means = np.array([values.mean(axis=0) for values, _ in subsets])
    sides = np.array([interval(*subset) for subset in subsets]) - means[:, None]
    below, above = np.sqrt(np.sum(np.square(sides), axis=0)) / len(subsets)
    return means.mean(axis=0) - below, means.mean(axis=0) + above


def main(sets: int) -> None:
    """Prints the table of docs/statistics.md."""
    names = [f"{what}: {way}" for what in ("average", "difference") for way in ("as if independent", "hfcomp")]
    print(f"| images | accuracy | {' | '.join(names)} |\n|---|---|---|---|---|---|")
    for images in IMAGES:
        for accuracy in ACCURACIES:
            shares = [
                share
                for coverage in simulate(images, accuracy, sets=sets)
                for share in (coverage.independent, coverage.joint)
            ]
            cells = [f"{100 * share:.1f} %" for share in shares]
            print(f"| {images:,} | {100 * accuracy:.0f} % | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
