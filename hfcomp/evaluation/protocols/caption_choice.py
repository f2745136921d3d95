"""Caption choice: do the true captions of an image score strictly higher than the false ones?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics import two_positive
from hfcomp.metrics.brittleness import CHANCE as BRITTLENESS_CHANCE
from hfcomp.metrics.brittleness import BrittlenessOutcome, brittleness
from hfcomp.metrics.choice import ChoiceOutcome, choose, pair_scores
from hfcomp.metrics.keyword_ranking import keyword_ranking


def concatenate(parts: Sequence[Any]) -> Any:
    """Concatenates outcomes of consecutive rows; works for any dataclass whose fields are arrays or such outcomes."""
    if not parts:
        return ChoiceOutcome(np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    joined = {field.name: concatenate([getattr(part, field.name) for part in parts]) for field in fields(parts[0])}
    return replace(parts[0], **joined)


CHANCE = 0.5
CHOICE_PAIRS = ("image", "caption"), ("image", "negative_captions")


def caption_choice(
    image: NDArray[np.float32],
    caption: NDArray[np.float32],
    negative: NDArray[np.float32],
    mask: NDArray[np.bool_] | None = None,
) -> ChoiceOutcome:
    """Scores items by cosine in fp32. A tie is wrong and counted, as in SugarCrepe's own script.

    Returns:
        Correct and tied items. Chance is 1/2 for one negative and 1/(K + 1) for K.
    """
    negative = negative[:, None] if negative.ndim == 2 else negative
    return choose(pair_scores(image, caption), pair_scores(image, negative), mask)


@dataclass(frozen=True)
class CaptionChoice(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`: [`caption_choice`] in every row, with one or more negatives."""

    metric_names = ("caption choice",)
    texts = ("caption", "negative_captions")
    row_pairs = CHOICE_PAIRS

    def text_choice(self, items: BenchmarkData) -> CaptionChoice:
        return self

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        outcomes, chances = [], []
        for rows in scored.parts():
            negative, mask = scored.list_scores("image", "negative_captions", rows)
            outcomes.append(choose(scored.scores("image", "caption", rows), negative, mask))
            # Per row, because rows may have different numbers of negatives.
            chances.append(1 / (1 + mask.sum(axis=1)))
        outcome = concatenate(outcomes)
        yield Measured("caption choice", outcome.correct, outcome.tie, np.concatenate(chances))


@dataclass(frozen=True)
class JointChoice(CaptionChoice):
    """[`CaptionChoice`] in every row, and jointly for the rows with the same subset and value of a column.

    A model that prefers one caption for every image is right in one row of each set, but in no set.

    Attributes:
        groups: Columns, each with the number of rows in a group. Groups that lack rows are not scored, but noted.
    """

    groups: tuple[tuple[str, int], ...] = (("pair", 2), ("set", 4))

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        for column, size in self.groups:
            short = sum(len(rows) != size for rows in _group_rows(items, column).values())
            if short:
                yield f"{column} accuracy leaves out {short:,} groups that do not have {size} rows"

    @property
    def metric_names(self) -> tuple[str, ...]:
        return (*super().metric_names, *(f"{column} accuracy" for column, _ in self.groups))

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """Yields "caption choice", then for each column its name and "accuracy", with one entry per group."""
        for single in super().score(scored):
            yield single
            chance = np.broadcast_to(single.chance, len(single.value))
            for column, size in self.groups:
                groups = {name: rows for name, rows in _group_rows(scored.items, column).items() if len(rows) == size}
                rows = np.array(list(groups.values()), dtype=np.intp).reshape(-1, size)
                correct = single.value[rows].all(axis=1)
                # A group is tied if it would be right if all ties in its rows were wins.
                tie = (single.value | single.tie)[rows].all(axis=1) & ~correct
                names = [name for _, name in groups]
                # A random scorer is right in each row independently, so the chances multiply.
                yield Measured(
                    f"{column} accuracy", correct, tie, chance[rows].prod(axis=1), rows=rows[:, 0], items=names
                )


def _group_rows(items: BenchmarkData, column: str) -> dict[tuple[str, str], list[int]]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, name in enumerate(zip(items.rows["subset"][:], items.rows[column][:], strict=True)):
        groups[name].append(row)
    return groups


