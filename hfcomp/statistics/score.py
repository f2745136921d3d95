"""What a search judges a model by: one number from its outcomes, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from hfcomp.statistics.measures import search_measure
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.summary import summarize


@dataclass(frozen=True)
class Score:
    """A number.

    Attributes:
        value: mean of the lines' means, each with the same weight; a line of strata is the mean of theirs.
        low: end of an image-clustered bootstrap interval of 95 %; NaN with one image.
        high: the other end.
        benchmarks: whose lines they are, as tables call them.
    """

    value: float
    low: float
    high: float
    benchmarks: tuple[str, ...] = ()


def score(outcomes: Outcomes | pd.DataFrame, measure: str) -> Score:
    """The value of a measure, of one model.

    Args:
        outcomes: of the model.
        measure: as in `search_measure`.
    """
    outcomes = Outcomes.of(outcomes)
    chosen = search_measure(outcomes, measure)
    (line,) = summarize(outcomes, measures=[chosen], images="measure")
    (found,) = line["models"].values()
    benchmarks = tuple(dict.fromkeys(benchmark for benchmark, _, _ in chosen.lines))
    return Score(found["value"], found["low"], found["high"], benchmarks)
