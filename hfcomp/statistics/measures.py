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
"""By benchmark, or by benchmark and metric; those over several benchmarks by where they are published."""
Pool = tuple[Line, ...]
"""Lines whose items are averaged as those of one."""
COMPOSITION, GENERAL = "composition", "general"
MEAN = "mean"
"""The name of the mean of the lines of composition."""
OVER_SUBSETS = Average("average")


@dataclass(frozen=True)
class Measure:
    """A mean of means over items, each of a line or of several as one.

    Attributes:
        name: `benchmark: subset metric`, or a recipe's name for a mean of several lines.
        weights: What each pool's mean counts. By default all the same.
        labels: Further entries of its lines in `summarize`.
        bounds: Smallest and largest value of an item. By default as `summarize` finds them.
    """

    name: str
    pools: list[Pool]
    weights: list[float] | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None

    @property
    def lines(self) -> list[Line]:
        return list(dict.fromkeys(line for pool in self.pools for line in pool))

    @property
    def is_average(self) -> bool:
        """Whether it is an average over subsets of a benchmark."""
        return "groups" in self.labels


def line_name(line: Line) -> str:
    """`benchmark: subset metric`, without a subset that is all."""
    benchmark, subset, metric = line
    return f"{benchmark}: {metric}" if subset == "all" else f"{benchmark}: {subset} {metric}"


def line_measure(line: Line, aspect: str = COMPOSITION) -> Measure:
    benchmark, subset, metric = line
    labels = {"benchmark": benchmark, "subset": subset, "metric": metric, "aspect": aspect, "average": False}
    return Measure(line_name(line), [(line,)], labels=labels)


def mean_of_lines(name: str, lines: Sequence[Line]) -> Measure:
    """The mean of the means of lines, each with the same weight, of whatever benchmarks."""
    return Measure(name, [(line,) for line in dict.fromkeys(lines)], labels={"average": True})


def average_measure(
    average: Average, benchmark: str, metric: str, subsets: Sequence[str], aspect: str = COMPOSITION
) -> Measure:
    """An average over the subsets of a benchmark's metric."""
    groups = average.groups or tuple((subset,) for subset in subsets)
    label = benchmark, average.name, metric
    labels = {**line_measure(label, aspect).labels, "average": True, "pooled": average.pooled, "groups": groups}
    parts = [[line_measure((benchmark, subset, metric)) for subset in group] for group in groups]
    return _mean_of_groups(line_name(label), parts, labels, pooled=average.pooled)


def _mean_of_groups(
    name: str, groups: Sequence[Sequence[Measure]], labels: Mapping[str, Any], *, pooled: bool = False
) -> Measure:
    """The mean of groups, each the mean of measures; or that over all their items."""
    # Means of means of means are one weighted mean of lines, and a weighted mean is what the bootstrap and the tests
    # take. A line that is in several groups counts in each.
    weights: dict[Pool, float] = {}
    for group in groups:
        for part in group:
            own = part.weights or [1.0] * len(part.pools)
            for pool, weight in zip(part.pools, own, strict=True):
                share = weight / sum(own)
                weights[pool] = weights.get(pool, 0.0) + share / (len(groups) * len(group))
    if pooled:
        return Measure(name, [tuple(dict.fromkeys(line for pool in weights for line in pool))], labels=labels)
    return Measure(name, list(weights), list(weights.values()), labels)


def absent_subsets(average: Average, subsets: Sequence[str]) -> list[str]:
    return [subset for subset in average.parts if subset not in subsets]


def all_measures(aspects: Mapping[Line, str], averages: Averages | None = None) -> list[Measure]:
    """The measures of a report: averages over benchmarks, then each benchmark's averages and lines as they appear.

    Args:
        aspects: the lines in order of appearance, see `Outcomes.aspects`.
        averages: each is one of every metric of its benchmark, or of that metric, or over several benchmarks. One that
            names a part that is not there is left out, see `missing_averages`; so is a mean over all subsets where
            there is but one.
    """
    found = []
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
    known = _by_label(found)
    over_benchmarks = [
        _mean_of_parts(one, source, known)
        for source, one in _over_benchmarks(averages)
        if all(part in known for part in one.parts)
    ]
    return [*over_benchmarks, *found]


def _by_label(measures: Sequence[Measure]) -> dict[Line, Measure]:
    """By benchmark, subset or average's name, and metric; an average goes before a subset that is called the same."""
    known: dict[Line, Measure] = {}
    for one in measures:
        known.setdefault((one.labels["benchmark"], one.labels["subset"], one.labels["metric"]), one)
    return known


def _over_benchmarks(averages: Averages | None) -> list[tuple[str, Average]]:
    return [(source, one) for source, own in (averages or {}).items() for one in own if one.spans_benchmarks]


def _mean_of_parts(average: Average, source: str, known: Mapping[Line, Measure]) -> Measure:
    parts = [[known[part] for part in group] for group in average.groups or ()]
    label = source, "all", average.name
    labels = {**line_measure(label, parts[0][0].labels["aspect"]).labels, "average": True}
    return _mean_of_groups(line_name(label), parts, labels)


