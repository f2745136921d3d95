"""The classes of the `evaluate` modules. Each module's script imports its class, whose texts come from its card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import datasets
import evaluate
import numpy as np
from evaluate.naming import camelcase_to_snakecase

from hfcomp.metrics import brittleness, group, hierarchy, keyword_ranking, two_positive
from hfcomp.metrics.choice import TieRule, choose, finite, pad_rows, summary
from hfcomp.metrics.modules import module_card
from hfcomp.metrics.retrieval import rank_scores, recall_chance

NUMBER = datasets.Value("float64")
NUMBERS = datasets.List(NUMBER)


class CardMetric(evaluate.Metric):
    """A metric whose documentation is its card.

    Attributes:
        columns: Type of each input column.
        example: Columns and options of an initial computation, for the page of its Space.
    """

    columns: ClassVar[Mapping[str, Any]]
    example: ClassVar[Mapping[str, Any]]

    def _info(self) -> evaluate.MetricInfo:
        card = module_card(camelcase_to_snakecase(type(self).__name__))
        texts, _, rest = card.partition("```python")
        title, start, tables = texts.partition("\n| input")
        citation = re.search(r"```bibtex\n(.*?)```", rest, re.DOTALL)
        return evaluate.MetricInfo(
            description=title.partition("\n\n")[2].strip(),
            inputs_description=(start + tables).strip(),
            citation=citation[1] if citation else "",
            # `evaluate` stores inputs in an Arrow table with these types, so lists of different lengths are an
            # ordinary column.
            features=datasets.Features(self._columns()),
        )

    def _columns(self) -> dict[str, Any]:
        return dict(self.columns)


class CaptionChoice(CardMetric):
    """`hfcomp.metrics.choice.choose` over an image's captions."""

    columns = {"true_score": NUMBER, "other_scores": NUMBERS}
    example = {"true_score": [0.9, 0.4, 0.5, 0.2], "other_scores": [[0.1], [0.3, 0.6], [0.5], [0.1, 0.0, -0.1]]}

    def _compute(
        self, true_score: list[float], other_scores: list[list[float]], tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        others, mask = pad_rows(other_scores)
        outcome = choose(finite(true_score), others, mask)
        return summary(outcome, 1 / (1 + mask.sum(axis=1)), tie) | {"num_items": len(true_score)}


class TwoPositiveChoice(CardMetric):
    """`hfcomp.metrics.two_positive`: both scores, or the one selected by the configuration."""

    parts = {
        "image_to_text": ("caption", "paraphrase", "negative"),
        "text_only": ("caption_paraphrase", "caption_negative", "paraphrase_negative"),
    }
    example = {
        "caption": [0.9, 0.9, 0.5],
        "paraphrase": [0.8, 0.2, 0.6],
        "negative": [0.3, 0.3, 0.5],
        "caption_paraphrase": [0.9, 0.7, 0.8],
        "caption_negative": [0.5, 0.8, 0.8],
        "paraphrase_negative": [0.4, 0.1, 0.2],
    }

    @property
    def _chosen_parts(self) -> tuple[str, ...]:
        if self.config_name == "default":
            return tuple(self.parts)
        if self.config_name not in self.parts:
            raise ValueError(f"configuration {self.config_name!r}: expected one of {', '.join(self.parts)}, or none.")
        return (self.config_name,)

    def _columns(self) -> dict[str, Any]:
        return {name: NUMBER for part in self._chosen_parts for name in self.parts[part]}

    def _compute(self, tie: TieRule = "wrong", **columns: list[float]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for part in self._chosen_parts:
            outcome = getattr(two_positive, part)(*(finite(columns.pop(name)) for name in self.parts[part]))
            result |= summary(outcome, two_positive.CHANCE, tie, prefix=f"{part}_")
            result["num_items"] = len(outcome.correct)
        if columns:
            raise TypeError(f"unexpected arguments {', '.join(columns)}: the only option is tie.")
        return result


class GroupScore(CardMetric):
    """`hfcomp.metrics.group.group_score`."""

    columns = dict.fromkeys(("c0_i0", "c0_i1", "c1_i0", "c1_i1"), NUMBER)
    example = {"c0_i0": [0.9, 0.9, 0.5], "c0_i1": [0.1, 0.3, 0.5], "c1_i0": [0.2, 0.7, 0.1], "c1_i1": [0.8, 0.6, 0.6]}

    def _compute(
        self, c0_i0: list[float], c0_i1: list[float], c1_i0: list[float], c1_i1: list[float], tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        outcome = group.group_score(*(finite(column) for column in (c0_i0, c0_i1, c1_i0, c1_i1)))
        result: dict[str, Any] = {}
        for name, chance in group.CHANCE.items():
            result |= summary(getattr(outcome, name), chance, tie, prefix=f"{name}_")
        return result | {"num_items": len(c0_i0)}


class RecallAtK(CardMetric):
    """`hfcomp.metrics.retrieval.rank_scores`, for ranks within k."""

    columns = {"scores": NUMBERS, "right": datasets.List(datasets.Value("int64"))}
    example = {"scores": [[0.9, 0.1, 0.3], [0.8, 0.2, 0.5], [0.4, 0.4, 0.1]], "right": [[0], [1], [1]], "k": 1}

    def _compute(
        self, scores: list[list[float]], right: list[list[int]], k: int = 1, tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        if k != int(k) or k < 1:
            raise ValueError(f"k: found {k!r}, expected an integer of at least 1.")
        values, mask = pad_rows(scores)
        positive = np.zeros(mask.shape, dtype=bool)
        for row, (indices, keys) in enumerate(zip(right, mask.sum(axis=1), strict=True)):
            if indices and not 0 <= min(indices) <= max(indices) < keys:
                raise ValueError(
                    f"query {row} has {keys} scores, but the right keys {indices}: expected 0 to {keys - 1}."
                )
            positive[row, indices] = True
        outcome = rank_scores(values, positive, mask).within(k)
        chance = recall_chance(positive.sum(axis=1), mask.sum(axis=1), k)
        # With fewer than k wrong keys, even the worst order has a right key among the first k.
        if (chance == 1).any():
            row = int(np.flatnonzero(chance == 1)[0])
            raise ValueError(f"query {row} has fewer than k={k} wrong keys, so every scorer is correct. Lower k.")
        return summary(outcome, chance, tie, name="recall") | {"k": k, "num_items": len(scores)}


class KeywordRanking(CardMetric):
    """`hfcomp.metrics.keyword_ranking.keyword_ranking`."""

    columns = {"true_score": NUMBER, "other_scores": NUMBERS}
    example = {"true_score": [0.9, 0.4, 0.5], "other_scores": [[0.1], [0.3, 0.6, 0.2], [0.5, 0.1]]}

    def _compute(
        self, true_score: list[float], other_scores: list[list[float]], tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        ranking = keyword_ranking.keyword_ranking(finite(true_score), *pad_rows(other_scores))
        return summary(ranking.first, ranking.chance, tie) | {
            "mean_rank": float(ranking.rank.mean()),
            "reciprocal_rank": float(ranking.reciprocal_rank.mean()),
            "reciprocal_rank_chance": float(ranking.reciprocal_rank_chance.mean()),
            "num_items": len(true_score),
        }


class Hierarchy(CardMetric):
    """`hfcomp.metrics.hierarchy.hierarchy`."""

    columns = {
        "image": NUMBERS,
        "text": datasets.List(NUMBERS),
        "captions": datasets.List(datasets.Value("string")),
    }
    example = {
        "image": [[0.6, 0.8], [0.6, -0.8]],
        "text": [
            [[1.0, 0.0], [0.96, 0.28], [0.8, 0.6], [0.6, 0.8]],
            [[1.0, 0.0], [0.96, -0.28], [0.8, -0.6], [0.6, -0.8]],
        ],
        "captions": [["animal", "dog", "a brown dog", "a brown dog runs"], ["animal", "cat", "a cat", "a cat sits"]],
        "root": [1.0, 0.0],
    }

    def _compute(
        self,
        image: list[list[float]],
        text: list[list[list[float]]],
        captions: list[list[str]],
        root: list[float] | None = None,
        thresholds: int = 50,
    ) -> dict[str, Any]:
        if root is None:
            raise ValueError("compute() needs root=, the embedding of the empty text.")
        levels = {len(row) for row in captions}
        if levels != {hierarchy.LEVELS}:
            raise ValueError(f"captions: rows have {sorted(levels)} captions, expected {hierarchy.LEVELS} in each.")
        # Equal captions are one text, because an image's own text must not tie with its copy in another row.
        identity = np.unique(np.asarray(captions), return_inverse=True)[1].reshape(-1, hierarchy.LEVELS)
        outcome = hierarchy.hierarchy(finite(image), finite(text), finite(root), identity, thresholds=thresholds)
        return {
            "precision": float(outcome.precision.mean()),
            "recall": float(outcome.recall.mean()),
            "rank_correlation": float(outcome.rank_correlation.mean()),
            "tie_rate": float(outcome.tie.mean()),
            "precision_chance": outcome.precision_chance,
            "recall_chance": outcome.recall_chance,
            "num_items": len(image),
        }


class Brittleness(CardMetric):
    """`hfcomp.metrics.brittleness.brittleness`."""

    columns = dict.fromkeys(("caption", "hard_positive", "hard_negative"), NUMBER)
    example = {"caption": [0.9, 0.9, 0.2], "hard_positive": [0.8, 0.3, 0.6], "hard_negative": [0.5, 0.5, 0.4]}

    def _compute(
        self,
        caption: list[float],
        hard_positive: list[float],
        hard_negative: list[float],
        tie: TieRule = "wrong",
    ) -> dict[str, Any]:
        outcome = brittleness.brittleness(*(finite(column) for column in (caption, hard_positive, hard_negative)))
        chance = brittleness.CHANCE
        return {
            **summary(outcome.original, chance["original"], tie, prefix="original_"),
            **summary(outcome.augmented, chance["augmented"], tie, prefix="augmented_"),
            "brittleness": outcome.brittle.accuracy,
            "brittleness_tie_rate": outcome.brittle.tie_rate,
            "brittleness_chance": chance["brittle"],
            "num_items": len(caption),
        }
