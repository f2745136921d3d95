"""Two differently worded true captions and a false one: the scores of SugarCrepe++."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, all_higher

CHANCE = 1 / 3
"""For a random scorer, for each score: one of three numbers in random order must be the lowest, or the highest."""


def image_to_text(
    caption: NDArray[np.floating], paraphrase: NDArray[np.floating], negative: NDArray[np.floating]
) -> ChoiceOutcome:
    """Tests whether both true captions score strictly higher with the image than the false one (Dumpala et al. 2024).

    Args:
        caption: `[n]`, score of the image with its caption.
        paraphrase: `[n]`, score with the other true caption.
        negative: `[n]`, score with the false caption.
    """
    return all_higher((caption, negative), (paraphrase, negative))


def text_only(
    caption_paraphrase: NDArray[np.floating],
    caption_negative: NDArray[np.floating],
    paraphrase_negative: NDArray[np.floating],
) -> ChoiceOutcome:
    """Tests whether the true captions are strictly closer to each other than to the false one, without an image.

    The authors' code makes both comparisons and their README only the first. This follows the code.

    Args:
        caption_paraphrase: `[n]`, cosine of the two true captions.
        caption_negative: `[n]`, cosine of the caption and the false one.
        paraphrase_negative: `[n]`, cosine of the other true caption and the false one.
    """
    return all_higher((caption_paraphrase, caption_negative), (caption_paraphrase, paraphrase_negative))
