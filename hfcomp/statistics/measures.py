"""Measures: definitions of a report's numbers as means, and their names in reports, sweeps and searches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import pandas as pd

from hfcomp.metrics.units import HEADLINE_METRIC, metric_unit, name_with_unit
from hfcomp.reading import nearest
from hfcomp.statistics.average import Average
from hfcomp.statistics.outcomes import Line, Outcomes

Averages = Mapping[Any, Sequence[Average]]
"""Keyed by benchmark, or by benchmark and metric; averages over several benchmarks by where they are published."""
Pool = tuple[Line, ...]
"""Lines whose items are averaged as if they were one line."""
COMPOSITION, GENERAL = "composition", "general"
MEAN = "mean"
"""Name of the mean of the compositional lines."""
OVER_SUBSETS = Average("average")


@dataclass(frozen=True)
class Measure:
    """A mean of means over items, each over the items of one line or several pooled lines.

    Attributes:
        name: `benchmark: subset metric`, or a recipe's name for a mean of several lines.
        weights: Weight of each pool's mean. Equal by default.
        labels: Further entries for its lines in `summarize`.
        bounds: Smallest and largest value of an item. By default, `summarize` determines them.
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
    """`benchmark: subset metric`, without the subset if it is `all`."""
    benchmark, subset, metric = line
    return f"{benchmark}: {metric}" if subset == "all" else f"{benchmark}: {subset} {metric}"


def line_measure(line: Line, aspect: str = COMPOSITION) -> Measure:
    benchmark, subset, metric = line
    labels = {"benchmark": benchmark, "subset": subset, "metric": metric, "aspect": aspect, "average": False}
    return Measure(line_name(line), [(line,)], labels=labels)


def mean_of_lines(name: str, lines: Sequence[Line]) -> Measure:
    """The mean of the means of lines of any benchmarks, each with the same weight."""
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
    """The mean of groups, each the mean of its measures, or the mean over all their items."""
    # Means of means of means are a single weighted mean of lines, which is what the bootstrap and the tests accept. A
    # line in several groups counts in each of them.
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
    """The measures of a report: averages over benchmarks, then each benchmark's averages and lines in order.

    Args:
        aspects: Lines in order of appearance, see `Outcomes.aspects`.
        averages: Averages, each over every metric of its benchmark, over one metric, or over several benchmarks. An
            average that names a missing part is omitted (see `missing_averages`), and so is a mean over all subsets if
            there is only one.
    """
    measures = []
    of_benchmark: dict[str, list[Measure]] = {}
    for (benchmark, metric), subsets in _subsets(aspects).items():
        aspect = aspects[benchmark, subsets[0], metric]
        of_benchmark.setdefault(benchmark, []).extend(
            average_measure(average, benchmark, metric, subsets, aspect)
            for average in _select_averages(averages, benchmark, metric)
            if not absent_subsets(average, subsets) and (average.groups is not None or len(subsets) > 1)
        )
    for line, aspect in aspects.items():
        measures += [*of_benchmark.pop(line[0], ()), line_measure(line, aspect)]
    known = _by_label(measures)
    return [*(_mean_of_parts(average, source, known) for source, average in _complete(averages, known)), *measures]


def _complete(averages: Averages | None, known: Mapping[Line, Measure]) -> list[tuple[str, Average]]:
    """The averages over benchmarks that have all of their parts, and fallbacks only if their source has no other."""
    complete = [(source, average) for source, average in _over_benchmarks(averages) if {*average.parts} <= {*known}]
    whole = {source for source, average in complete if not average.fallback}
    return [(source, average) for source, average in complete if not (average.fallback and source in whole)]


def _by_label(measures: Sequence[Measure]) -> dict[Line, Measure]:
    """Maps (benchmark, subset or average, metric) to measures. An average hides a subset with its name."""
    known: dict[Line, Measure] = {}
    for measure in measures:
        known.setdefault(tuple(measure.labels[name] for name in ("benchmark", "subset", "metric")), measure)
    return known


def _over_benchmarks(averages: Averages | None) -> list[tuple[str, Average]]:
    return [
        (source, average)
        for source, group in (averages or {}).items()
        for average in group
        if average.spans_benchmarks
    ]


def _mean_of_parts(average: Average, source: str, known: Mapping[Line, Measure]) -> Measure:
    parts = [[known[part] for part in group] for group in average.groups or ()]
    label = source, "all", average.name
    labels = {**line_measure(label, parts[0][0].labels["aspect"]).labels, "average": True}
    return _mean_of_groups(line_name(label), parts, labels)


def missing_averages(outcomes: Outcomes | pd.DataFrame, averages: Averages) -> list[dict[str, Any]]:
    """The averages that `summarize` omits because items of one of their parts are missing.

    Args:
        outcomes: As in `summarize`.
        averages: As in `summarize`. An average over benchmarks is listed only if more than half of its benchmarks were
            scored, because scoring a single one does not ask for it, and only if no other average of the same source
            is complete.

    Returns:
        One entry per average and metric: `benchmark`, `metric`, `average` and `absent`, the names of the subsets. For
        an average over benchmarks, `benchmark` is where it is published, `metric` its name, and `absent` has lines.
    """
    return absent_averages(Outcomes.of(outcomes).aspects, averages)


