"""Two images and their two captions: all four comparisons right? (Winoground)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import pair_scores

CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}


@dataclass(frozen=True)
class GroupOutcome:
    """What came of each item, `[n]` bool each.

    Attributes:
        text: for each image its own caption scores strictly higher.
        image: for each caption its own image scores strictly higher.
        group: both.
        tie: some comparison was equal.
    """

    text: NDArray[np.bool_]
    image: NDArray[np.bool_]
    group: NDArray[np.bool_]
    tie: NDArray[np.bool_]


def group_match(
    image: NDArray[np.float32],
    caption: NDArray[np.float32],
    other_image: NDArray[np.float32],
    other_caption: NDArray[np.float32],
) -> GroupOutcome:
    """Scores items by cosine, in fp32, with strict comparisons (Thrush et al. 2022, Eqs. 1-3).

    Args:
        image: `[n, D]`, L2-normalised.
        caption: `[n, D]`, describes `image`.
        other_image: `[n, D]`, L2-normalised.
        other_caption: `[n, D]`, describes `other_image`.
    """
    own, own_other = pair_scores(image, caption), pair_scores(other_image, other_caption)
    cross, cross_other = pair_scores(image, other_caption), pair_scores(other_image, caption)
    text = (own > cross) & (own_other > cross_other)
    pictures = (own > cross_other) & (own_other > cross)
    tie = (own == cross) | (own_other == cross_other) | (own == cross_other) | (own_other == cross)
    return GroupOutcome(text, pictures, text & pictures, tie)
