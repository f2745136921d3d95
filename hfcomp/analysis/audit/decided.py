"""Pairs that a scorer decides, a tie counting half, and what chance gives on as many images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, share
from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.clusters import per_image

DRAWS = 2000
LEVEL = 0.95
CELLS = 2**22
"""Signs that are drawn at a time: 32 MB."""
REVERSED = "reversed: the negative scores higher."


class Chance(NamedTuple):
    """Percent of pairs that a scorer decides correctly where captions and negatives do not differ.

    Attributes:
        mean: of the draws.
        high: at least 95 % of the draws are not above it.
    """

    mean: float
    high: float


def signs_of(captions: NDArray[Any], negatives: NDArray[Any]) -> NDArray[np.float64]:
    """1 where the caption has the higher score, -1 where the negative has, 0 for a tie; NaN decides nothing."""
    return (captions > negatives).astype(np.float64) - (captions < negatives)


def decided(
    name: str,
    signs: NDArray[np.float64],
    images: Sequence[str],
    bootstrap: ImageBootstrap | None = None,
    *,
    chance: Chance | None = None,
    either_way: bool = False,
    reason: str = "",
    **more: Any,
) -> Check:
    """A check whose number is the share of pairs that are decided correctly, a tie counting half.

    The facts `right` and `wrong` count the scorer as it is, whichever way round gives the number.

    Args:
        name: of the check.
        signs: `[n]` of `signs_of`.
        images: `[n]`, what intervals resample and chance swaps.
        bootstrap: of all images; without it there is no interval.
        chance: by default that of this scorer.
        either_way: whether the scorer's reverse counts where it decides more: always wrong gives the answer away too.
        reason: what a reader has to know of the number.
        more: further attributes.
    """
    is_reversed = either_way and bool(signs.sum() < 0)
    words = " ".join(filter(None, (REVERSED if is_reversed else "", reason)))
    found = share(name, (1 - signs if is_reversed else 1 + signs) / 2, images, bootstrap, reason=words, **more)
    if found.value is None:
        return found
    counts = {"right": int((signs > 0).sum()), "wrong": int((signs < 0).sum()), "undecided": int((signs == 0).sum())}
    way = {"reversed": is_reversed} if either_way else {}
    chance = chance or by_chance(signs[:, None], images, either_way=either_way)[1][0]
    return found.with_chance(chance.mean, chance.high, counts | way)


def by_chance(
    signs: NDArray[np.float64], images: Sequence[str], *, either_way: bool = False, seed: int = 0
) -> tuple[Chance, list[Chance]]:
    """What the best of several scorers, and each of them, would decide if captions and negatives did not differ.

    The caption and the negatives of an image change places, or do not, at random and for all scorers at once: the
    signs of an image's pairs flip together. So the largest of several numbers is that of scorers as alike as these.

    Args:
        signs: `[n, R]` of R scorers.
        images: `[n]`.
        either_way: whether a scorer's reverse counts where it decides more.
        seed: of the flips.
    """
    _, sums, _ = per_image(signs, images, "signs")
    generator, rows = np.random.default_rng(seed), max(1, CELLS // len(sums))
    totals = np.concatenate(
        [
            (2.0 * generator.integers(2, size=(min(rows, DRAWS - start), len(sums)), dtype=np.int8) - 1) @ sums
            for start in range(0, DRAWS, rows)
        ]
    )
    values = 50 + 50 * (np.abs(totals) if either_way else totals) / len(signs)
    return _chance(values.max(axis=1)), [_chance(column) for column in values.T]


def _chance(values: NDArray[np.float64]) -> Chance:
    return Chance(float(values.mean()), float(np.quantile(values, LEVEL, method="higher")))
