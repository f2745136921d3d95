"""Two-positive choice, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hfcomp.metrics import two_positive
from hfcomp.metrics.choice import TieRule
from hfcomp.metrics.ragged import finite
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
Two true captions worded differently and a false one: with the image, both true ones score strictly higher; without it,
the true ones are strictly closer to each other than to the false one. A constant scorer gets 0 in both.
"""
_INPUTS = """
Args:
    caption, paraphrase, negative: score of each image with its true caption, the other true caption, the false one.
    caption_paraphrase, caption_negative, paraphrase_negative: cosines of the texts of each row.
    tie: what a tie is worth: "wrong" (default), "half" or "win".
The configuration "image_to_text" takes the first three columns only, "text_only" the last three.

Returns:
    image_to_text_accuracy, image_to_text_tie_rate, image_to_text_chance: 0 to 1, of the first three columns.
    text_only_accuracy, text_only_tie_rate, text_only_chance: 0 to 1, of the last three.
    num_items: number of rows.
"""
_CITATION = """
@inproceedings{dumpala2024sugarcrepepp,
  title={SugarCrepe++ Dataset: Vision-Language Model Sensitivity to Semantic and Lexical Alterations},
  author={Dumpala, Sri Harsha and Jaiswal, Aman and Sastry, Chandramouli and Milios, Evangelos and
          Oore, Sageev and Sajjad, Hassan},
  booktitle={NeurIPS Datasets and Benchmarks},
  year={2024}
}
"""
_COLUMNS = {
    "image_to_text": ("caption", "paraphrase", "negative"),
    "text_only": ("caption_paraphrase", "caption_negative", "paraphrase_negative"),
}
_SCORES = {"image_to_text": two_positive.image_to_text, "text_only": two_positive.text_only}


class TwoPositiveChoice(evaluate.Metric):
    """`hfcomp.metrics.two_positive`: both scores, or the one that the configuration names."""

    @property
    def _parts(self) -> tuple[str, ...]:
        if self.config_name == "default":
            return tuple(_COLUMNS)
        if self.config_name not in _COLUMNS:
            raise ValueError(f"configuration {self.config_name!r}: expected one of {', '.join(_COLUMNS)}, or none.")
        return (self.config_name,)

    def _info(self) -> evaluate.MetricInfo:
        names = [name for part in self._parts for name in _COLUMNS[part]]
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features({name: datasets.Value("float64") for name in names}),
        )

    def _compute(self, tie: TieRule = "wrong", **columns: list[float]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for part in self._parts:
            outcome = _SCORES[part](*(finite(columns.pop(name)) for name in _COLUMNS[part]))
            result |= summary(outcome, two_positive.CHANCE, tie, prefix=f"{part}_")
            result["num_items"] = len(outcome.correct)
        if columns:
            raise TypeError(f"unexpected {', '.join(columns)}: the only option is tie.")
        return result
