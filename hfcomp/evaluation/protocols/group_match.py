"""Several images beside their captions: is every comparison of a group, or of a set of images, right?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, concatenated
from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import group
from hfcomp.metrics.choice import choose, pair_scores


@dataclass(frozen=True)
class GroupMatch(ScoringProtocol):
    """Columns `image`, `caption`, `negative_image`, `negative_captions`, whose first describes the other image.

    Attributes:
        metrics: which of text, image and group are reported.
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
        """The metric "text", where it is reported: each caption is false of one image, so no blind rule solves it."""
        return replace(self, metrics=("text",)) if "text" in self.metrics else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        parts = scored.parts()
        whole = concatenated(
            [group.group_score(*(scored.scores(*pair, rows) for pair in self.row_pairs)) for rows in parts]
        )
        for metric in self.metrics:
            outcome = getattr(whole, metric)
            yield Measured(metric, outcome.correct, outcome.tie, group.CHANCE[metric])


@dataclass(frozen=True)
class GroupAndCaption(GroupMatch):
    """[`GroupMatch`] of the rows where the column `one_answer` is true, and `CaptionChoice` of all.

    A caption that is true of both images makes the match of the group one without an answer.
    """

    metrics: tuple[str, ...] = ("group",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*self.metrics, *CaptionChoice().metric_names)

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        return CaptionChoice()

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        rows = np.flatnonzero(scored.items.rows["one_answer"][:])
        for one in super().score(scored):
            # `rows` name the items of the remaining values.
            yield replace(one, value=one.value[rows], tie=one.tie[rows], rows=rows)
        yield from CaptionChoice().score(scored)


@dataclass(frozen=True)
class ImageChoice(ScoringProtocol):
    """Columns `image`, `candidates` and `caption`: the caption's own image against the others of its set.

    The images of a set are those of the rows with the same name in `candidates`, each distinct one counted once. A row
    without a caption is a candidate only.
    """

    metric_names = ("image choice",)
    optional_texts = ("caption",)

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metric "image choice"; chance is 1/K among K images."""
        found, columns = embedded.images["image"], embedded.items.rows
        rivals = _rivals(columns["candidates"][:], found.index)
        asked = np.array([bool(text) for text in columns["caption"]])
        # A row whose set shows no other image leaves nothing to choose.
        rows = np.flatnonzero(asked & (rivals >= 0).any(axis=1))
        outcomes = []
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            part = rows[start : start + ROWS_AT_A_TIME]
            text, mask = embedded.text("caption", part), rivals[part] >= 0
            # Missing rivals get some vector, which the mask excludes.
            other = found.vectors[np.where(mask, rivals[part], 0)]
            outcomes.append(choose(pair_scores(text, embedded.image("image", part)), pair_scores(text, other), mask))
        outcome = concatenated(outcomes)
        chance = 1 / (1 + (rivals[rows] >= 0).sum(axis=1))
        yield Measured("image choice", outcome.correct, outcome.tie, chance, rows=rows)


def _rivals(names: list[str], image: NDArray[np.integer]) -> NDArray[np.integer]:
    """`[n, K]`, the other images of each row's set; -1 where it has fewer than K."""
    of_set = np.unique(np.asarray(names, dtype=object), return_inverse=True)[1]
    # An image that several rows of a set show is one candidate.
    members = [np.unique(image[of_set == number]) for number in range(int(of_set.max(initial=-1)) + 1)]
    found = np.full((len(names), max(1, *map(len, members))), -1)
    for row, number in enumerate(of_set):
        others = members[number][members[number] != image[row]]
        found[row, : len(others)] = others
    return found
