"""Merges concepts with few images into the most similar one, or removes them (CLEAR GLASS, section 3.1.2)."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hfcomp.factory.magic.cosines import Cosines
from hfcomp.factory.magic.hierarchy import Chain, Merge, Removal
from hfcomp.factory.magic.options import GraphSettings
from hfcomp.factory.magic.similarity import BLOCK, Vectors, blocks, most_similar, name_ranks, nearest, similar_pairs

# Number of similar concepts that are kept in memory per small concept.
KEPT = 64


@dataclass(frozen=True)
class Merged:
    """Concepts after merging.

    Attributes:
        images: Number of images of each remaining concept.
        members: Names that were merged into each concept, directly or through others.
        merges: Merges in the order in which they were made.
        removed: Removals in the order in which they were made.
    """

    images: dict[str, int]
    members: dict[str, tuple[str, ...]]
    merges: tuple[Merge, ...]
    removed: tuple[Removal, ...]


def merge_small(images: Mapping[str, int], names: Sequence[str], vectors: Vectors, settings: GraphSettings) -> Merged:
    """Merges or removes concepts with fewer images than `min_images`, the smallest first, ties by name.

    A concept is merged into the most similar remaining one if their cosine is above `merge_similarity`. A concept that
    reaches `min_images` in this way stays. A concept without a similar one is removed; its record names the nearest
    concept that remained at that time.

    Args:
        images: Number of images of each name, at least 1.
        names: Names of the rows of `vectors`.
        vectors: `[n, D]`, see `similar_pairs`.
    """
    left, place = dict(images), {name: row for row, name in enumerate(names)}
    small = np.array([row for row, name in enumerate(names) if images[name] < settings.min_images], np.int64)
    similar = _Similar.of(names, vectors, small, settings.merge_similarity)
    members: dict[str, tuple[str, ...]] = {}
    merges: list[Merge] = []
    removed: dict[str, int] = {}
    gone = np.full(len(names), len(names))  # step in which each concept left; beyond the last step for those that stay
    queue = [(images[names[row]], names[row]) for row in small]
    heapq.heapify(queue)
    while queue:
        number, name = heapq.heappop(queue)
        if left.get(name) != number:  # merged away, or grown and queued again
            continue
        gone[place[name]] = len(merges) + len(removed)
        del left[name]
        best = similar.best(place[name], left)
        if best is None:
            removed[name] = number
            continue
        other, cosine = best
        # No other concept has fewer images, because this is the smallest remaining one.
        merges.append(Merge(name, other, number, cosine))
        members[other] = (*members.get(other, ()), name, *members.pop(name, ()))
        left[other] += number
        if left[other] < settings.min_images:
            heapq.heappush(queue, (left[other], other))
    kept = {name: members[name] for name in left if name in members}
    rows = np.array([place[name] for name in removed], np.int64)
    closest = zip(removed.items(), nearest(vectors, rows, gone), strict=True)
    reason = f"fewer than {settings.min_images} images"
    records = tuple(
        Removal(name, number, reason, *((names[near[0]], near[1]) if near else (None, None)))
        for (name, number), near in closest
    )
    return Merged(left, kept, tuple(merges), records)


@dataclass(frozen=True)
class _Similar:
    """Concepts similar to each small one. `KEPT` are in memory; others are searched only when these are gone."""

    names: Sequence[str]
    vectors: Vectors
    threshold: float
    order: NDArray[np.int64]
    first: dict[int, list[tuple[str, float]]]

    @classmethod
    def of(cls, names: Sequence[str], vectors: Vectors, small: NDArray[np.int64], threshold: float) -> _Similar:
        similar = cls(names, vectors, threshold, name_ranks(names), {int(row): [] for row in small})
        for rows in blocks(small):
            similar.first.update(similar.near(rows, KEPT))
        return similar

    def near(self, rows: NDArray[np.int64], most: int) -> dict[int, list[tuple[str, float]]]:
        """Names above the threshold for each row, the most similar first, ties by name."""
        near: dict[int, list[tuple[str, float]]] = {int(row): [] for row in rows}
        pairs = similar_pairs(self.vectors, self.threshold, rows)
        for row, other, cosine in zip(*most_similar(pairs, self.order, most), strict=True):
            near[int(row)].append((self.names[other], float(cosine)))
        return near

    def best(self, row: int, left: Container[str]) -> tuple[str, float] | None:
        """The most similar of the remaining concepts."""
        best = next((candidate for candidate in self.first[row] if candidate[0] in left), None)
        # If all in memory are merged away and there were more, the full list is computed. This is rare.
        if best is None and len(self.first[row]) == KEPT:
            full_list = self.near(np.array([row]), len(self.names))[row]
            best = next((candidate for candidate in full_list if candidate[0] in left), None)
        return best


HardNegatives = list[tuple[str, float]]


def negative_threshold(cosines: Cosines, settings: GraphSettings) -> float:
    """The cosine that hard negatives must exceed."""
    if settings.negative_quantile is None or not cosines.pairs.total:
        return settings.negative_similarity
    return cosines.pairs.threshold(1 - settings.negative_quantile)


def hard_negatives(
    chains: Mapping[str, Chain],
    names: Sequence[str],
    vectors: Vectors,
    settings: GraphSettings,
    threshold: float,
    *,
    block: int = BLOCK,
) -> dict[str, HardNegatives]:
    """Finds the most similar other concepts of each one, above `threshold` and at most `max_negatives`.

    The chains of the two concepts share names only on their `shared_levels` most abstract levels. If these are not
    all, "animal" is not a negative of a dog below "animal".

    Returns:
        Names and cosines, the nearest first, ties by name.
    """
    top = 4 - settings.shared_levels
    # Names are replaced by numbers, because many pairs are compared at once.
    ids = _ids([chains[name] for name in names])
    order = name_ranks(names)
    negatives: dict[str, HardNegatives] = {name: [] for name in names}
    for rows in blocks(np.arange(len(names)), block):
        first, second, cosines = similar_pairs(vectors, threshold, rows)
        differ = np.ones(len(first), bool)
        # All levels are compared with each other, because a name may be on level 2 of one chain and level 3 of
        # another.
        for level, other_level in product(range(4), repeat=2):
            if min(level, other_level) < top:
                differ &= ids[first, level] != ids[second, other_level]
        kept = most_similar((first[differ], second[differ], cosines[differ]), order, settings.max_negatives)
        for row, other, cosine in zip(*kept, strict=True):
            negatives[names[row]].append((names[other], float(cosine)))
    return negatives


def _ids(chains: Sequence[Chain]) -> np.ndarray:
    """Numbers `[n, 4]` for the names of chains, equal for equal names."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in chain] for chain in chains]
    return np.array(rows, np.int64).reshape(len(chains), 4)