def absent_averages(aspects: Mapping[Line, str], averages: Averages) -> list[dict[str, Any]]:
    """Computes `missing_averages` from the existing lines."""
    known = _by_label(all_measures(aspects, averages))
    declared = [
        (source, average, _absent_parts(average, known))
        for source, average in _over_benchmarks(averages)
        if not average.fallback
    ]
    complete = {source for source, _, absent in declared if not absent}
    over_benchmarks = [
        {"benchmark": source, "metric": average.name, "average": average.name, "absent": absent}
        for source, average, absent in declared
        if source not in complete and _has_most_benchmarks(average, known)
    ]
    of_metric = _subsets(aspects)
    of_benchmark: dict[str, set[str]] = {}
    for (benchmark, _), subsets in of_metric.items():
        of_benchmark.setdefault(benchmark, set()).update(subsets)
    return over_benchmarks + [
        {"benchmark": benchmark, "metric": metric, "average": average.name, "absent": absent}
        for (benchmark, metric), subsets in of_metric.items()
        for average in _select_averages(averages, benchmark, metric)
        # A subset that only another metric has is not missing: this metric is not defined for it.
        if (absent := absent_subsets(average, subsets)) and absent_subsets(average, [*of_benchmark[benchmark]])
    ]


def _has_most_benchmarks(average: Average, known: Mapping[Line, Measure]) -> bool:
    scored = {part[0] for part in average.parts if part in known}
    return 2 * len(scored) > len({part[0] for part in average.parts})


def _absent_parts(average: Average, known: Mapping[Line, Measure]) -> list[str]:
    return [line_name(part) for part in average.parts if part not in known]


def usable_averages(outcomes: Outcomes, declared: Mapping[str, Sequence[Average]]) -> dict[Any, list[Average]]:
    """The averages of a report: a benchmark's own averages with all subsets present, or else the mean over subsets.

    Args:
        outcomes: Outcomes.
        declared: Averages in use, by title of the benchmark.

    Returns:
        By benchmark and metric, for each metric with several subsets; averages over several benchmarks unchanged.
    """
    over_benchmarks = {source: declared[source] for source, _ in _over_benchmarks(declared)}
    return over_benchmarks | {
        (benchmark, metric): [
            average for average in declared.get(benchmark, ()) if not absent_subsets(average, subsets)
        ]
        or [OVER_SUBSETS]
        for (benchmark, metric), subsets in _subsets(outcomes.aspects).items()
        if len(subsets) > 1
    }


def _subsets(lines: Mapping[Line, str]) -> dict[tuple[str, str], list[str]]:
    subsets: dict[tuple[str, str], list[str]] = {}
    for benchmark, subset, metric in lines:
        subsets.setdefault((benchmark, metric), []).append(subset)
    return subsets


def _select_averages(averages: Averages | None, benchmark: str, metric: str) -> list[Average]:
    known = averages or {}
    return [*known.get(benchmark, ()), *known.get((benchmark, metric), ())]


def find_measure(name: str, known: Mapping[str, Measure], *, where: str) -> Measure:
    """Finds a measure by its name, or returns the mean of all lines that match a pattern with `*`.

    Args:
        name: Name of a measure, or a pattern.
        known: Measures by name.
        where: Name for error messages of the place where the measure is named.
    """
    if name in known:
        return known[name]
    matching = [
        measure.lines[0]
        for key, measure in known.items()
        if key == measure.name and len(measure.lines) == 1 and not measure.is_average and fnmatchcase(key, name)
    ]
    if not matching:
        raise ValueError(
            f"{where}: {name!r} is not scored by this evaluation.{nearest(name, known)} Known: {'; '.join(known)}."
        )
    return mean_of_lines(name, matching)


