"""Two images and their two captions: all four comparisons right? (Winoground)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.parts import concatenated
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import group
from hfcomp.metrics.choice import pair_scores
from hfcomp.metrics.group import GroupOutcome

CHANCE = group.CHANCE


def group_match(
    image: NDArray[np.float32],
    caption: NDArray[np.float32],
    other_image: NDArray[np.float32],
    other_caption: NDArray[np.float32],
) -> GroupOutcome:
    """Scores items by cosine, in fp32, with the strict comparisons of `hfcomp.metrics.group`.

    Args:
        image: `[n, D]`, L2-normalised.
        caption: `[n, D]`, describes `image`.
        other_image: `[n, D]`, L2-normalised.
        other_caption: `[n, D]`, describes `other_image`.
    """
    return group.group_score(
        c0_i0=pair_scores(image, caption),
        c0_i1=pair_scores(other_image, caption),
        c1_i0=pair_scores(image, other_caption),
        c1_i1=pair_scores(other_image, other_caption),
    )


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
        """[`group_match`] of every row."""
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
