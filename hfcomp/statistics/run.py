"""The numbers of a run: its lines and averages, its primary endpoint, the mean of its general abilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from hfcomp.statistics.measures import (
    GENERAL,
    Average,
    Measure,
    all_measures,
    mean_of_lines,
    primary_measure,
    usable_averages,
)
from hfcomp.statistics.multiplicity import correct
from hfcomp.statistics.outcomes import Outcomes
from hfcomp.statistics.summary import BASE, summarize

Result = dict[str, Any]


def summarize_run(
    outcomes: Outcomes | pd.DataFrame,
    models: list[str],
    *,
    primary: str | None,
    declared: Mapping[str, Sequence[Average]],
    planned: Sequence[tuple[str, str]] = (),
) -> tuple[list[Result], Result | None]:
    """The lines of a run, with the averages over subsets and the primary endpoint, and the mean of the general lines.

    Args:
        outcomes: of all models.
        models: in the order of the report, the method last.
        primary: as in `primary_measure`.
        declared: as in `primary_measure`.
        planned: comparisons on the primary endpoint that the run is made for, as in `correct`.

    Returns:
        Lines as `summarize` makes them; the primary one, first if it is not among the others, has
        `primary`, its name. Then the mean of general abilities, where there are several.

    Raises:
        ValueError: as `summarize` and `primary_measure`.
    """
    outcomes = Outcomes.of(outcomes)
    measure = primary_measure(outcomes, primary, declared)
    measures = all_measures(outcomes, usable_averages(outcomes, declared))
    lines = summarize(outcomes, models=models, references=models[:-1], measures=measures)
    if measure is not None:
        place = next((index for index, one in enumerate(measures) if _is_same(one, measure)), None)
        if place is None:
            own = replace(measure, labels=_labels(measure, outcomes))
            lines[:0] = summarize(outcomes, models=models, references=models[:-1], measures=[own], images="measure")
        lines[place or 0]["primary"] = measure.name
    correct(lines, planned)
    general = [line for line, aspect in outcomes.aspects.items() if aspect == GENERAL]
    if len(general) < 2:
        return lines, None
    means, known = [mean_of_lines("general average", general)], [name for name in models[:-1] if name == BASE]
    return lines, summarize(outcomes, models=models, references=known, measures=means, images="measure")[0]


def _is_same(one: Measure, other: Measure) -> bool:
    """Whether a measure of a report is the one asked for; a pattern may fit a single line."""
    return one.name == other.name or (len(other.lines) == 1 and not one.is_average and one.lines == other.lines)


def _labels(measure: Measure, outcomes: Outcomes) -> dict[str, Any]:
    """A mean of lines of several metrics or benchmarks, labelled as a line."""
    benchmarks = list(dict.fromkeys(line[0] for line in measure.lines))
    aspect = next(aspect for line, aspect in outcomes.aspects.items() if line[0] in benchmarks)
    return {
        "benchmark": ", ".join(benchmarks),
        "subset": f"average of {len(measure.lines)} lines",
        "metric": measure.name.partition(": ")[2] or measure.name,
        "aspect": aspect,
        **measure.labels,
    }
