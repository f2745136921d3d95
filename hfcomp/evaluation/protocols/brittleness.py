"""One image, its caption, a rewording and a false caption: do both true ones win, and does the wording decide?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.brittleness import CHANCE, brittleness

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

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """The image with each of the three."""
        return [("image", column) for column in self.texts]

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """[`hfcomp.metrics.brittleness.brittleness`] of every row."""
        pairs = self.pairs(scored.items)
        parts = [brittleness(*(scored.scores(*pair, rows) for pair in pairs)) for rows in scored.parts()]
        for part, metric in METRICS.items():
            outcome = concatenated([getattr(one, part) for one in parts])
            yield Measured(metric, outcome.correct, outcome.tie, CHANCE[part])