@dataclass(frozen=True)
class KeywordRanking(ScoringProtocol):
    """Columns `image`, `caption`, `negative_captions`: the caption with every other keyword of its list.

    Attributes:
        metrics: Reported metrics, among "top-1" and "reciprocal rank".
    """

    texts = ("caption", "negative_captions")
    row_pairs = CHOICE_PAIRS

    metrics: tuple[str, ...] = ("top-1", "reciprocal rank")

    @property
    def metric_names(self) -> tuple[str, ...]:
        return self.metrics

    def text_choice(self, items: BenchmarkData) -> KeywordRanking | None:
        return replace(self, metrics=("top-1",)) if "top-1" in self.metrics else None

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """Yields "top-1" and "reciprocal rank" (Rösch et al. 2024, section 3.3; the rank is our addition)."""
        outcomes = []
        for rows in scored.parts():
            true = scored.scores("image", "caption", rows)
            outcomes.append(keyword_ranking(true, *scored.list_scores("image", "negative_captions", rows)))
        whole = concatenate(outcomes)
        if "top-1" in self.metrics:
            yield Measured("top-1", whole.first.correct, whole.first.tie, whole.chance)
        if "reciprocal rank" in self.metrics:
            untied = np.zeros(len(whole.rank), dtype=bool)
            yield Measured("reciprocal rank", whole.reciprocal_rank, untied, whole.reciprocal_rank_chance)


METRICS = {"original": "original accuracy", "augmented": "augmented accuracy", "brittle": "brittleness"}
"""Names in tables, from Kamath et al. 2024, section 4.1. Lower is better only for brittleness."""


@dataclass(frozen=True)
class Brittleness(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions` (the first) and `negative_captions`.

    As in the authors' script, the original accuracy compares the caption with its own negative, the first one. The
    other two metrics compare the caption and the rewording with the rewording's negative, the last one.
    """

    metric_names = tuple(METRICS.values())
    texts = ("caption", "positive_captions", "negative_captions")
    row_pairs = (*CHOICE_PAIRS[:1], ("image", "positive_captions"), *CHOICE_PAIRS[1:])

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        whole = concatenate([_outcome(scored, rows) for rows in scored.parts()])
        for part, metric in METRICS.items():
            outcome = getattr(whole, part)
            yield Measured(metric, outcome.correct, outcome.tie, BRITTLENESS_CHANCE[part])


def _outcome(scored: ScoredItems, rows: slice) -> BrittlenessOutcome:
    own, reworded = (scored.scores("image", column, rows) for column in ("caption", "positive_captions"))
    negatives, present = scored.list_scores("image", "negative_captions", rows)
    item = np.arange(len(own))
    # An item whose negatives are equal has a single one, which is both first and last.
    first, last = present.argmax(axis=1), present.shape[1] - 1 - present[:, ::-1].argmax(axis=1)
    outcome = brittleness(own, reworded, negatives[item, last])
    return replace(outcome, original=brittleness(own, reworded, negatives[item, first]).original)


@dataclass(frozen=True)
class TwoPositiveChoice(ScoringProtocol):
    """Columns `image`, `caption`, `positive_captions`, `negative_captions`; the first of each list is used.

    A row without an image is scored only on its texts.
    """

    metric_names = ("image-to-text", "text only")
    texts = ("caption", "positive_captions", "negative_captions")
    row_pairs = (*CHOICE_PAIRS[:1], ("image", "positive_captions"), *CHOICE_PAIRS[1:])
    needs_images = False
    beyond_pairs = "text only"

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol:
        """Returns the metric "image-to-text"; the other metric compares only texts."""
        return _ImageToText()

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        """Yields both strict comparisons, see `hfcomp.metrics.two_positive`; "text only" needs embeddings."""
        seen = np.flatnonzero(scored.seen("image"))
        if len(seen):
            pairs = self.row_pairs
            parts = [[scored.scores(*pair, rows) for pair in pairs] for rows in scored.parts()]
            outcome = concatenate([two_positive.image_to_text(*part) for part in parts])
            yield Measured("image-to-text", outcome.correct[seen], outcome.tie[seen], two_positive.CHANCE, rows=seen)
        if isinstance(scored, EmbeddedItems):
            parts = (map(partial(scored.text, rows=rows), self.texts) for rows in scored.parts())
            outcome = concatenate([_text_only(*part) for part in parts])
            yield Measured("text only", outcome.correct, outcome.tie, two_positive.CHANCE)


def _text_only(
    caption: NDArray[np.float32], paraphrase: NDArray[np.float32], negative: NDArray[np.float32]
) -> ChoiceOutcome:
    return two_positive.text_only(
        pair_scores(caption, paraphrase), pair_scores(caption, negative), pair_scores(paraphrase, negative)
    )


class _ImageToText(TwoPositiveChoice):
    """The metric of [`TwoPositiveChoice`] that uses the image."""

    def score(self, scored: ScoredItems) -> Iterator[Measured]:
        yield from (measured for measured in super().score(scored) if measured.metric == "image-to-text")
