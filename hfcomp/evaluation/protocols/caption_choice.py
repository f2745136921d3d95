"""One image, one true caption, one or more false ones: is the true one scored strictly higher? (SugarCrepe)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores

CHANCE = 0.5
CHOICE_PAIRS = ("image", "caption"), ("image", "negative_captions")


def caption_choice(
    image: NDArray[np.float32],
    caption: NDArray[np.float32],
    negative: NDArray[np.float32],
    mask: NDArray[np.bool_] | None = None,
) -> ChoiceOutcome:
    """Scores items by cosine, in fp32; a tie is wrong and counted (as in SugarCrepe's own script).

    Args:
        image: `[n, D]`, L2-normalised.
        caption: `[n, D]`, L2-normalised.
        negative: `[n, K, D]` or `[n, D]`, L2-normalised.
        mask: `[n, K]`, which negatives exist.

    Returns:
        Correct and tied items. Chance is 1/2 for one negative, 1/(K + 1) for K.
    """
    negative = negative[:, None] if negative.ndim == 2 else negative
    return choose(pair_scores(image, caption), pair_scores(image, negative), mask)


@dataclass(frozen=True)
class CaptionChoice(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`: [`caption_choice`] of every row; one negative or several."""

    texts = ("caption", "negative_captions")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("caption choice",)

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """The image with its caption and its negatives."""
        return CHOICE_PAIRS

    def text_choice(self, items: BenchmarkData) -> CaptionChoice:
        """All of it."""
        return self

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metric "caption choice"."""
        outcomes, chances = [], []
        for rows in scored.parts():
            negative, mask = scored.list_scores("image", "negative_captions", rows)
            outcomes.append(choose(scored.scores("image", "caption", rows), negative, mask))
            chances.append(1 / (1 + mask.sum(axis=1)))
        outcome = concatenated(outcomes)
        yield Measured("caption choice", outcome.correct, outcome.tie, np.concatenate(chances))
