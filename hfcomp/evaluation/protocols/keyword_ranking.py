"""One image, its caption, and the same caption with every other keyword in its place: is the true one first?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.evaluation.engine import EmbeddedItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.choice import pair_scores
from hfcomp.metrics.keyword_ranking import keyword_ranking


@dataclass(frozen=True)
class KeywordRanking(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`, which hold the caption with all other keywords of its list.

    Attributes:
        metrics: which of "top-1" and "reciprocal rank" are reported.
    """

    texts = ("caption", "negative_captions")

    metrics: tuple[str, ...] = ("top-1", "reciprocal rank")

    def text_choice(self, items: BenchmarkData) -> KeywordRanking | None:
        """The metric "top-1", where it is reported."""
        return replace(self, metrics=("top-1",)) if "top-1" in self.metrics else None

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "top-1" and "reciprocal rank" (Rösch et al. 2024, section 3.3; the rank is our addition)."""
        found = []
        for rows in embedded.parts():
            negative, mask = embedded.texts("negative_captions", rows)
            image = embedded.image("image", rows)
            true = pair_scores(image, embedded.text("caption", rows))
            found.append(keyword_ranking(true, pair_scores(image, negative), mask))
        first = concatenated([part.first for part in found])
        if "top-1" in self.metrics:
            chance = np.concatenate([part.chance for part in found])
            yield Measured("top-1", first.correct, first.tie, chance)
        if "reciprocal rank" in self.metrics:
            rank = np.concatenate([part.reciprocal_rank for part in found])
            chance = np.concatenate([part.reciprocal_rank_chance for part in found])
            yield Measured("reciprocal rank", rank, np.zeros(len(rank), dtype=bool), chance)
