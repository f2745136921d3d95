"""Two true captions worded differently and one false one: the scores of SugarCrepe++."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = 1 / 3
"""Of a random scorer, for each score: one of three numbers in random order has to be the least, or the most."""


def image_to_text(
    caption: NDArray[np.floating], paraphrase: NDArray[np.floating], negative: NDArray[np.floating]
) -> ChoiceOutcome:
    """Whether both true captions score strictly higher with the image than the false one does (Dumpala et al. 2024).

    Args:
        caption: `[n]`, score of the image with its caption.
        paraphrase: `[n]`, with the other true caption.
        negative: `[n]`, with the false one.
    """
    return all_higher((caption, negative), (paraphrase, negative))


def text_only(
    caption_paraphrase: NDArray[np.floating],
    caption_negative: NDArray[np.floating],
    paraphrase_negative: NDArray[np.floating],
) -> ChoiceOutcome:
    """Whether the true captions are strictly closer to each other than either is to the false one; no image is read.

    The authors' code has both comparisons, their README the first only; this follows the code.

    Args:
        caption_paraphrase: `[n]`, cosine of the two true captions.
        caption_negative: `[n]`, of the caption and the false one.
        paraphrase_negative: `[n]`, of the other true caption and the false one.
    """
    return all_higher((caption_paraphrase, caption_negative), (caption_paraphrase, paraphrase_negative))
