"""The numbers of followed embeddings: means over images with intervals, changes, and single examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.statistics import ImageBootstrap
from hfcomp.experiments.embedding_distances import PAIRS
from hfcomp.experiments.embedding_paths import BASE_STEP
from hfcomp.experiments.embedding_rows import HeldOutRows

NEAREST = "nearest"
BOUNDS = {**dict.fromkeys(PAIRS, (0.0, 2.0)), NEAREST: (0.0, 1.0)}

Tables = dict[int, pd.DataFrame]


def summarize_paths(tables: dict[str, Tables], rows: HeldOutRows, examples: int) -> dict[str, Any]:
    """Distances by variant and step, with 95 % intervals that draw whole images.

    A row's distance is the mean over its own negatives, so that every row counts the same whatever their number.

    Args:
        tables: `distances` by variant and step.
        rows: that they are of.
        examples: number of rows that are given one by one, with their first negative.

    Returns:
        Variant to `points`, `change` and `examples`. A point has `step`, and by name of `PAIRS` and `nearest` (the
        share of rows whose image is nearer to its text than to each of its negatives) `value`, `low` and `high`. The
        change is the last step minus the base, paired by row. An example has `row`, `image_id`, `caption`,
        `negative_caption` and `points`, each a step and its six distances.
    """
    bootstrap = ImageBootstrap(rows.names)
    return {variant: _of_variant(steps, rows, examples, bootstrap) for variant, steps in tables.items()}


def middle_step(steps: list[int]) -> int | None:
    """The scored step nearest to the middle of training, the earlier of two; `None` where only the end was scored."""
    between = [step for step in steps if BASE_STEP < step < steps[-1]]
    return min(between, key=lambda step: (abs(2 * step - steps[-1]), step), default=None)


def by_row(table: pd.DataFrame) -> pd.DataFrame:
    """`distances` as the mean over each row's negatives, and `nearest`, whether its text beats all of them."""
    grouped = table.groupby("row", sort=True)
    return grouped[list(PAIRS)].mean().assign(**{NEAREST: grouped["nearer"].all().astype(float)})


def _of_variant(steps: Tables, rows: HeldOutRows, examples: int, bootstrap: ImageBootstrap) -> dict[str, Any]:
    means = {step: by_row(table) for step, table in steps.items()}
    points: list[dict[str, Any]] = [{"step": step} for step in steps]
    change = {}
    for name, bounds in BOUNDS.items():
        values = np.stack([table[name].to_numpy() for table in means.values()], axis=1)  # [rows, steps]
        low, high = bootstrap.interval(values, rows.names, bounds=bounds)
        for point, *share in zip(points, values.mean(axis=0), low, high, strict=True):
            point[name] = _share(*share)
        change[name] = _change(values[:, -1] - values[:, 0], rows.names, bounds, bootstrap)
    chosen = [_example(steps, rows, row) for row in range(min(examples, len(rows)))]
    return {"points": points, "change": change, "examples": chosen}


def _change(
    values: NDArray[np.float64], names: list[str], bounds: tuple[float, float], bootstrap: ImageBootstrap
) -> dict[str, float]:
    return _share(values.mean(), *bootstrap.interval(values, names, bounds=bounds, difference=True))


def _share(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": float(value), "low": float(low), "high": float(high)}


def _example(steps: Tables, rows: HeldOutRows, row: int) -> dict[str, Any]:
    points = []
    for step, table in steps.items():
        line = table[(table["row"] == row) & (table["slot"] == 0)].iloc[0]
        points.append({"step": step, **{name: float(line[name]) for name in PAIRS}})
    texts = {"caption": rows.captions[row], "negative_caption": rows.negatives[row][0]}
    return {"row": row, "image_id": rows.names[row], **texts, "points": points}
