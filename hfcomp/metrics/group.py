"""Two images and their two captions: the text, image and group score of Winoground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
"""Of a random scorer: two independent comparisons each, and two of four scores in random order above the others."""


@dataclass(frozen=True)
class GroupOutcome:
    """What came of each item.

    Attributes:
        text: for each image its own caption scores strictly higher.
        image: for each caption its own image scores strictly higher.
        group: both.
    """

    text: ChoiceOutcome
    image: ChoiceOutcome
    group: ChoiceOutcome


def group_score(
    c0_i0: NDArray[np.floating],
    c0_i1: NDArray[np.floating],
    c1_i0: NDArray[np.floating],
    c1_i1: NDArray[np.floating],
) -> GroupOutcome:
    """Strict comparisons among the four scores of an item (Thrush et al. 2022, Eqs. 1-3).

    Args:
        c0_i0: `[n]`, caption 0 with image 0, which belong together.
        c0_i1: `[n]`, caption 0 with image 1.
        c1_i0: `[n]`, caption 1 with image 0.
        c1_i1: `[n]`, caption 1 with image 1, which belong together.
    """
    captions = (c0_i0, c1_i0), (c1_i1, c0_i1)
    images = (c0_i0, c0_i1), (c1_i1, c1_i0)
    return GroupOutcome(all_higher(*captions), all_higher(*images), all_higher(*captions, *images))
