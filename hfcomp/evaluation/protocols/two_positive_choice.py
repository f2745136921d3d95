"""One image, two true captions worded differently, one false one: do both true ones win? (SugarCrepe++)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.engine import EmbeddedItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import two_positive
from hfcomp.metrics.choice import ChoiceOutcome, pair_scores

CHANCE = two_positive.CHANCE


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
    """Scores items by cosine, in fp32, with the strict comparisons of `hfcomp.metrics.two_positive`.

    Args:
        image: `[n, D]`, L2-normalised.
        caption: `[n, D]`, L2-normalised.
        paraphrase: `[n, D]`, the other true caption.
        negative: `[n, D]`.

    Returns:
        Both outcomes; chance is 1/3 for each.
    """
    return TwoPositiveOutcome(
        two_positive.image_to_text(*(pair_scores(image, text) for text in (caption, paraphrase, negative))),
        two_positive.text_only(
            pair_scores(caption, paraphrase), pair_scores(caption, negative), pair_scores(paraphrase, negative)
        ),
    )


@dataclass(frozen=True)
class TwoPositiveChoice(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions`, `negative_captions`, of the lists the first.

    A row without an image is scored on its texts alone.
    """

    texts = ("caption", "positive_captions", "negative_captions")
    needs_images = False

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        """The metric "image-to-text"; the other one is about texts alone."""
        return _ImageToText()

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """[`two_positive_choice`] of every row."""
        parts = [
            two_positive_choice(embedded.image("image", rows), *(embedded.text(column, rows) for column in self.texts))
            for rows in embedded.parts()
        ]
        seen = np.flatnonzero(embedded.images["image"].index >= 0)
        if len(seen):
            outcome = concatenated([part.image_to_text for part in parts])
            yield Measured("image-to-text", outcome.correct[seen], outcome.tie[seen], CHANCE, rows=seen)
        outcome = concatenated([part.text_only for part in parts])
        yield Measured("text only", outcome.correct, outcome.tie, CHANCE)


class _ImageToText(TwoPositiveChoice):
    """The metric of [`TwoPositiveChoice`] that has an image."""

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        yield from (one for one in super().score(embedded) if one.metric == "image-to-text")
