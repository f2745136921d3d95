"""Two images and their two captions: all four comparisons right? (Winoground)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import group

CHANCE = group.CHANCE


@dataclass(frozen=True)
class GroupMatch(ScoringProtocol):
    """Columns `image`, `caption`, `negative_image`, `negative_captions`, whose first describes the other image.

    Attributes:
        metrics: which of text, image and group are reported.
    """

    images = ("image", "negative_image")
    texts = ("caption", "negative_captions")

    metrics: tuple[str, ...] = ("group", "text", "image")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return self.metrics

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """Both images with both captions."""
        return [(image, text) for text in self.texts for image in self.images]

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        """The metric "text", where it is reported: each caption is false of one image, so no blind rule solves it."""
        return replace(self, metrics=("text",)) if "text" in self.metrics else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The strict comparisons of `hfcomp.metrics.group` of every row."""
        pairs = self.pairs(scored.items)
        parts = [group.group_score(*(scored.scores(*pair, rows) for pair in pairs)) for rows in scored.parts()]
        for metric in self.metrics:
            outcome = concatenated([getattr(part, metric) for part in parts])
            yield Measured(metric, outcome.correct, outcome.tie, CHANCE[metric])


@dataclass(frozen=True)
class GroupAndCaption(GroupMatch):
    """[`GroupMatch`] of the rows where the column `one_answer` is true, and `CaptionChoice` of all.

    A caption that is true of both images makes the match of the group one without an answer.
    """

    metrics: tuple[str, ...] = ("group",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return (*self.metrics, *CaptionChoice().metric_names)

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        """The choice of the caption."""
        return CaptionChoice()

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """The metrics of the groups, then "caption choice"."""
        rows = np.flatnonzero(scored.items.rows["one_answer"][:])
        for one in super().score(scored):
            yield replace(one, value=one.value[rows], tie=one.tie[rows], rows=rows)
        yield from CaptionChoice().score(scored)
