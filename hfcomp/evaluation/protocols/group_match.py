"""Group matching: is every comparison of images and captions in a group, or in a set of images, right?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, concatenate
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import group
from hfcomp.metrics.choice import choose, pair_scores


@dataclass(frozen=True)
class GroupMatch(ScoringProtocol):
    """Columns `image`, `caption`, `negative_image`, `negative_captions`, whose first describes the other image.

    Attributes:
        metrics: Reported metrics, among text, image and group.
    """

    images = ("image", "negative_image")
    texts = ("caption", "negative_captions")
    row_pairs = tuple(
        (image, text) for text in ("caption", "negative_captions") for image in ("image", "negative_image")
    )

    metrics: tuple[str, ...] = ("group", "text", "image")

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.metrics

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        """Returns "text", if reported. Each caption is false for one of the images, so no blind rule solves it."""
        return replace(self, metrics=("text",)) if "text" in self.metrics else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        parts = scored.parts()
        whole = concatenate(
            [group.group_score(*(scored.scores(*pair, rows) for pair in self.row_pairs)) for rows in parts]
        )
        for metric in self.metrics:
            outcome = getattr(whole, metric)
            yield Measured(metric, outcome.correct, outcome.tie, group.CHANCE[metric])


@dataclass(frozen=True)
class GroupAndCaption(GroupMatch):
    """[`GroupMatch`] in the rows with a true column `one_answer`, and `CaptionChoice` in all rows.

    If a caption is true for both images, matching the group has no answer.
    """

    metrics: tuple[str, ...] = ("group",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*self.metrics, *CaptionChoice().metric_names)

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        return CaptionChoice()

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        rows = np.flatnonzero(scored.items.rows["one_answer"][:])
        for measured in super().score(scored):
            # `rows` identify the items of the remaining values.
            yield replace(measured, value=measured.value[rows], tie=measured.tie[rows], rows=rows)
        yield from CaptionChoice().score(scored)


@dataclass(frozen=True)
class ImageChoice(ScoringProtocol):
    """Columns `image`, `candidates` and `caption`: the caption's own image against the other images of its set.

    A set contains the distinct images of the rows with the same name in `candidates`. A row without a caption is only
    a candidate.
    """

    metric_names = ("image choice",)
    optional_texts = ("caption",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """Yields the metric "image choice"; chance is 1/K among K images."""
        images, columns = embedded.images["image"], embedded.items.rows
        rivals = _rivals(columns["candidates"][:], images.index)
        has_caption = np.array([bool(text) for text in columns["caption"]])
        # A row whose set has no other image leaves nothing to choose.
        rows = np.flatnonzero(has_caption & (rivals >= 0).any(axis=1))
        outcomes = []
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            part = rows[start : start + ROWS_AT_A_TIME]
            text, mask = embedded.text("caption", part), rivals[part] >= 0
            # Missing rivals get an arbitrary vector, which the mask excludes.
            other = images.vectors[np.where(mask, rivals[part], 0)]
            outcomes.append(choose(pair_scores(text, embedded.image("image", part)), pair_scores(text, other), mask))
        outcome = concatenate(outcomes)
        chance = 1 / (1 + (rivals[rows] >= 0).sum(axis=1))
        yield Measured("image choice", outcome.correct, outcome.tie, chance, rows=rows)


def _rivals(names: list[str], image: NDArray[np.integer]) -> NDArray[np.integer]:
    """Returns the other images of each row's set, `[n, K]`, padded with -1."""
    sets = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
    # An image that several rows of a set show is one candidate.
    members = [np.unique(image[sets == number]) for number in range(int(sets.max(initial=-1)) + 1)]
    rivals = np.full((len(names), max(1, *map(len, members))), -1)
    for row, number in enumerate(sets):
        others = members[number][members[number] != image[row]]
        rivals[row, : len(others)] = others
    return rivals
