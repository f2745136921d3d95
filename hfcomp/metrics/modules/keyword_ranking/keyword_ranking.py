"""Keyword ranking, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hfcomp.metrics import keyword_ranking
from hfcomp.metrics.choice import TieRule
from hfcomp.metrics.ragged import finite, padded
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
Where a true caption ranks among copies of it with another keyword (colour, object, place, size). Alternatives that
score as high stand before it, so that a constant scorer gets 0.
"""
_INPUTS = """
Args:
    true_score: score of each image with its caption.
    other_scores: for each image a list of its scores with the alternatives, one or more; lists may differ in length.
    tie: what a tie with the best alternative is worth for accuracy: "wrong" (default), "half" or "win".

Returns:
    accuracy: share of images whose caption is strictly first, 0 to 1.
    tie_rate: share of images whose best alternative scores as high, 0 to 1.
    chance: accuracy of random scores, the mean of 1 / candidates.
    mean_rank: from 1; the last place for a constant scorer.
    reciprocal_rank: mean of 1 / rank, where an image whose candidates all score the same counts 0.
    reciprocal_rank_chance: the same of random scores.
    num_items: number of images.
"""
_CITATION = """
@article{roesch2024enhancing,
  title={Enhancing Conceptual Understanding in Multimodal Contrastive Learning through Hard Negative Samples},
  author={Rösch, Philipp J. and Oswald, Norbert and Geierhos, Michaela and Libovický, Jindřich},
  journal={arXiv preprint arXiv:2403.02875},
  year={2024}
}
"""


class KeywordRanking(evaluate.Metric):
    """`hfcomp.metrics.keyword_ranking.keyword_ranking`."""

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
        found = keyword_ranking.keyword_ranking(finite(true_score), *padded(other_scores))
        return summary(found.first, found.chance, tie) | {
            "mean_rank": float(found.rank.mean()),
            "reciprocal_rank": float(found.reciprocal_rank.mean()),
            "reciprocal_rank_chance": float(found.reciprocal_rank_chance.mean()),
            "num_items": len(true_score),
        }
