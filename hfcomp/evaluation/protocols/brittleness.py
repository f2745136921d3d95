"""One image, its caption, a rewording and a false caption: do both true ones win, and does the wording decide?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hfcomp.evaluation.engine import EmbeddedItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import Measured, ScoringProtocol
from hfcomp.metrics.brittleness import CHANCE, brittleness
from hfcomp.metrics.choice import pair_scores

METRICS = {"original": "original accuracy", "augmented": "augmented accuracy", "brittle": "brittleness"}
"""Names in tables, those of Kamath et al. 2024, section 4.1; of brittleness alone, lower is better."""


@dataclass(frozen=True)
class Brittleness(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions`, `negative_captions`, of the lists the first."""

    texts = ("caption", "positive_captions", "negative_captions")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(METRICS.values())

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """[`hfcomp.metrics.brittleness.brittleness`] of every row."""
        parts = []
        for rows in embedded.parts():
            image = embedded.image("image", rows)
            parts.append(brittleness(*(pair_scores(image, embedded.text(column, rows)) for column in self.texts)))
        for part, metric in METRICS.items():
            outcome = concatenated([getattr(one, part) for one in parts])
            yield Measured(metric, outcome.correct, outcome.tie, CHANCE[part])
