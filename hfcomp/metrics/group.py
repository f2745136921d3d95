"""Two images and their two captions: Winoground's text, image and group score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
"""For a random scorer: two independent comparisons each, and two of four scores in random order above the others."""


@dataclass(frozen=True)
class GroupOutcome:
    """Outcomes per item.

    Attributes:
        text: Whether each image scores strictly higher with its own caption.
        image: Whether each caption scores strictly higher with its own image.
        group: Whether both hold.
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
    """Compares the four scores of an item strictly (Thrush et al. 2022, Eqs. 1-3).

    Args:
        c0_i0: `[n]`, caption 0 with its own image 0.
        c0_i1: `[n]`, caption 0 with image 1.
        c1_i0: `[n]`, caption 1 with image 0.
        c1_i1: `[n]`, caption 1 with its own image 1.
    """
    captions = (c0_i0, c1_i0), (c1_i1, c0_i1)
    images = (c0_i0, c0_i1), (c1_i1, c1_i0)
    return GroupOutcome(all_higher(*captions), all_higher(*images), all_higher(*captions, *images))
