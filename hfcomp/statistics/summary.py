"""Computes numbers from outcomes: means of models with intervals, their ties, and paired differences."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.statistics.bootstrap import FEWEST_SEEDS, ImageBootstrap, difference_over_seeds
from hfcomp.statistics.measures import Averages, Measure, all_measures
from hfcomp.statistics.outcomes import COLUMNS, LINE, NO_SEED, Outcomes
from hfcomp.statistics.samples import READ, Items, Sample, Samples, UnlikeItems
from hfcomp.statistics.significance import adjust, macro_smallest_difference

logger = logging.getLogger(__name__)

BASE = "base"
Cell = Any
"""A model's identity: its name, or for example `(setting, arm)` if several models of a study share a name."""
Column = tuple[Cell, int]
"""A cell and a seed."""
Seeds = Mapping[Cell, Mapping[int, int]]
"""The position of each seed of each cell among the columns of a sample."""
Contrasts = Mapping[Any, tuple[Sequence[Cell], Sequence[Cell]]]
TIE_RULES = {"wrong": 0.0, "half": 0.5, "win": 1.0}
"""Value of a tie by the name of the rule; see `summarize` for when it applies."""


def summarize(
    outcomes: Outcomes | pd.DataFrame,
    *,
    by: Sequence[str] = ("arm",),
    models: Sequence[Cell] | None = None,
    references: Sequence[Cell] = (),
    subject: Sequence[Cell] | None = None,
    contrasts: Contrasts | None = None,
    measures: Sequence[Measure] | None = None,
    averages: Averages | None = None,
    tie: str = "wrong",
    images: Literal["benchmark", "measure", "all"] = "benchmark",
    intervals: bool = True,
    test: bool = True,
) -> list[dict[str, Any]]:
    """Computes one line per measure, with every model's mean and the paired differences.

    Intervals are 95% image-clustered bootstrap intervals (see `ImageBootstrap`): all subsets of an average are
    resampled together.

    Args:
        outcomes: Outcomes of the models.
        by: Columns that identify a model, in the order of a `Cell`; a single column's values are the cells. Rows that
            differ only in `seed` are seeds of one model.
        models: Models in the order of the report. By default, for each measure, those that have items of it.
        references: Models that differences refer to.
        subject: Models to compare with the references; by default all except `base`.
        contrasts: Further differences, by name: the mean of some models minus that of others, paired by seed. For a
            measure without items of one of these models, the contrast is omitted.
        measures: Measures; by default `all_measures` with `averages`. p-values are corrected for their number only in
            the default case.
        averages: Means over subsets, by benchmark, or by benchmark and metric. Averages over benchmarks are keyed by
            where they are published, which becomes the `benchmark` of their lines, and their name the `metric`.
        tie: Value of a tie, see `TIE_RULES`. It applies only to an item whose value is 0, for a metric of a benchmark
            whose values are all 0 or 1. What a tie would add to a fraction is unknown, so there it is shown and counts
            nothing.
        images: Set of images that a draw is taken from: those of the measure's benchmarks, of its own lines, or all.
        intervals: Whether models have intervals.
        test: Whether contrasts are tested. Otherwise their intervals come only from the bootstrap.

    Returns:
        For each measure its `labels` (for a line or average `benchmark`, `subset` or the average's name, `metric`,
        `aspect` and `average`; for an average over subsets also `groups` and `pooled`), `chance` (`None` if an item
        has none), `items`, `images`, `models` (cell to `value`, `low`, `high`, `ties`, `tie_rate`; with several seeds
        to their mean `value`, `lowest` and `highest`, `seeds`, the value of each, and `tie_rate`), `differences` (cell
        to reference to `value`, `low`, `high`, `p` of the sign-flip test, `q` of `correct`, and `smallest`, the
        difference that the set would detect in 80% of the cases; with several seeds those of
        `difference_over_seeds`), `contrasts` if requested (name to `value`, `low`, `high`, `p`, and `seeds`, their
        number), and `lines`, if the measure is a mean of several lines but not an average over subsets. Bounds are NaN
        with fewer than two images, and for an average also if one of its subsets has fewer than two. `ties` is a
        number of items, and `tie_rate` is averaged like `value`.

    Raises:
        ValueError: For a missing column, an unknown model or rule, a value that is not finite, or models with
            different items.
    """
    outcomes = Outcomes.of(outcomes)
    check_tie(tie)
    table, columns = _enumerate(outcomes.table, list(by), models)
    is_full_report = measures is None
    measures = all_measures(Outcomes(table[list(COLUMNS)]).aspects, averages) if is_full_report else measures
    cells = list(dict.fromkeys(cell for cell, _ in columns))
    _warn_of_two_seeds(columns)
    subject = [cell for cell in cells if cell != BASE] if subject is None else subject
    _check_names(cells, references=references, subject=subject)
    compared = {model: [other for other in references if other != model] for model in subject}
    read = _credit_ties(table, TIE_RULES[tie])[[*LINE, "item", *READ]]
    samples = Samples(read, len(columns), images, every=models is not None)
    lines = []
    for measure in measures:
        try:
            sample = samples.sample(measure)
        except UnlikeItems as error:
            model, other = (_name(columns[number]) for number in error.columns)
            problem = error.template.format(model=model, other=other, **error.facts)
            raise ValueError(f"{error.where}: {problem}") from None
        seeds = _seeds([columns[number] for number in sample.columns])
        bootstrap = samples.bootstrap(measure) if intervals or references or contrasts else None
        line = {**measure.labels, **sample.facts(), "models": _models(sample, seeds, bootstrap if intervals else None)}
        line["differences"] = _differences(sample, seeds, compared, bootstrap)
        if contrasts is not None:
            line["contrasts"] = {
                name: _contrast(sample, seeds, *sides, bootstrap, test=test)
                for name, sides in contrasts.items()
                if {*sides[0], *sides[1]} <= seeds.keys()
            }
        if len(measure.lines) > 1 and not measure.is_average:
            line["lines"] = [list(key) for key in measure.lines]
        lines.append(line)
    if is_full_report:
        correct(lines)
    return lines