def primary_measure(
    outcomes: Outcomes | pd.DataFrame, name: str | None, declared: Mapping[str, Sequence[Average]]
) -> Measure | None:
    """The primary endpoint of a recipe.

    Args:
        outcomes: Outcomes of at least the base.
        name: `benchmark: metric`, the first average over its subsets; `benchmark: subset metric`, where the subset may
            be an average's name; a pattern of lines; or an average over benchmarks after where it is published, such
            as `Im et al. 2026, Table 2: compositional mean`, for which a fallback may stand in. Unset: the strictest
            metric of the first compositional benchmark that has one, over its subsets.
        declared: Averages in use, by title of the benchmark.

    Returns:
        `None` if no name is given and nothing compositional is scored.
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
    for candidate in sorted(measures, key=lambda measure: not measure.is_average):
        # The short name belongs to the first average of a metric, or to the line of its only subset.
        short = f"{candidate.labels['benchmark']}: {candidate.labels['metric']}"
        for key in (short, candidate.name) if candidate.is_average else (candidate.name, short):
            known.setdefault(key, candidate)
    for source, average in _over_benchmarks(declared):
        if name == f"{source}: {average.name}" and name not in known:
            fallbacks = [f"{source}: {other.name}" for other in declared[source] if other.fallback]
            if usable := [fallback for fallback in fallbacks if fallback in known]:
                name = usable[0]
                break
            absent = "; ".join(_absent_parts(average, _by_label(measures)))
            raise ValueError(f"primary: {name!r} needs lines that this evaluation does not score: {absent}.")
    measure = find_measure(name, known, where="primary")
    if name not in known and len({metric_unit(line[2]) for line in measure.lines}) > 1:
        names = "; ".join(dict.fromkeys(name_with_unit(line[2]) for line in measure.lines))
        raise ValueError(
            f"primary: {name!r} matches metrics with different units, whose mean is meaningless: {names}. Name one."
        )
    return measure


ROLES = ("primary", COMPOSITION, GENERAL)
"""Names for benchmarks by their role: the primary endpoint's benchmark, or all benchmarks of an aspect."""


def headline_measures(
    outcomes: Outcomes,
    benchmarks: Sequence[str] = (),
    primary: Measure | None = None,
    declared: Mapping[str, Sequence[Average]] | None = None,
) -> list[Measure]:
    """The compositional lines (only the `group` ones of a benchmark that has any), and the general ones.

    Args:
        outcomes: Outcomes.
        benchmarks: Benchmarks to show; none means all. A name is a title, where an average over benchmarks is
            published, a pattern of these, or one of `ROLES`. `composition` adds one line for each benchmark that is
            not shown otherwise: its average over subsets.
        primary: Measure to put first, whatever the benchmarks. Without one, the mean of the compositional lines
            follows them.
        declared: Averages in use, by title of the benchmark.
    """
    aspects = outcomes.aspects
    titles = list(dict.fromkeys(line[0] for line in aspects))
    means = _published_means(outcomes, declared or {})
    known, named = dict.fromkeys((*ROLES, *titles, *(mean.labels["benchmark"] for mean in means))), set[str]()
    for name in benchmarks or titles:
        matching = [name] if name in known else [title for title in known if fnmatchcase(title, name)]
        if not matching:
            listed = ", ".join(known)
            raise ValueError(f"benchmarks: {name!r} was not evaluated. Known: {listed}. Fix the sweep's file.")
        named.update(matching)
    if "primary" in named and primary is not None:
        # A mean over benchmarks has its source as benchmark, and a mean of lines that match a pattern has none.
        named |= {primary.labels.get("benchmark", line[0]) for line in primary.lines}
    rows = [
        line_measure(line, aspect)
        for line, aspect in aspects.items()
        if line[0] in named or (aspect == GENERAL and GENERAL in named)
    ]
    composition, general = ([row for row in rows if row.labels["aspect"] == kind] for kind in (COMPOSITION, GENERAL))
    strict = {row.labels["benchmark"] for row in composition if row.labels["metric"] == HEADLINE_METRIC}
    headline = [
        row for row in composition if row.labels["metric"] == HEADLINE_METRIC or row.labels["benchmark"] not in strict
    ]
    if COMPOSITION in named:
        headline += _averages(outcomes, [title for title in titles if title not in named], declared or {})
    for kind, shown in ((COMPOSITION, headline), (GENERAL, general)):
        shown += [mean for mean in means if mean.labels["benchmark"] in named and mean.labels["aspect"] == kind]
    if primary is not None:
        return [primary, *(row for row in (*headline, *general) if row.name != primary.name)]
    mean = [mean_of_lines(MEAN, [row.lines[0] for row in headline])] if len(headline) > 1 else []
    return [*headline, *mean, *general]


def _published_means(outcomes: Outcomes, declared: Mapping[str, Sequence[Average]]) -> list[Measure]:
    known = _by_label(all_measures(outcomes.aspects, usable_averages(outcomes, declared)))
    return [_mean_of_parts(average, source, known) for source, average in _complete(declared, known)]


def _averages(
    outcomes: Outcomes, titles: Sequence[str], declared: Mapping[str, Sequence[Average]]
) -> Iterator[Measure]:
    """Yields the average over subsets of each compositional benchmark among these, in its strictest metric."""
    for title in titles:
        metrics = [line[2] for line, aspect in outcomes.aspects.items() if (line[0], aspect) == (title, COMPOSITION)]
        if metrics:
            metric = HEADLINE_METRIC if HEADLINE_METRIC in metrics else metrics[0]
            measure = primary_measure(outcomes, f"{title}: {metric}", declared)
            if measure is not None:
                yield measure


def search_measure(outcomes: Outcomes, name: str) -> Measure:
    """The measure that a search maximizes: one of `headline_measures`, or a pattern of their lines."""
    return find_measure(name, {known.name: known for known in headline_measures(outcomes)}, where="measure")
