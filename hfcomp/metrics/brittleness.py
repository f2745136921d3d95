"""A caption, one that means the same and one that does not: is the model as sure of the second as of the first?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = {"original": 1 / 2, "augmented": 1 / 3, "brittle": 1 / 3}
"""Of a random scorer: of three scores in random order, the negative's is the least, or the middle one, in a third."""


@dataclass(frozen=True)
class BrittlenessOutcome:
    """What came of each item. High accuracies and a low share of brittle items are good.

    Attributes:
        original: the caption scores strictly higher than the hard negative.
        augmented: the caption and the hard positive both do.
        brittle: the negative's score is strictly between those of the caption and the hard positive, so that the
            wording decides. A tie here is an item that would be brittle if its equal scores were apart.
    """

    original: ChoiceOutcome
    augmented: ChoiceOutcome
    brittle: ChoiceOutcome


def brittleness(
    caption: NDArray[np.floating], hard_positive: NDArray[np.floating], hard_negative: NDArray[np.floating]
) -> BrittlenessOutcome:
    """The counter-test to hard negatives (Kamath et al. 2024, "The Hard Positive Truth about Vision-Language ...").

    As in the authors' released script: all comparisons are strict, and items whose negative equals a caption are
    neither correct nor brittle. A scorer that is always wrong is not brittle either: report brittleness with accuracy.

    Args:
        caption: `[n]`, score of the image with its caption.
        hard_positive: `[n]`, with a caption that differs little and means the same.
        hard_negative: `[n]`, with one that differs little and means something else.
    """
    original = all_higher((caption, hard_negative))
    augmented = all_higher((caption, hard_negative), (hard_positive, hard_negative))
    # The negative may lie between the two in either order; an item with a tie in one order can still be brittle in the
    # other.
    first = all_higher((caption, hard_negative), (hard_negative, hard_positive))
    second = all_higher((hard_positive, hard_negative), (hard_negative, caption))
    correct = first.correct | second.correct
    tie = (first.tie | second.tie) & ~correct
    return BrittlenessOutcome(original, augmented, ChoiceOutcome(correct, tie))
