"""What a search judges a model by: one number from its outcomes, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from hfcomp.data.columns import nearest
from hfcomp.evaluation.statistics import ImageBootstrap
from hfcomp.evaluation.statistics.summary import by_line
from hfcomp.experiments.sweep_results import MEAN, Measure, measures_of


@dataclass(frozen=True)
class Score:
    """A number.

    Attributes:
        value: mean of the lines' means, each with the same weight; a line of strata is the mean of theirs.
        low: end of a 95 % interval that draws whole images; NaN with one image.
        high: the other end.
        benchmarks: whose lines they are, as tables call them.
    """

    value: float
    low: float
    high: float
    benchmarks: tuple[str, ...] = ()


def goal_lines(items: pd.DataFrame, measure: str) -> list[tuple[str, str, str]]:
    """Benchmark, subset and metric of each line that a measure is made of.

    Args:
        items: outcomes, as `hfcomp.evaluation.engine.Report` has them.
        measure: one of `measures_of`, or a pattern with `*` of such names; `mean` itself is in no pattern.

    Raises:
        ValueError: for a measure that the evaluation does not give, naming those that it gives.
    """
    measures = {one.name: one.lines for one in measures_of(items, [])}
    if measure in measures:
        return measures[measure]
    found = [lines for name, lines in measures.items() if name != MEAN and fnmatchcase(name, measure)]
    if not found:
        known = "; ".join(measures)
        raise ValueError(f"{measure!r} is no measure of this evaluation.{nearest(measure, measures)} Known: {known}.")
    return [line for lines in found for line in lines]


def score(items: pd.DataFrame, measure: str) -> Score:
    """The value of a measure, of one model.

    Args:
        items: outcomes, one row per item and metric.
        measure: as in `goal_lines`.
    """
    lines, table = goal_lines(items, measure), by_line(items)
    mean = Measure(measure, lines)
    values, images = mean.parts(table["value"].astype(float)), mean.parts(table["image_id"])
    subsets = list(zip(values, images, strict=True))
    inside = all(((part >= 0) & (part <= 1)).all() for part in values)
    bounds = (0.0, 1.0) if inside else None
    weights = mean.shares(table["value"])
    low, high = ImageBootstrap(np.concatenate(images)).macro_interval(subsets, weights=weights, bounds=bounds)
    benchmarks = tuple(dict.fromkeys(benchmark for benchmark, _, _ in lines))
    return Score(mean.mean(table["value"]), float(low), float(high), benchmarks)
