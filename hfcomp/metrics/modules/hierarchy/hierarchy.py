"""Precision, recall and order on a hierarchy of captions, as a module of `evaluate`."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from hfcomp.metrics import hierarchy
from hfcomp.metrics.ragged import finite

_DESCRIPTION = """
Four captions of each image from general to specific: which are retrieved when texts are let in by their distance from
the empty text, and whether the distances follow the levels. A constant scorer gets 0 in all three.
"""
_INPUTS = """
Args:
    image: embedding of each image, a list of numbers of length 1 (L2-normalised).
    text: for each image a list of the embeddings of its four captions, the most general first.
    captions: for each image the list of the four captions; equal ones count as one text.
    root: embedding of the empty text.
    thresholds: number of distances, 50 by default.

Returns:
    precision: share of the retrieved texts that are the image's own, mean of images, 0 to 1.
    recall: share of the four captions that are retrieved, mean of images, 0 to 1.
    rank_correlation: Kendall's tau of the levels with the distances, mean of images, -1 to 1; chance is 0.
    tie_rate: share of images at which some retrieval is a tie, which retrieves a wrong text.
    precision_chance, recall_chance: of random scores, given the distances.
    num_items: number of images.
"""
_CITATION = """
@inproceedings{alper2024hierarcaps,
  title={Emergent Visual-Semantic Hierarchies in Image-Text Representations},
  author={Alper, Morris and Averbuch-Elor, Hadar},
  booktitle={ECCV},
  year={2024}
}
"""


class Hierarchy(evaluate.Metric):
    """`hfcomp.metrics.hierarchy.hierarchy`."""

    def _info(self) -> evaluate.MetricInfo:
        vector = datasets.List(datasets.Value("float64"))
        columns = {
            "image": vector,
            "text": datasets.List(vector),
            "captions": datasets.List(datasets.Value("string")),
        }
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS,
            features=datasets.Features(columns),
        )

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
            raise ValueError(f"captions: rows of {sorted(levels)} captions, expected {hierarchy.LEVELS} in each.")
        identity = np.unique(np.asarray(captions), return_inverse=True)[1].reshape(-1, hierarchy.LEVELS)
        found = hierarchy.hierarchy(finite(image), finite(text), finite(root), identity, thresholds=thresholds)
        return {
            "precision": float(found.precision.mean()),
            "recall": float(found.recall.mean()),
            "rank_correlation": float(found.rank_correlation.mean()),
            "tie_rate": float(found.tie.mean()),
            "precision_chance": found.precision_chance,
            "recall_chance": found.recall_chance,
            "num_items": len(image),
        }
