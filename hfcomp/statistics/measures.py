"""Measures: what a number of a report is the mean of, and how reports, sweeps and searches name theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from hfcomp.metrics.units import HEADLINE_METRIC, named_with_unit, unit_of
from hfcomp.reading import nearest
from hfcomp.statistics.average import Average
from hfcomp.statistics.outcomes import Line, Outcomes

Averages = Mapping[Any, Sequence[Average]]
"""By benchmark, or by benchmark and metric."""
COMPOSITION, GENERAL = "composition", "general"
MEAN = "mean"
"""The name of the mean of the lines of composition."""
OVER_SUBSETS = Average("average")


@dataclass(frozen=True)
class Measure:
    """A mean over items of one or several lines.

    Attributes:
        name: `benchmark: subset metric`, or of a mean of several lines what a recipe calls it.
        lines: that it is of.
        weights: what each line's mean counts; by default all the same.
        pooled: whether it is the mean over the items of all lines instead.
        labels: further entries of its lines in `summarize`.
        bounds: of an item's value; by default as `summarize` finds them.
    """

    name: str
    lines: list[Line]
    weights: list[float] | None = None
    pooled: bool = False
    labels: Mapping[str, Any] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None

    @property
    def is_average(self) -> bool:
        """Whether it is an average over subsets of a benchmark."""
        return "groups" in self.labels


def line_name(line: Line) -> str:
    """`benchmark: subset metric`, without a subset that is all."""
    benchmark, subset, metric = line
    return f"{benchmark}: {metric}" if subset == "all" else f"{benchmark}: {subset} {metric}"


def line_measure(line: Line, aspect: str = COMPOSITION) -> Measure:
    """The mean of a line."""
    benchmark, subset, metric = line
    labels = {"benchmark": benchmark, "subset": subset, "metric": metric, "aspect": aspect, "average": False}
    return Measure(line_name(line), [line], labels=labels)


def mean_of_lines(name: str, lines: Sequence[Line]) -> Measure:
    """The mean of the means of lines, each with the same weight, of whatever benchmarks."""
    return Measure(name, list(lines), labels={"average": True})


def average_measure(
    average: Average, benchmark: str, metric: str, subsets: Sequence[str], aspect: str = COMPOSITION
) -> Measure:
    """An average over the subsets of a benchmark's metric."""
    groups = average.groups or tuple((subset,) for subset in subsets)
    weights: dict[Line, float] = {}
    for group in groups:
        for subset in group:
            line = benchmark, subset, metric
            weights[line] = weights.get(line, 0.0) + 1 / (len(groups) * len(group))
    label = benchmark, average.name, metric
    labels = {**line_measure(label, aspect).labels, "average": True, "pooled": average.pooled, "groups": groups}
    return Measure(line_name(label), list(weights), list(weights.values()), average.pooled, labels)


def absent_subsets(average: Average, subsets: Sequence[str]) -> list[str]:
    """The subsets that an average names and that are not there."""
    named = [subset for group in average.groups or () for subset in group]
    return [subset for subset in dict.fromkeys(named) if subset not in subsets]


def all_measures(outcomes: Outcomes, averages: Averages | None = None) -> list[Measure]:
    """The measures of a report: lines in order of appearance, each benchmark's averages before its lines.

    Args:
        outcomes: the outcomes.
        averages: each is one of every metric of its benchmark, or of that metric. One that names a subset that the
            metric lacks is left out, see `missing_averages`; so is a mean over all subsets where there is but one.
    """
    aspects, found = outcomes.aspects, []
    of_benchmark: dict[str, list[Measure]] = {}
    for (benchmark, metric), subsets in _subsets(aspects).items():
        aspect = aspects[benchmark, subsets[0], metric]
        of_benchmark.setdefault(benchmark, []).extend(
            average_measure(one, benchmark, metric, subsets, aspect)
            for one in _averages_of(averages, benchmark, metric)
            if not absent_subsets(one, subsets) and (one.groups is not None or len(subsets) > 1)
        )
    for line, aspect in aspects.items():
        found += [*of_benchmark.pop(line[0], ()), line_measure(line, aspect)]
    return found


def missing_averages(outcomes: Outcomes | pd.DataFrame, averages: Averages) -> list[dict[str, Any]]:
    """The averages that `summarize` leaves out, because items of a subset that they name are not there.

    Args:
        outcomes: as in `summarize`.
        averages: as in `summarize`.

    Returns:
        One entry per average and metric: `benchmark`, `metric`, `average` and `absent`, the names of the subsets.
    """
    return [
        {"benchmark": benchmark, "metric": metric, "average": average.name, "absent": absent}
        for (benchmark, metric), subsets in _subsets(Outcomes.of(outcomes).aspects).items()
        for average in _averages_of(averages, benchmark, metric)
        if (absent := absent_subsets(average, subsets))
    ]


def usable_averages(outcomes: Outcomes, declared: Mapping[str, Sequence[Average]]) -> dict[Any, list[Average]]:
    """The averages of a report: a benchmark's own whose subsets are all present, else the mean over subsets.

    Args:
        outcomes: the outcomes.
        declared: those in use, by title of the benchmark.

    Returns:
        By benchmark and metric, for each metric of several subsets.
    """
    return {
        (benchmark, metric): [one for one in declared.get(benchmark, ()) if not absent_subsets(one, subsets)]
        or [OVER_SUBSETS]
        for (benchmark, metric), subsets in _subsets(outcomes.aspects).items()
        if len(subsets) > 1
    }


