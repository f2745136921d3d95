"""One image, two true captions worded differently, one false one: do both true ones win? (SugarCrepe++)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, pair_scores

CHANCE = 1 / 3


@dataclass(frozen=True)
class TwoPositiveOutcome:
    """What came of each item.

    Attributes:
        image_to_text: both captions score strictly higher with the image than the negative does.
        text_only: the captions are strictly closer to each other than either is to the negative; no image is read.
    """

    image_to_text: ChoiceOutcome
    text_only: ChoiceOutcome


def two_positive_choice(
    image: NDArray[np.float32],
    caption: NDArray[np.float32],
    paraphrase: NDArray[np.float32],
    negative: NDArray[np.float32],
) -> TwoPositiveOutcome:
    """Scores items by cosine, in fp32, with strict comparisons (Dumpala et al. 2024, as their code has both).

    Args:
        image: `[n, D]`, L2-normalised.
        caption: `[n, D]`, L2-normalised.
        paraphrase: `[n, D]`, the other true caption.
        negative: `[n, D]`.

    Returns:
        Both outcomes; chance is 1/3 for each: of three numbers in random order one has to be the least or the most.
    """
    first, second, wrong = (pair_scores(image, text) for text in (caption, paraphrase, negative))
    worse = np.minimum(first, second)
    together = pair_scores(caption, paraphrase)
    nearest = np.maximum(pair_scores(caption, negative), pair_scores(paraphrase, negative))
    return TwoPositiveOutcome(
        ChoiceOutcome(correct=worse > wrong, tie=worse == wrong),
        ChoiceOutcome(correct=together > nearest, tie=together == nearest),
    )