def _seeds(columns: Sequence[Column]) -> dict[Cell, dict[int, int]]:
    seeds_by_cell: dict[Cell, dict[int, int]] = {}
    for place, (cell, seed) in enumerate(columns):
        seeds_by_cell.setdefault(cell, {})[seed] = place
    return seeds_by_cell


def _name(column: Column) -> str:
    """`setting/arm/seed` of a model, without missing parts."""
    cell, seed = column
    parts = cell if isinstance(cell, tuple) else (cell,)
    return "/".join(str(part) for part in (parts if seed == NO_SEED else (*parts, seed)))


def check_tie(tie: str) -> None:
    if tie not in TIE_RULES:
        raise ValueError(f"tie: found {tie!r}, expected one of {', '.join(TIE_RULES)}.")


def _warn_of_two_seeds(columns: Sequence[Column]) -> None:
    counts = Counter(cell for cell, seed in columns if seed != NO_SEED)
    if any(1 < count < FEWEST_SEEDS for count in counts.values()):
        logger.warning("two seeds are too few for an interval over seeds: their differences have no interval and no p")


def _enumerate(table: pd.DataFrame, by: list[str], models: Sequence[Cell] | None) -> tuple[pd.DataFrame, list[Column]]:
    """Returns the models' rows with the numbers of their columns and images, and the columns."""
    kinds = list(table[[*by, "seed"]].drop_duplicates().itertuples(index=False, name=None))
    known = [(kind[0] if len(by) == 1 else kind[:-1], kind[-1]) for kind in kinds]
    cells = list(dict.fromkeys(cell for cell, _ in known))
    for name in models or ():
        if name not in cells:
            raise ValueError(f"models: {name!r} has no items; the table has items of {cells}. Evaluate it first.")
    columns = [column for cell in (cells if models is None else models) for column in known if column[0] == cell]
    place = np.array([columns.index(column) if column in columns else -1 for column in known], dtype=np.intp)
    number = place[table.groupby([*by, "seed"], sort=False).ngroup().to_numpy()]
    table = table.assign(column=number)[number >= 0]
    return table.assign(image=_sorted_numbers(table["image_id"])), columns


def _sorted_numbers(names: pd.Series) -> NDArray[np.intp]:
    """The number of each name among the sorted distinct ones. Grouping numbers is quicker than grouping names."""
    number, distinct = pd.factorize(names)
    order = np.argsort(np.asarray(distinct, dtype=object))
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return place[number]


def _check_names(cells: Sequence[Cell], **arguments: Sequence[Cell]) -> None:
    for argument, names in arguments.items():
        for name in names:
            if name not in cells:
                raise ValueError(f"{argument}: {name!r} is not one of the models {cells}. Add or remove it.")


def _credit_ties(table: pd.DataFrame, tie_value: float) -> pd.DataFrame:
    if not tie_value:
        return table
    # Only if all values are 0 or 1, because what a tie would add to a fraction is unknown.
    whole = table["value"].isin([0.0, 1.0]).groupby([table["benchmark"], table["metric"]]).transform("all")
    return table.assign(value=table["value"].mask(whole & (table["value"] == 0) & table["tie"], tie_value))


def _models(sample: Sample, places: Seeds, bootstrap: ImageBootstrap | None) -> dict[Cell, dict[str, Any]]:
    """Each model's mean. A model with a single seed also has bounds and ties."""
    values, tie_rates = sample.mean(), sample.mean("ties")
    ties = sum(part.ties.sum(axis=0) for part in sample.parts)
    models: dict[Cell, dict[str, Any]] = {}
    low, high = values, values
    if bootstrap is not None:
        low, high = bootstrap.macro_interval(sample.subsets, weights=sample.weights, bounds=sample.bounds)
    for cell, seeds in places.items():
        own = list(seeds.values())
        if len(own) > 1:
            each = [float(values[index]) for index in own]
            range_of = {"lowest": min(each), "highest": max(each), "seeds": each}
            models[cell] = {"value": float(np.mean(each)), **range_of, "tie_rate": float(np.mean(tie_rates[own]))}
            continue
        bounds = {"low": float(low[own[0]]), "high": float(high[own[0]])} if bootstrap is not None else {}
        tied = {"ties": int(ties[own[0]]), "tie_rate": float(tie_rates[own[0]])}
        models[cell] = {"value": float(values[own[0]]), **bounds, **tied}
    return models


