"""One image, its caption, and the same caption with every other keyword in its place: is the true one first?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hfcomp.evaluation.engine import EmbeddedItems
from hfcomp.evaluation.spec import Measured, ScoringProtocol
from hfcomp.metrics.choice import pair_scores
from hfcomp.metrics.keyword_ranking import keyword_ranking


@dataclass(frozen=True)
class KeywordRanking(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`, which hold the caption with all other keywords of its list."""

    texts = ("caption", "negative_captions")

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "top-1" and "reciprocal rank" (Rösch et al. 2024, section 3.3; the rank is our addition)."""
        found = []
        for rows in embedded.parts():
            negative, mask = embedded.texts("negative_captions", rows)
            image = embedded.image("image", rows)
            true = pair_scores(image, embedded.text("caption", rows))
            found.append(keyword_ranking(true, pair_scores(image, negative), mask))
        first = [part.first for part in found]
        tie = np.concatenate([part.tie for part in first])
        chance = np.concatenate([part.chance for part in found])
        yield Measured("top-1", np.concatenate([part.correct for part in first]), tie, chance)
        rank = np.concatenate([part.reciprocal_rank for part in found])
        rank_chance = np.concatenate([part.reciprocal_rank_chance for part in found])
        yield Measured("reciprocal rank", rank, np.zeros(len(rank), dtype=bool), rank_chance)
