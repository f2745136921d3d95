"""Concepts of few images: merged into the most similar one, or removed (CLEAR GLASS, section 3.1.2)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hfcomp.generation.magic.graph.hierarchy import Merge, Removal
from hfcomp.generation.magic.graph.settings import GraphSettings
from hfcomp.generation.magic.graph.similarity import Vectors, nearest, similar_pairs


@dataclass(frozen=True)
class Merged:
    """Concepts after merging.

    Attributes:
        images: of each concept that is left.
        members: names that were merged into it, also by way of others.
        merges: in their order.
        removed: in their order.
    """

    images: dict[str, int]
    members: dict[str, tuple[str, ...]]
    merges: tuple[Merge, ...]
    removed: tuple[Removal, ...]


def merge_small(images: Mapping[str, int], names: Sequence[str], vectors: Vectors, settings: GraphSettings) -> Merged:
    """Merges or removes concepts with fewer images than `min_images`, the smallest first, equal ones by name.

    A concept becomes part of the most similar one that is still there, if their cosine is above `merge_similarity`.
    What grows to `min_images` in this way stays. A concept without a similar one is removed; the nearest one in its
    record is that among all concepts, whatever became of it.

    Args:
        images: of each name, at least 1.
        names: of the rows of `vectors`.
        vectors: `[n, D]`, see `similar_pairs`.
        settings: thresholds.
    """
    left, place = dict(images), {name: row for row, name in enumerate(names)}
    small = np.array([row for row, name in enumerate(names) if images[name] < settings.min_images], np.int64)
    similar = _neighbours(names, vectors, small, settings.merge_similarity)
    closest = _closest(names, vectors, small)
    members: dict[str, tuple[str, ...]] = {}
    merges, removed = [], []
    queue = [(images[names[row]], names[row]) for row in small]
    heapq.heapify(queue)
    while queue:
        number, name = heapq.heappop(queue)
        if left.get(name) != number:  # merged away, or it has grown and stands in the queue again
            continue
        best = next(((other, cosine) for other, cosine in similar[place[name]] if other in left), None)
        if best is None:
            del left[name]
            removed.append(Removal(name, number, f"fewer than {settings.min_images} images", *closest[name]))
            continue
        other, cosine = best
        # no other has fewer images, as this one is the smallest that is left
        merges.append(Merge(name, other, number, cosine))
        members[other] = (*members.get(other, ()), name, *members.pop(name, ()))
        left[other] += left.pop(name)
        if left[other] < settings.min_images:
            heapq.heappush(queue, (left[other], other))
    kept = {name: members[name] for name in left if name in members}
    return Merged(left, kept, tuple(merges), tuple(removed))


def _neighbours(
    names: Sequence[str], vectors: Vectors, small: np.ndarray, threshold: float
) -> dict[int, list[tuple[str, float]]]:
    """Of each small concept the names above the threshold, the most similar first, equal ones by name."""
    found: dict[int, list[tuple[str, float]]] = {int(row): [] for row in small}
    for first, second, cosine in zip(*similar_pairs(vectors, threshold, rows=small), strict=True):
        found[int(first)].append((names[second], float(cosine)))
    return {row: sorted(others, key=lambda one: (-one[1], one[0])) for row, others in found.items()}


def _closest(names: Sequence[str], vectors: Vectors, small: np.ndarray) -> dict[str, tuple[str | None, float | None]]:
    if len(names) < 2 or not len(small):
        return {names[row]: (None, None) for row in small}
    pairs = zip(*nearest(vectors, small), strict=True)
    return {names[first]: (names[second], float(cosine)) for first, second, cosine in pairs}