def _differences(
    sample: Sample, seeds: Seeds, compared: Mapping[Cell, Sequence[Cell]], bootstrap: ImageBootstrap | None
) -> dict[Cell, dict[Cell, dict[str, float]]]:
    """Each model minus each of its references. Single seeds are computed all at once, to share random signs."""
    pairs = [(cell, other) for cell, others in compared.items() for other in others if {cell, other} <= seeds.keys()]
    differences = {}
    if all(len(seeds[cell]) == 1 for pair in pairs for cell in pair) and pairs:
        first, second = ([next(iter(seeds[pair[side]].values())) for pair in pairs] for side in (0, 1))
        tables = [(values[:, first] - values[:, second], images) for values, images in sample.subsets]
        columns = bootstrap.macro_difference(tables, weights=sample.weights, bounds=sample.bounds)
        columns["smallest"] = macro_smallest_difference(tables, sample.weights)
        for index, pair in enumerate(pairs):
            differences[pair] = {key: float(column[index]) for key, column in columns.items()}
    else:
        differences = {pair: _contrast(sample, seeds, pair[:1], pair[1:], bootstrap, test=True) for pair in pairs}
    return {
        cell: {other: differences[cell, other] for other in others if (cell, other) in differences}
        for cell, others in compared.items()
    }


def _contrast(
    sample: Sample,
    seeds: Seeds,
    cells: Sequence[Cell],
    others: Sequence[Cell],
    bootstrap: ImageBootstrap,
    *,
    test: bool,
) -> dict[str, float]:
    changes, images = _changes(sample, seeds, cells, others), [part.images for part in sample.parts]
    options = {"weights": sample.weights, "bounds": sample.bounds}
    if test:
        return difference_over_seeds(bootstrap, changes, images, **options)
    averaged = [np.mean(of_part, axis=0) for of_part in zip(*changes, strict=True)]
    value = np.average([change.mean() for change in averaged], weights=sample.weights)
    low, high = bootstrap.macro_interval(list(zip(averaged, images, strict=True)), **options, difference=True)
    return {"value": float(value), "low": low, "high": high, "seeds": len(changes)}


def _changes(
    sample: Sample, seeds: Seeds, cells: Sequence[Cell], others: Sequence[Cell]
) -> list[list[NDArray[np.float64]]]:
    """For each seed, the paired differences `[n]` between the means of two sets of cells, part by part."""
    # A cell without a seed, such as a base, is paired with every seed of the others.
    known = {cell: seeds[cell] for cell in (*cells, *others)}
    every = list(dict.fromkeys(seed for own in known.values() for seed in own if seed != NO_SEED)) or [NO_SEED]
    for cell, own in known.items():
        absent = [seed for seed in every if seed not in own and NO_SEED not in own]
        if absent:
            raise ValueError(f"{cell}: no outcomes for seed {absent[0]}, which another model has. Score all seeds.")

    def mean(part: Items, side: Sequence[Cell], seed: int) -> NDArray[np.float64]:
        columns = [part.values[:, known[cell].get(seed, known[cell].get(NO_SEED))] for cell in side]
        return sum(columns) / len(columns)

    return [[mean(part, cells, seed) - mean(part, others, seed) for part in sample.parts] for seed in every]


def correct(lines: Sequence[dict[str, Any]], primary: Sequence[tuple[str, str]] = ()) -> None:
    """Corrects the p-values of a report for their number, in place.

    Args:
        lines: Lines of `summarize`. A line with `primary` holds the report's primary endpoint.
        primary: Comparisons (model and reference) for which the report is made. On the primary line they get
            `p_holm`, Holm's correction for their number. Every other difference gets `q` of Benjamini and Hochberg
            over all of these, with a pair of models counted once, whichever is the reference.
    """
    first: list[dict[str, float]] = []
    others: dict[tuple[int, frozenset[str]], list[dict[str, float]]] = {}
    for index, line in enumerate(lines):
        for name, references in line["differences"].items():
            for reference, difference in references.items():
                difference.pop("q", None), difference.pop("p_holm", None)
                if line.get("primary") and (name, reference) in primary:
                    first.append(difference)
                else:
                    others.setdefault((index, frozenset((name, reference))), []).append(difference)
    adjust(first, [pair[0] for pair in others.values()])
    for pair in others.values():
        for difference in pair:
            difference["q"] = pair[0]["q"]
