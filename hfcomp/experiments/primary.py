"""The primary endpoint: the one number that a report's verdict is about, named before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import pandas as pd

from hfcomp.data.columns import nearest
from hfcomp.evaluation.spec import Average
from hfcomp.evaluation.statistics.multiplicity import correct
from hfcomp.evaluation.statistics.summary import LINE, mean_of_lines, subset_weights, summarize
from hfcomp.experiments.comparison import BASE, HEADLINE_METRIC, SAME_BATCH, named_with_unit, unit_of
from hfcomp.experiments.comparison import Line as Result

Line = tuple[str, str, str]
"""Benchmark, subset and metric."""
Averages = dict[tuple[str, str], list[Average]]
"""By benchmark and metric."""
AVERAGE = Average("average")


@dataclass(frozen=True)
class Endpoint:
    """A number that outcomes give: a line, or a mean over several.

    Attributes:
        name: as a recipe names it.
        lines: that it is of.
        weights: what each line's mean counts.
        pooled: whether it is the mean over the items of all lines instead.
        average: the benchmark, name and metric of the average of results that it is.
    """

    name: str
    lines: list[Line]
    weights: list[float] = field(default_factory=list)
    pooled: bool = False
    average: Line | None = None


def line_name(line: Line) -> str:
    """`benchmark: subset metric`, without a subset that is all."""
    benchmark, subset, metric = line
    return f"{benchmark}: {metric}" if subset == "all" else f"{benchmark}: {subset} {metric}"


def report_averages(items: pd.DataFrame, declared: Mapping[str, Sequence[Average]]) -> Averages:
    """The averages of a report: those of a benchmark as far as their subsets are there, else the mean over subsets.

    Args:
        items: outcomes.
        declared: those in use, by title of the benchmark.
    """
    found: Averages = {}
    kinds = items[LINE].drop_duplicates()
    for (benchmark, metric), part in kinds.groupby(["benchmark", "metric"], sort=False):
        subsets = set(part["subset"])
        if len(subsets) > 1:
            usable = [one for one in declared.get(benchmark, ()) if set().union(*(one.groups or ())) <= subsets]
            found[benchmark, metric] = usable or [AVERAGE]
    return found


def endpoints(items: pd.DataFrame, averages: Averages) -> dict[str, Endpoint]:
    """What may be primary, by name; `benchmark: metric` is the first average over the benchmark's subsets."""
    lines: list[Line] = list(items[LINE].drop_duplicates().itertuples(index=False, name=None))
    found: dict[str, Endpoint] = {}
    for (benchmark, metric), own in averages.items():
        subsets = [line[1] for line in lines if (line[0], line[2]) == (benchmark, metric)]
        for average in own:
            endpoint = _endpoint(benchmark, metric, average, subsets)
            found.setdefault(f"{benchmark}: {metric}", endpoint)
            found.setdefault(endpoint.name, endpoint)
    for line in lines:
        found.setdefault(line_name(line), Endpoint(line_name(line), [line], [1.0]))
        found.setdefault(f"{line[0]}: {line[2]}", found[line_name(line)])  # of a single subset
    return found


def _endpoint(benchmark: str, metric: str, average: Average, subsets: Sequence[str]) -> Endpoint:
    groups = average.groups or tuple((subset,) for subset in subsets)
    weights = {(benchmark, subset, metric): weight for subset, weight in subset_weights(groups).items()}
    label = benchmark, average.name, metric
    return Endpoint(line_name(label), list(weights), list(weights.values()), average.pooled, label)


def find_primary(items: pd.DataFrame, name: str | None, averages: Averages) -> Endpoint | None:
    """The primary endpoint of a recipe.

    Args:
        items: outcomes, of the base at least.
        name: `benchmark: metric`, `benchmark: subset metric`, or such a name with `*`, which is the mean of all lines
            that it fits. Unset: the strictest metric (`group` where there is one) of the first benchmark of
            composition, over its subsets.
        averages: of `report_averages`.

    Returns:
        `None` where no name is given and nothing of composition is scored.

    Raises:
        ValueError: for a name that the outcomes do not have, naming the nearest and those that they have, and for a
            pattern that fits metrics of different units.
    """
    if name is None:
        kinds = items.loc[items["aspect"] == "composition", LINE].drop_duplicates()
        strict = kinds[kinds["metric"] == HEADLINE_METRIC]
        chosen = strict if len(strict) else kinds
        if not len(chosen):
            return None
        name = f"{chosen['benchmark'].iloc[0]}: {chosen['metric'].iloc[0]}"
    known = endpoints(items, averages)
    if name in known:
        return known[name]
    lines = [
        one.lines[0] for own, one in known.items() if one.name == own and not one.average and fnmatchcase(own, name)
    ]
    if not lines:
        raise ValueError(
            f"primary: {name!r} is not scored by this evaluation.{nearest(name, known)} Known: {'; '.join(known)}."
        )
    if len({unit_of(line[2]) for line in lines}) > 1:
        names = "; ".join(dict.fromkeys(named_with_unit(line[2]) for line in lines))
        raise ValueError(
            f"primary: {name!r} fits metrics of different units, whose mean says nothing: {names}. Name one of them."
        )
    return Endpoint(name, lines, [1 / len(lines)] * len(lines))


def summarize_run(
    items: pd.DataFrame,
    models: list[str],
    *,
    primary: str | None,
    declared: Mapping[str, Sequence[Average]],
) -> tuple[list[Result], Result | None]:
    """The lines of a run, with the averages over subsets and the primary endpoint, and the mean of the general lines.

    Args:
        items: outcomes of all models.
        models: in the order of the report, the method last.
        primary: as in `find_primary`.
        declared: as in `report_averages`.

    Returns:
        Lines as `summarize` makes them; the primary one, before all others where it is no line of theirs, has
        `primary`, its name. Then the mean of general abilities as `mean_of_lines` makes it, where there are several.

    Raises:
        ValueError: as `summarize` and `find_primary`.
    """
    references = models[:-1]
    averages = report_averages(items, declared)
    endpoint = find_primary(items, primary, averages)
    lines = summarize(items, models=models, references=references, averages=averages)
    if endpoint is not None:
        key = endpoint.average or (endpoint.lines[0] if len(endpoint.lines) == 1 else None)
        marked = [line for line in lines if tuple(line[name] for name in LINE) == key]
        if not marked:
            marked = [_mean(items, endpoint, models)]
            lines = [*marked, *lines]
        marked[0]["primary"] = endpoint.name
    correct(lines, [(models[-1], SAME_BATCH)])
    general = items.loc[items["aspect"] == "general", LINE].drop_duplicates()
    keys: list[Line] = list(general.itertuples(index=False, name=None))
    if len(keys) < 2:
        return lines, None
    return lines, mean_of_lines(items, keys, models=models, references=[name for name in references if name == BASE])


def _mean(items: pd.DataFrame, endpoint: Endpoint, models: list[str]) -> Result:
    """A mean of lines of several metrics or benchmarks, labelled as a line."""
    benchmarks = dict.fromkeys(line[0] for line in endpoint.lines)
    aspects = dict.fromkeys(items.loc[items["benchmark"].isin(list(benchmarks)), "aspect"])
    labels = {
        "benchmark": ", ".join(benchmarks),
        "subset": f"average of {len(endpoint.lines)} lines",
        "metric": endpoint.name.partition(": ")[2] or endpoint.name,
        "aspect": next(iter(aspects)),
    }
    return {**labels, **mean_of_lines(items, endpoint.lines, models=models, references=models[:-1])}
