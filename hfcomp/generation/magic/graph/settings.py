"""Thresholds of a hierarchy of concepts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GraphSettings:
    """What is kept, merged and mined.

    The paper's text merges and mines above a similarity, its Algorithm 1 from it on; here it is above.

    Attributes:
        min_images: of a concept that stays; CLEAR GLASS, section 3.1.2.
        merge_similarity: cosine that a merge has to exceed; section 3.1.2.
        negative_similarity: cosine that hard negatives have to exceed; section 3.1.4.
        max_negatives: of one concept, the nearest. Our choice.
        shared_levels: levels, from 4 downwards, on which a hard negative may have the same name. Our choice: none, as
            the name would then fit both.
        test_share: of the images of each concept, and of the concepts; section 4 for images.
        seed: of both splits.

    Raises:
        ValueError: for a number out of its range.
    """

    min_images: int = 5
    merge_similarity: float = 0.9
    negative_similarity: float = 0.85
    max_negatives: int = 20
    shared_levels: int = 0
    test_share: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("min_images", "max_negatives"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 1 or more.")
        for name in ("merge_similarity", "negative_similarity"):
            if not -1 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}, expected a cosine from -1 to 1.")
        if not 0 <= self.shared_levels <= 3:
            raise ValueError(f"shared_levels: found {self.shared_levels}, expected 0 to 3.")
        if not 0 < self.test_share < 1:
            raise ValueError(f"test_share: found {self.test_share}, expected a number between 0 and 1.")
