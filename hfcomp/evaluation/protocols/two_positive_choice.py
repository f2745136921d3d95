"""One image, two true captions worded differently, one false one: do both true ones win? (SugarCrepe++)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import two_positive
from hfcomp.metrics.choice import ChoiceOutcome, pair_scores

CHANCE = two_positive.CHANCE


@dataclass(frozen=True)
class TwoPositiveChoice(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions`, `negative_captions`, of the lists the first.

    A row without an image is scored on its texts alone.
    """

    texts = ("caption", "positive_captions", "negative_captions")
    needs_images = False
    beyond_pairs = "text only"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("image-to-text", "text only")

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """The image with each of the three."""
        return [("image", column) for column in self.texts]

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        """The metric "image-to-text"; the other one is about texts alone."""
        return _ImageToText()

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """Both comparisons of every row, strict as in `hfcomp.metrics.two_positive`; "text only" needs embeddings."""
        seen = np.flatnonzero(scored.seen("image"))
        if len(seen):
            pairs = self.pairs(scored.items)
            parts = [[scored.scores(*pair, rows) for pair in pairs] for rows in scored.parts()]
            outcome = concatenated([two_positive.image_to_text(*part) for part in parts])
            yield Measured("image-to-text", outcome.correct[seen], outcome.tie[seen], CHANCE, rows=seen)
        if isinstance(scored, EmbeddedItems):
            parts = (map(partial(scored.text, rows=rows), self.texts) for rows in scored.parts())
            outcome = concatenated([_text_only(*part) for part in parts])
            yield Measured("text only", outcome.correct, outcome.tie, CHANCE)


def _text_only(
    caption: NDArray[np.float32], paraphrase: NDArray[np.float32], negative: NDArray[np.float32]
) -> ChoiceOutcome:
    return two_positive.text_only(
        pair_scores(caption, paraphrase), pair_scores(caption, negative), pair_scores(paraphrase, negative)
    )


class _ImageToText(TwoPositiveChoice):
    """The metric of [`TwoPositiveChoice`] that has an image."""

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        yield from (one for one in super().score(scored) if one.metric == "image-to-text")
