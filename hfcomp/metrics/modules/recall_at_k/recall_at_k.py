"""Recall at k, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from hfcomp.metrics.choice import TieRule
from hfcomp.metrics.ragged import padded
from hfcomp.metrics.retrieval import rank_scores, recall_chance
from hfcomp.metrics.summary import summary

_DESCRIPTION = """
Share of queries with a right key among their first k. A key that scores as high as the best right one stands before
it, so that a constant scorer gets 0.
"""
_INPUTS = """
Args:
    scores: for each query the list of its scores with all keys; lists may differ in length.
    right: for each query the list of the indices of the right keys, from 0, one or more.
    k: a whole number, at least 1 (default).
    tie: what a tie is worth: "wrong" (default), "half" or "win".

Returns:
    recall: 0 to 1.
    tie_rate: share of queries whose ties decide whether a right key is among the first k, 0 to 1.
    chance: recall of random scores.
    k: as given.
    num_items: number of queries.
"""
_CITATION = ""


class RecallAtK(evaluate.Metric):
    """`hfcomp.metrics.retrieval.rank_scores`, the ranks within k."""

    def _info(self) -> evaluate.MetricInfo:
        columns = {
            "scores": datasets.List(datasets.Value("float64")),
            "right": datasets.List(datasets.Value("int64")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(columns),
        )

    def _compute(
        self, scores: list[list[float]], right: list[list[int]], k: int = 1, tie: TieRule = "wrong"
    ) -> dict[str, Any]:
        if k != int(k) or k < 1:
            raise ValueError(f"k={k!r}: expected a whole number of at least 1.")
        values, mask = padded(scores)
        positive = np.zeros(mask.shape, dtype=bool)
        for row, (indices, keys) in enumerate(zip(right, mask.sum(axis=1), strict=True)):
            if indices and not 0 <= min(indices) <= max(indices) < keys:
                raise ValueError(
                    f"query {row} has {keys} scores and the right keys {indices}: expected 0 to {keys - 1}."
                )
            positive[row, indices] = True
        outcome = rank_scores(values, positive, mask).within(k)
        chance = recall_chance(positive.sum(axis=1), mask.sum(axis=1), k)
        if (chance == 1).any():
            row = int(np.flatnonzero(chance == 1)[0])
            raise ValueError(f"query {row} has fewer than k={k} wrong keys, so every scorer is correct: lower k.")
        return summary(outcome, chance, tie, name="recall") | {"k": k, "num_items": len(scores)}
