"""Concepts of few images: merged into the most similar one, or removed (CLEAR GLASS, section 3.1.2)."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hfcomp.factory.magic.hierarchy import Chain, Merge, Removal
from hfcomp.factory.magic.options import GraphSettings
from hfcomp.factory.magic.similarity import (
    BLOCK,
    Vectors,
    blocks,
    most_similar,
    nearest,
    places_of,
    similar_pairs,
)

# Number of similar concepts that are kept in memory for a small one.
KEPT = 64


@dataclass(frozen=True)
class Merged:
    """Concepts after merging.

    Attributes:
        members: names that were merged into it, also by way of others.
        merges: In the order in which they were made.
        removed: In the order in which they were removed.
    """

    images: dict[str, int]
    members: dict[str, tuple[str, ...]]
    merges: tuple[Merge, ...]
    removed: tuple[Removal, ...]


def merge_small(images: Mapping[str, int], names: Sequence[str], vectors: Vectors, settings: GraphSettings) -> Merged:
    """Merges or removes concepts with fewer images than `min_images`, the smallest first, equal ones by name.

    A concept becomes part of the most similar one that is still there, if their cosine is above `merge_similarity`.
    What grows to `min_images` in this way stays. A concept without a similar one is removed, with the nearest of those
    that were still there in its record.

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
    gone = np.full(len(names), len(names))  # the step in which each left; past the last one for those that stay
    queue = [(images[names[row]], names[row]) for row in small]
    heapq.heapify(queue)
    while queue:
        number, name = heapq.heappop(queue)
        if left.get(name) != number:  # merged away, or it has grown and stands in the queue again
            continue
        gone[place[name]] = len(merges) + len(removed)
        del left[name]
        best = similar.best(place[name], left)
        if best is None:
            removed[name] = number
            continue
        other, cosine = best
        # No other concept has fewer images, because this one is the smallest left.
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
    """Concepts similar to each small one: `KEPT` are in memory, others are found once these are gone."""

    names: Sequence[str]
    vectors: Vectors
    threshold: float
    order: NDArray[np.int64]
    first: dict[int, list[tuple[str, float]]]

    @classmethod
    def of(cls, names: Sequence[str], vectors: Vectors, small: NDArray[np.int64], threshold: float) -> _Similar:
        found = cls(names, vectors, threshold, places_of(names), {int(row): [] for row in small})
        for rows in blocks(small):
            found.first.update(found.near(rows, KEPT))
        return found

    def near(self, rows: NDArray[np.int64], most: int) -> dict[int, list[tuple[str, float]]]:
        """Names above the threshold for each row, the most similar first, equal ones by name."""
        found: dict[int, list[tuple[str, float]]] = {int(row): [] for row in rows}
        pairs = similar_pairs(self.vectors, self.threshold, rows=rows)
        for row, other, cosine in zip(*most_similar(pairs, self.order, most), strict=True):
            found[int(row)].append((self.names[other], float(cosine)))
        return found

    def best(self, row: int, left: Container[str]) -> tuple[str, float] | None:
        """The most similar one of those that are left."""
        best = next((one for one in self.first[row] if one[0] in left), None)
        # All that are in memory have been merged away, and there were more: this rare list is computed again in full.
        if best is None and len(self.first[row]) == KEPT:
            all_of_it = self.near(np.array([row]), len(self.names))[row]
            best = next((one for one in all_of_it if one[0] in left), None)
        return best


HardNegatives = list[tuple[str, float]]


def hard_negatives(
    chains: Mapping[str, Chain], names: Sequence[str], vectors: Vectors, settings: GraphSettings, *, block: int = BLOCK
) -> dict[str, HardNegatives]:
    """Finds the most similar others of each concept, above `negative_similarity` and at most `max_negatives`.

    No name of its chain is in the chain of the other, whatever its level: "animal" is no negative of a dog below
    "animal". Only the `shared_levels` most abstract levels of both may have common names.

    Returns:
        Names and cosines, the nearest first, equal ones by name.
    """
    top = 4 - settings.shared_levels
    # Numbers stand for names, because many pairs are compared at once.
    ids = _ids([chains[name] for name in names])
    order = places_of(names)
    found: dict[str, HardNegatives] = {name: [] for name in names}
    for rows in blocks(np.arange(len(names)), block):
        first, second, cosines = similar_pairs(vectors, settings.negative_similarity, rows=rows, block=block)
        differ = np.ones(len(first), bool)
        # Every level is compared with every level: one name may be on level 2 of a chain and on level 3 of another.
        for level, other_level in product(range(4), repeat=2):
            if min(level, other_level) < top:
                differ &= ids[first, level] != ids[second, other_level]
        kept = most_similar((first[differ], second[differ], cosines[differ]), order, settings.max_negatives)
        for one, other, cosine in zip(*kept, strict=True):
            found[names[one]].append((names[other], float(cosine)))
    return found


def _ids(chains: Sequence[Chain]) -> np.ndarray:
    """`[n, 4]`, equal numbers for equal names."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in chain] for chain in chains]
    return np.array(rows, np.int64).reshape(len(chains), 4)
