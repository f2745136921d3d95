"""Which images and which concepts are of the test split: by hashes, so that no order and no other concept matters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence


def draw_test_images(ids_of: Mapping[str, Sequence[str]], share: float, seed: int) -> set[str]:
    """The test images: of each concept a share of its images, rounded.

    Args:
        ids_of: the ids of each concept's images; an image has one concept.
        share: between 0 and 1.
        seed: of the draw.
    """
    return {one for ids in ids_of.values() for one in _drawn(ids, round(share * len(ids)), seed)}


def draw_test_concepts(names: Sequence[str], share: float, seed: int) -> set[str]:
    """The test concepts: a share of all, rounded; at least one and not all, where there are two or more."""
    number = round(share * len(names))
    return {*_drawn(names, min(max(number, 1), len(names) - 1), seed)}


def _drawn(names: Iterable[str], number: int, seed: int) -> list[str]:
    return sorted(names, key=lambda name: (hashlib.sha256(f"{seed} {name}".encode()).digest(), name))[:number]