def missing_averages(outcomes: Outcomes | pd.DataFrame, averages: Averages) -> list[dict[str, Any]]:
    """The averages that `summarize` leaves out, because items of a part that they name are not there.

    Args:
        outcomes: as in `summarize`.
        averages: as in `summarize`. One over benchmarks counts where more than half of its benchmarks are there: who
            scores a single one does not ask for it; and where no other of the same source is whole.

    Returns:
        One entry per average and metric: `benchmark`, `metric`, `average` and `absent`, the names of the subsets; of
        an average over benchmarks, `benchmark` is where it is published, `metric` its name, and `absent` has lines.
    """
    return absent_averages(Outcomes.of(outcomes).aspects, averages)


def absent_averages(aspects: Mapping[Line, str], averages: Averages) -> list[dict[str, Any]]:
    """`missing_averages` of the lines that are there."""
    known = _by_label(all_measures(aspects, averages))
    declared = [(source, one, _absent_parts(one, known)) for source, one in _over_benchmarks(averages)]
    whole = {source for source, _, absent in declared if not absent}
    over_benchmarks = [
        {"benchmark": source, "metric": one.name, "average": one.name, "absent": absent}
        for source, one, absent in declared
        if source not in whole and _most_are_there(one, known)
    ]
    of_metric = _subsets(aspects)
    of_benchmark: dict[str, set[str]] = {}
    for (benchmark, _), subsets in of_metric.items():
        of_benchmark.setdefault(benchmark, set()).update(subsets)
    return over_benchmarks + [
        {"benchmark": benchmark, "metric": metric, "average": average.name, "absent": absent}
        for (benchmark, metric), subsets in of_metric.items()
        for average in _averages_of(averages, benchmark, metric)
        # A subset that only another metric has is not absent: this metric is not defined for it.
        if (absent := absent_subsets(average, subsets)) and absent_subsets(average, [*of_benchmark[benchmark]])
    ]


def _most_are_there(average: Average, known: Mapping[Line, Measure]) -> bool:
    there = {part[0] for part in average.parts if part in known}
    return 2 * len(there) > len({part[0] for part in average.parts})


def _absent_parts(average: Average, known: Mapping[Line, Measure]) -> list[str]:
    return [line_name(part) for part in average.parts if part not in known]


def usable_averages(outcomes: Outcomes, declared: Mapping[str, Sequence[Average]]) -> dict[Any, list[Average]]:
    """The averages of a report: a benchmark's own whose subsets are all present, else the mean over subsets.

    Args:
        outcomes: the outcomes.
        declared: those in use, by title of the benchmark.

    Returns:
        By benchmark and metric, for each metric of several subsets; and those over several benchmarks as they are.
    """
    over_benchmarks = {one[0]: declared[one[0]] for one in _over_benchmarks(declared)}
    return over_benchmarks | {
        (benchmark, metric): [one for one in declared.get(benchmark, ()) if not absent_subsets(one, subsets)]
        or [OVER_SUBSETS]
        for (benchmark, metric), subsets in _subsets(outcomes.aspects).items()
        if len(subsets) > 1
    }


def _subsets(lines: Mapping[Line, str]) -> dict[tuple[str, str], list[str]]:
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
        name: Name of a measure, or a pattern.
        known: Measures by name.
        where: What the error calls the place that names the measure.
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
            be an average's name, a pattern of lines, or an average over benchmarks after where it is published, as in
            `Im et al. 2026, Table 2: compositional mean`. Unset: the strictest metric of the first benchmark of
            composition that has one, over its subsets.
        declared: averages in use, by title of the benchmark.

    Returns:
        `None` where no name is given and nothing of composition is scored.
    """
    outcomes = Outcomes.of(outcomes)
    if name is None:
        composition = [line for line, aspect in outcomes.aspects.items() if aspect == COMPOSITION]
        chosen = [line for line in composition if line[2] == HEADLINE_METRIC] or composition
        if not chosen:
            return None
        name = f"{chosen[0][0]}: {chosen[0][2]}"
    measures = all_measures(outcomes.aspects, usable_averages(outcomes, declared))
    known: dict[str, Measure] = {}
    for one in sorted(measures, key=lambda one: not one.is_average):
        # The short name belongs to the first average of a metric, or to the line of its only subset.
        short = f"{one.labels['benchmark']}: {one.labels['metric']}"
        for key in (short, one.name) if one.is_average else (one.name, short):
            known.setdefault(key, one)
    for source, one in _over_benchmarks(declared):
        if name == f"{source}: {one.name}" and name not in known:
            absent = "; ".join(_absent_parts(one, _by_label(measures)))
            raise ValueError(f"primary: {name!r} needs what is not scored by this evaluation: {absent}.")
    measure = find_measure(name, known, where="primary")
    if name not in known and len({unit_of(line[2]) for line in measure.lines}) > 1:
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
    """The measure that a search maximizes: one of `headline_measures`, or a pattern of their lines."""
    return find_measure(name, {one.name: one for one in headline_measures(outcomes)}, where="measure")
