"""Brittleness: whether a model judges a caption and its rewording with the same meaning alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = {"original": 1 / 2, "augmented": 1 / 3, "brittle": 1 / 3}
"""For a random scorer: of three scores in random order, the negative's is lowest, or in the middle, in a third."""


@dataclass(frozen=True)
class BrittlenessOutcome:
    """Outcomes per item. High accuracies and a low share of brittle items are good.

    Attributes:
        original: Whether the caption scores strictly higher than the hard negative.
        augmented: Whether both the caption and the hard positive do.
        brittle: Whether the negative's score is strictly between those of the caption and the hard positive, so the
            wording decides. A tie is an item that would be brittle if its equal scores were apart.
    """

    original: ChoiceOutcome
    augmented: ChoiceOutcome
    brittle: ChoiceOutcome


def brittleness(
    caption: NDArray[np.floating], hard_positive: NDArray[np.floating], hard_negative: NDArray[np.floating]
) -> BrittlenessOutcome:
    """Tests hard positives along with hard negatives (Kamath et al. 2024, "The Hard Positive Truth about ...").

    As in the authors' released script, all comparisons are strict, and items whose negative ties with a caption are
    neither correct nor brittle. A scorer that is always wrong is not brittle either, so report brittleness together
    with accuracy.

    Args:
        caption: `[n]`, score of the image with its caption.
        hard_positive: `[n]`, score with a caption that differs slightly and means the same.
        hard_negative: `[n]`, score with a caption that differs slightly and means something else.
    """
    original = all_higher((caption, hard_negative))
    augmented = all_higher((caption, hard_negative), (hard_positive, hard_negative))
    # The negative may lie between the two in either order, and an item with a tie in one order can still be brittle in
    # the other.
    first = all_higher((caption, hard_negative), (hard_negative, hard_positive))
    second = all_higher((hard_positive, hard_negative), (hard_negative, caption))
    correct = first.correct | second.correct
    tie = (first.tie | second.tie) & ~correct
    return BrittlenessOutcome(original, augmented, ChoiceOutcome(correct, tie))
