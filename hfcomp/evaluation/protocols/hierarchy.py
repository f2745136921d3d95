"""Four captions of an image from the general to the specific: are they found in that order? (HierarCaps)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.hierarchy import hierarchy


@dataclass(frozen=True)
class Hierarchy(ScoringProtocol):
    """Columns `image` and `captions`, four from the general to the specific; the root is the empty text."""

    texts = ("captions",)

    def prompts(self, items: BenchmarkData) -> list[str]:
        """The empty text."""
        return [""]

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return ("precision", "recall", "rank correlation")

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The authors' precision, recall and rank correlation, per image.

        Within some radius a tie is shown; what it took from a fraction is not known, so that no rule of what ties
        count adds to precision and recall, see `hfcomp.statistics.summarize`.
        """
        everyone = slice(None)
        text, _ = embedded.texts("captions", everyone)
        identity = embedded.columns["captions"].ragged(everyone)
        outcome = hierarchy(embedded.image("image", everyone), text, embedded.prompts[0], identity)
        yield Measured("precision", outcome.precision, outcome.tie, outcome.precision_chance)
        yield Measured("recall", outcome.recall, outcome.tie, outcome.recall_chance)
        untied = np.zeros(len(outcome.tie), dtype=bool)
        yield Measured("rank correlation", outcome.rank_correlation, untied, 0.0)
