"""The distribution of the cosines between concepts, which shows what a threshold keeps with an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hfcomp.factory.magic.similarity import BLOCK, DIGITS, Vectors
from hfcomp.reporting.report import Table

# Bins per unit of cosine. A bin's upper edge belongs to it, so the number above an edge is exact.
BINS = 1_000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True)
class Histogram:
    """Numbers of cosines by bin.

    Attributes:
        counts: Number of cosines in each bin that is not empty, by the bin's upper edge as text, such as "0.850".
    """

    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """The lowest edge that at least a share of the cosines does not exceed. There must be a cosine."""
        edges, sums = self._sums()
        return float(edges[np.searchsorted(sums, share * sums[-1])])

    def threshold(self, share: float) -> float:
        """The highest edge that at least a share of the cosines exceeds, and at least one. There must be a cosine."""
        edges, sums = self._sums()
        left = np.concatenate([[0], sums[:-1]])  # the number of cosines in lower bins
        place = np.flatnonzero(sums[-1] - left >= share * sums[-1] - 1e-6)[-1]
        return round(float(edges[place]) - 1 / BINS, 3)

    def _sums(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The upper edges of all bins that are not empty, ascending, and the number of cosines up to each."""
        edges = sorted(self.counts, key=float)
        return np.array(edges, np.float64), np.cumsum([self.counts[edge] for edge in edges])

    def above(self, threshold: float) -> int:
        """Number of cosines above a threshold, exact for up to three digits."""
        return sum(count for edge, count in self.counts.items() if float(edge) > threshold)


@dataclass(frozen=True)
class Cosines:
    """Cosines between concepts.

    Attributes:
        nearest: Cosine of each concept and the one nearest to it.
        pairs: Cosines of all pairs.
    """

    nearest: Histogram = Histogram()
    pairs: Histogram = Histogram()

    @classmethod
    def between(cls, vectors: Vectors, *, block: int = BLOCK // 4) -> Cosines:
        """Counts the cosines of all pairs of rows, block by block; rows of length 0 are left out."""
        points = vectors[vectors.any(axis=1)].astype(np.float64)
        counts = np.zeros(2 * BINS + 1, np.int64)
        nearest = np.full(len(points), -BINS)
        for start in range(0, len(points) - 1, block):
            part = points[start : start + block]
            bins = _bins(part @ points[start:].T)
            # Each pair counts once. Those within the block are above the diagonal.
            later = np.arange(bins.shape[1]) > np.arange(len(part))[:, None]
            counts += np.bincount(bins[later] + BINS, minlength=len(counts))
            bins[~later] = -BINS
            for axis, rows in ((1, slice(start, start + len(part))), (0, slice(start, None))):
                np.maximum(nearest[rows], bins.max(axis=axis), out=nearest[rows])
        of_nearest = np.bincount(nearest + BINS, minlength=len(counts)) * (len(points) > 1)
        return cls(*(Histogram(_sparse(values)) for values in (of_nearest, counts)))

    def tables(self, small: Sequence[float] = ()) -> list[Table]:
        """Tables of quantiles, and of the numbers above thresholds.

        Args:
            small: Cosine of each small concept and the nearest one, which decided whether it was merged.
        """
        of_small = Histogram(_sparse(np.bincount(_bins(np.array(small, np.float64)) + BINS)))
        named = {"nearest concept": self.nearest, "all pairs": self.pairs, "small concepts, nearest": of_small}
        parts = [(name, values) for name, values in named.items() if values.total]
        if not parts:
            return []
        shares = [[name, *(_text(values.quantile(share)) for share in QUANTILES)] for name, values in parts]
        above = [[name, *(f"{values.above(threshold):,}" for threshold in THRESHOLDS)] for name, values in parts]
        names = ["highest" if share == 1 else f"{share:.0%}" for share in QUANTILES]
        return [
            Table("Cosines between concepts, quantiles", ["", *names], shares),
            Table("Number of cosines above a threshold", ["", *map(str, THRESHOLDS)], above),
        ]

    def summary(self) -> str:
        """One line for a log; there must be a pair."""
        median, most = self.nearest.quantile(0.5), self.nearest.quantile(1)
        return f"cosine of each concept and the nearest other one: {median:g} at the median, {most:g} at most"


def _bins(cosines: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of each cosine, -`BINS` to `BINS`, after rounding to `DIGITS`, which makes it the same everywhere."""
    steps = 10**DIGITS
    cosines *= steps
    np.rint(cosines, out=cosines)
    # Half a step below, a number on an edge is in the bin that ends there.
    cosines -= 0.5
    cosines *= BINS / steps
    return np.clip(np.ceil(cosines, out=cosines), -BINS, BINS).astype(np.int64)


def _sparse(counts: NDArray[np.int64]) -> dict[str, int]:
    return {_text((place - BINS) / BINS): int(counts[place]) for place in np.flatnonzero(counts)}


def _text(edge: float) -> str:
    return f"{edge + 0.0:.3f}"
