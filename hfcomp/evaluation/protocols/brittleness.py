"""One image, its caption, a rewording and a false caption: do both true ones win, and does the wording decide?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.brittleness import CHANCE, BrittlenessOutcome, brittleness

METRICS = {"original": "original accuracy", "augmented": "augmented accuracy", "brittle": "brittleness"}
"""Names in tables, those of Kamath et al. 2024, section 4.1; of brittleness alone, lower is better."""


@dataclass(frozen=True)
class Brittleness(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions` (the first) and `negative_captions`.

    As in the authors' script, the original accuracy compares the caption with its own false one, the first; the
    other two metrics compare the caption and the rewording with that of the rewording, the last.
    """

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
        parts = [_outcome(scored, rows) for rows in scored.parts()]
        for part, metric in METRICS.items():
            outcome = concatenated([getattr(one, part) for one in parts])
            yield Measured(metric, outcome.correct, outcome.tie, CHANCE[part])


def _outcome(scored: ScoredItems, rows: slice) -> BrittlenessOutcome:
    own, reworded = (scored.scores("image", column, rows) for column in ("caption", "positive_captions"))
    negatives, there = scored.list_scores("image", "negative_captions", rows)
    item = np.arange(len(own))
    first, last = there.argmax(axis=1), there.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    outcome = brittleness(own, reworded, negatives[item, last])
    return replace(outcome, original=brittleness(own, reworded, negatives[item, first]).original)
