"""Brittleness, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hfcomp.metrics import brittleness
from hfcomp.metrics.choice import TieRule
from hfcomp.metrics.ragged import finite
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
A caption, a hard positive (other words, same meaning) and a hard negative: whether the first, and the first two, score
strictly higher than the negative, and how often the negative is between them. A constant scorer gets 0.
"""
_INPUTS = """
Args:
    caption, hard_positive, hard_negative: score of each image with each of the three texts.
    tie: what a tie is worth for the two accuracies: "wrong" (default), "half" or "win".

Returns:
    original_accuracy: the caption scores strictly higher than the negative, 0 to 1.
    augmented_accuracy: the caption and the hard positive both do, 0 to 1.
    brittleness: the negative scores strictly between them, 0 to 1; lower is better.
    original_tie_rate, augmented_tie_rate, brittleness_tie_rate: share of items that ties decide.
    original_chance, augmented_chance, brittleness_chance: of random scores.
    num_items: number of items.
"""
_CITATION = """
@inproceedings{kamath2024hard,
  title={The Hard Positive Truth about Vision-Language Compositionality},
  author={Kamath, Amita and Hsieh, Cheng-Yu and Chang, Kai-Wei and Krishna, Ranjay},
  booktitle={ECCV},
  year={2024}
}
"""
_COLUMNS = ("caption", "hard_positive", "hard_negative")


class Brittleness(evaluate.Metric):
    """`hfcomp.metrics.brittleness.brittleness`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("float64") for name in _COLUMNS}),
        )

    def _compute(
        self,
        caption: list[float],
        hard_positive: list[float],
        hard_negative: list[float],
        tie: TieRule = "wrong",
    ) -> dict[str, Any]:
        found = brittleness.brittleness(*(finite(column) for column in (caption, hard_positive, hard_negative)))
        chance = brittleness.CHANCE
        return {
            **summary(found.original, chance["original"], tie, prefix="original_"),
            **summary(found.augmented, chance["augmented"], tie, prefix="augmented_"),
            "brittleness": found.brittle.accuracy,
            "brittleness_tie_rate": found.brittle.tie_rate,
            "brittleness_chance": chance["brittle"],
            "num_items": len(caption),
        }
