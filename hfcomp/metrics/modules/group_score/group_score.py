"""Group score, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hfcomp.metrics import group
from hfcomp.metrics.choice import TieRule
from hfcomp.metrics.ragged import finite
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
Two images and their two captions: whether each image prefers its own caption (text), each caption its own image
(image), and both (group), by strict comparisons. A constant scorer gets 0 in all three.
"""
_INPUTS = """
Args:
    c0_i0, c1_i1: scores of the captions with their own images.
    c0_i1: score of caption 0 with image 1.
    c1_i0: score of caption 1 with image 0.
    tie: what a tie is worth: "wrong" (default), "half" or "win".

Returns:
    text_accuracy, image_accuracy, group_accuracy: 0 to 1.
    text_tie_rate, image_tie_rate, group_tie_rate: share of items that ties decide, 0 to 1.
    text_chance, image_chance, group_chance: of random scores.
    num_items: number of items.
"""
_CITATION = """
@inproceedings{thrush2022winoground,
  title={Winoground: Probing Vision and Language Models for Visio-Linguistic Compositionality},
  author={Thrush, Tristan and Jiang, Ryan and Bartolo, Max and Singh, Amanpreet and Williams, Adina and
          Kiela, Douwe and Ross, Candace},
  booktitle={CVPR},
  year={2022}
}
"""
_COLUMNS = ("c0_i0", "c0_i1", "c1_i0", "c1_i1")


class GroupScore(evaluate.Metric):
    """`hfcomp.metrics.group.group_score`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("float64") for name in _COLUMNS}),
        )

    def _compute(
        self,
        c0_i0: list[float],
        c0_i1: list[float],
        c1_i0: list[float],
        c1_i1: list[float],
        tie: TieRule = "wrong",
    ) -> dict[str, Any]:
        outcome = group.group_score(*(finite(column) for column in (c0_i0, c0_i1, c1_i0, c1_i1)))
        result: dict[str, Any] = {}
        for name, chance in group.CHANCE.items():
            result |= summary(getattr(outcome, name), chance, tie, prefix=f"{name}_")
        return result | {"num_items": len(c0_i0)}
