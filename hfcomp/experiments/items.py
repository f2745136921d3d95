"""The table of outcomes: one row per item, metric and model, from which every number of a report is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome
from hfcomp.metrics.retrieval import rank_bounds

COMPOSITION = "composition"
GENERAL = "general"


def item_table(
    benchmark: str,
    metric: str,
    *,
    aspect: str,
    chance: float,
    subsets: Sequence[str] | str,
    items: Sequence[str],
    images: Sequence[str],
    value: NDArray[Any],
    tie: NDArray[Any] | None = None,
) -> pd.DataFrame:
    """Outcomes of one metric.

    Args:
        benchmark: name in tables.
        metric: name in tables.
        aspect: `COMPOSITION` (what a method is to gain) or `GENERAL` (what it may forget).
        chance: of a random scorer, 0 to 1.
        subsets: `[n]`, or one for all.
        items: `[n]`, names, unique within a subset.
        images: `[n]`, what items are clustered by.
        value: `[n]`, 0 or 1.
        tie: `[n]` bool; by default none is one.

    Returns:
        Columns `benchmark`, `subset`, `metric`, `aspect`, `chance`, `item`, `image_id`, `value`, `tie`.
    """
    none = np.zeros(len(items), dtype=bool)
    columns = {"item": items, "image_id": images, "value": value.astype(float), "tie": none if tie is None else tie}
    table = pd.DataFrame(columns).assign(benchmark=benchmark, metric=metric, aspect=aspect, chance=chance)
    return table.assign(subset=subsets)


def choice_table(benchmark: str, metric: str, outcome: ChoiceOutcome, **columns: Any) -> pd.DataFrame:
    """`item_table` of a choice."""
    return item_table(benchmark, metric, value=outcome.correct, tie=outcome.tie, **columns)


def retrieval_table(
    benchmark: str,
    image: NDArray[np.float32],
    text: NDArray[np.float32],
    *,
    items: Sequence[str],
    images: Sequence[str],
    positive: NDArray[np.bool_] | None = None,
) -> pd.DataFrame:
    """Recall@1 in both directions.

    Args:
        benchmark: name in the table.
        image: `[n, D]`.
        text: `[n, D]`.
        items: names of the rows.
        images: names of their images.
        positive: `[n, n]`, which image (column) is right for which text (row); by default that of its own row. Chance
            is the mean share of right keys, the same in both directions.
    """
    chance = 1 / len(items) if positive is None else float(positive.mean())
    columns = {"aspect": GENERAL, "chance": chance, "subsets": "all", "items": items, "images": images}
    tables = []
    for metric, queries, keys, right in (
        ("text-to-image recall@1", text, image, positive),
        ("image-to-text recall@1", image, text, None if positive is None else positive.T),
    ):
        tables.append(choice_table(benchmark, metric, rank_bounds(queries, keys, right).within(1), **columns))
    return pd.concat(tables)
