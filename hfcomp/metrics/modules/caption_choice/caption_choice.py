"""Caption choice, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hfcomp.metrics.choice import TieRule, choose
from hfcomp.metrics.ragged import finite, padded
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
Share of images whose true caption scores strictly higher than every false one. A constant scorer gets 0.
"""
_INPUTS = """
Args:
    true_score: score of each image with its true caption.
    other_scores: for each image a list of its scores with false captions, one or more.
    tie: what a tie with the best false caption is worth: "wrong" (default), "half" or "win".

Returns:
    accuracy: 0 to 1.
    tie_rate: share of ties, 0 to 1.
    chance: accuracy of random scores, the mean of 1 / (captions of an image).
    num_items: number of images.
"""
_CITATION = """
@inproceedings{hsieh2023sugarcrepe,
  title={SugarCrepe: Fixing Hackable Benchmarks for Vision-Language Compositionality},
  author={Hsieh, Cheng-Yu and Zhang, Jieyu and Ma, Zixian and Kembhavi, Aniruddha and Krishna, Ranjay},
  booktitle={NeurIPS Datasets and Benchmarks},
  year={2023}
}
"""


class CaptionChoice(evaluate.Metric):
    """`hfcomp.metrics.choice.choose` of one image's captions."""

    def _info(self) -> evaluate.MetricInfo:
        columns = {
            "true_score": datasets.Value("float64"),
            "other_scores": datasets.List(datasets.Value("float64")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(columns),
        )

    def _compute(
        self, true_score: list[float], other_scores: list[list[float]], tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        others, mask = padded(other_scores)
        outcome = choose(finite(true_score), others, mask)
        return summary(outcome, 1 / (1 + mask.sum(axis=1)), tie) | {"num_items": len(true_score)}