def _subsets(lines: Mapping[Line, str]) -> dict[tuple[str, str], list[str]]:
    """The subsets of each benchmark and metric."""
    found: dict[tuple[str, str], list[str]] = {}
    for benchmark, subset, metric in lines:
        found.setdefault((benchmark, metric), []).append(subset)
    return found


def _averages_of(averages: Averages | None, benchmark: str, metric: str) -> list[Average]:
    known = averages or {}
    return [*known.get(benchmark, ()), *known.get((benchmark, metric), ())]


def find_measure(name: str, known: Mapping[str, Measure], *, where: str) -> Measure:
    """A measure by its name, or the mean of all lines that a pattern with `*` matches.

    Args:
        name: of a measure, or a pattern.
        known: by name.
        where: what the error calls the place that names it.

    Raises:
        ValueError: for one that is not scored, with the nearest name and those that are.
    """
    if name in known:
        return known[name]
    fitting = [
        one.lines[0]
        for own, one in known.items()
        if own == one.name and len(one.lines) == 1 and not one.is_average and fnmatchcase(own, name)
    ]
    if not fitting:
        raise ValueError(
            f"{where}: {name!r} is not scored by this evaluation.{nearest(name, known)} Known: {'; '.join(known)}."
        )
    return mean_of_lines(name, fitting)


def primary_measure(
    outcomes: Outcomes | pd.DataFrame, name: str | None, declared: Mapping[str, Sequence[Average]]
) -> Measure | None:
    """The primary endpoint of a recipe.

    Args:
        outcomes: of the base at least.
        name: `benchmark: metric`, the first average over its subsets, `benchmark: subset metric`, where the subset may
            be an average's name, or a pattern of lines. Unset: the strictest metric of the first benchmark of
            composition that has one, over its subsets.
        declared: averages in use, by title of the benchmark.

    Returns:
        `None` where no name is given and nothing of composition is scored.

    Raises:
        ValueError: as `find_measure`, and for a pattern that fits metrics of different units.
    """
    outcomes = Outcomes.of(outcomes)
    if name is None:
        composition = [line for line, aspect in outcomes.aspects.items() if aspect == COMPOSITION]
        chosen = [line for line in composition if line[2] == HEADLINE_METRIC] or composition
        if not chosen:
            return None
        name = f"{chosen[0][0]}: {chosen[0][2]}"
    measures = all_measures(outcomes, usable_averages(outcomes, declared))
    known: dict[str, Measure] = {}
    for one in sorted(measures, key=lambda one: not one.is_average):
        # of averages the first; of a single subset its line
        short = f"{one.labels['benchmark']}: {one.labels['metric']}"
        for key in (short, one.name) if one.is_average else (one.name, short):
            known.setdefault(key, one)
    measure = find_measure(name, known, where="primary")
    if len({unit_of(line[2]) for line in measure.lines}) > 1:
        names = "; ".join(dict.fromkeys(named_with_unit(line[2]) for line in measure.lines))
        raise ValueError(
            f"primary: {name!r} fits metrics of different units, whose mean says nothing: {names}. Name one of them."
        )
    return measure


def headline_measures(
    outcomes: Outcomes, benchmarks: Sequence[str] = (), primary: Measure | None = None
) -> list[Measure]:
    """The lines of composition (of a benchmark the `group` ones where it has any), and the general ones.

    Args:
        outcomes: the outcomes.
        benchmarks: those that are shown; none means all.
        primary: stands first, whatever the benchmarks. Without one, the mean of the lines of composition follows them.

    Raises:
        ValueError: for a benchmark that was not evaluated.
    """
    aspects = outcomes.aspects
    titles = list(dict.fromkeys(line[0] for line in aspects))
    for name in benchmarks:
        if name not in titles:
            raise ValueError(
                f"benchmarks: {name!r} was not evaluated. Known: {', '.join(titles)}. Fix the sweep's file."
            )
    shown = [line_measure(line, aspect) for line, aspect in aspects.items() if line[0] in (benchmarks or titles)]
    composition, general = ([one for one in shown if one.labels["aspect"] == kind] for kind in (COMPOSITION, GENERAL))
    strict = {one.labels["benchmark"] for one in composition if one.labels["metric"] == HEADLINE_METRIC}
    kept = [
        one for one in composition if one.labels["metric"] == HEADLINE_METRIC or one.labels["benchmark"] not in strict
    ]
    if primary is not None:
        return [primary, *(one for one in (*kept, *general) if one.name != primary.name)]
    mean = [mean_of_lines(MEAN, [one.lines[0] for one in kept])] if len(kept) > 1 else []
    return [*kept, *mean, *general]


def search_measure(outcomes: Outcomes, name: str) -> Measure:
    """What a search judges a model by: one of `headline_measures`, or a pattern of their lines.

    Raises:
        ValueError: as `find_measure`.
    """
    return find_measure(name, {one.name: one for one in headline_measures(outcomes)}, where="measure")
