"""Rows for each module of `evaluate`, of scorers whose result is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hfcomp.metrics.modules import MODULES
from tests.metrics.scorers import unit

ROWS = 3000
Scores = Callable[[bool], float]
"""A score for the right answer (True) or a wrong one (False)."""

LOWEST = {
    "caption_choice": ("accuracy",),
    "two_positive_choice": ("image_to_text_accuracy", "text_only_accuracy"),
    "group_score": ("text_accuracy", "image_accuracy", "group_accuracy"),
    "recall_at_k": ("recall",),
    "keyword_ranking": ("accuracy",),
    "hierarchy": (),
    "brittleness": ("original_accuracy", "augmented_accuracy"),
}
"""Numbers that are 1 for a perfect, 0 for an inverted and a constant and chance for a random scorer."""


def scorers(seed: int = 0) -> dict[str, Scores]:
    generator = np.random.default_rng(seed)
    return {
        "perfect": lambda right: 0.9 if right else 0.1,
        "inverted": lambda right: 0.1 if right else 0.9,
        "constant": lambda right: 0.5,
        "random": lambda right: float(generator.random()),
    }


def rows_of(name: str, score: Scores, rows: int = ROWS) -> dict[str, list[Any]]:
    """Columns of a module; lists differ in length from row to row."""

    def column(right: bool) -> list[float]:
        return [score(right) for _ in range(rows)]

    def ragged_scores() -> list[list[float]]:
        return [[score(False) for _ in range(1 + row % 4)] for row in range(rows)]

    right, wrong = True, False
    if name in ("caption_choice", "keyword_ranking"):
        return {"true_score": column(right), "other_scores": ragged_scores()}
    if name == "two_positive_choice":
        kinds = {"caption": right, "paraphrase": right, "negative": wrong}
        kinds |= {"caption_paraphrase": right, "caption_negative": wrong, "paraphrase_negative": wrong}
        return {key: column(kind) for key, kind in kinds.items()}
    if name == "group_score":
        return {"c0_i0": column(right), "c0_i1": column(wrong), "c1_i0": column(wrong), "c1_i1": column(right)}
    if name == "brittleness":
        return {"caption": column(right), "hard_positive": column(right), "hard_negative": column(wrong)}
    scores = [[*others, score(right)] for others in ragged_scores()]
    return {"scores": scores, "right": [[len(row) - 1] for row in scores]}


def hierarchy_rows(rows: int = 30) -> dict[str, Any]:
    """Random embeddings, with the option `root`."""
    return {
        "image": unit(rows, 8, seed=0).tolist(),
        "text": unit(rows, 4, 8, seed=1).tolist(),
        "captions": [["thing", *(f"{row} {level}" for level in "abc")] for row in range(rows)],
        "root": unit(8, seed=2).tolist(),
    }


def columns_and_options(name: str, rows: int = 30) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Random rows, and the options that `compute` needs."""
    if name == "hierarchy":
        columns = hierarchy_rows(rows)
        return columns, {"root": columns.pop("root")}
    return rows_of(name, scorers()["random"], rows), {}


def every() -> dict[str, tuple[dict[str, list[Any]], dict[str, Any]]]:
    return {name: columns_and_options(name) for name in MODULES}
