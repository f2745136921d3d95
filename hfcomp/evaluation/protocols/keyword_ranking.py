"""One image, its caption, and the same caption with every other keyword in its place: is the true one first?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CHOICE_PAIRS
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.keyword_ranking import keyword_ranking


@dataclass(frozen=True)
class KeywordRanking(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`, which hold the caption with all other keywords of its list.

    Attributes:
        metrics: which of "top-1" and "reciprocal rank" are reported.
    """

    texts = ("caption", "negative_captions")

    metrics: tuple[str, ...] = ("top-1", "reciprocal rank")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return self.metrics

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """The image with its caption and with all others."""
        return CHOICE_PAIRS

    def text_choice(self, items: BenchmarkData) -> KeywordRanking | None:
        """The metric "top-1", where it is reported."""
        return replace(self, metrics=("top-1",)) if "top-1" in self.metrics else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metrics "top-1" and "reciprocal rank" (Rösch et al. 2024, section 3.3; the rank is our addition)."""
        found = []
        for rows in scored.parts():
            true = scored.scores("image", "caption", rows)
            found.append(keyword_ranking(true, *scored.list_scores("image", "negative_captions", rows)))
        first = concatenated([part.first for part in found])
        if "top-1" in self.metrics:
            chance = np.concatenate([part.chance for part in found])
            yield Measured("top-1", first.correct, first.tie, chance)
        if "reciprocal rank" in self.metrics:
            rank = np.concatenate([part.reciprocal_rank for part in found])
            chance = np.concatenate([part.reciprocal_rank_chance for part in found])
            yield Measured("reciprocal rank", rank, np.zeros(len(rank), dtype=bool), chance)
