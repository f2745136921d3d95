"""The numbers of a sweep: means over seeds, their range, and paired differences to one variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.spec import Average
from hfcomp.evaluation.statistics import ImageBootstrap
from hfcomp.evaluation.statistics.multiplicity import adjust
from hfcomp.evaluation.statistics.seeds import difference_over_seeds
from hfcomp.evaluation.statistics.summary import LINE, STRATUM, by_line
from hfcomp.experiments.comparison import HEADLINE_METRIC
from hfcomp.experiments.primary import Endpoint, find_primary, line_name, report_averages
from hfcomp.experiments.stages import read_history

MEAN = "mean"


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is over.

    Attributes:
        settings: names, in the order of the tables.
        seeds: of rows and training.
        variants: names, in the order of the tables.
        reference: the variant that differences refer to.
        logged: metrics of the training log whose mean is shown beside a variant.
        benchmarks: those that the tables show; none means all.
        objectives: variant to `module:class`, for those that train another one than the recipe's.
        controls: variant to control, for those that are one.
        after: variant to the one whose model it starts from, for those that do not start from the base.
        contrasts: name to two lists of variants or `base`, `with` and `without`.
        primary: the primary endpoint, as `hfcomp.experiments.primary.find_primary` takes it.
    """

    settings: list[str]
    seeds: list[int]
    variants: list[str]
    reference: str
    logged: list[str]
    benchmarks: list[str]
    objectives: dict[str, str] = field(default_factory=dict)
    controls: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    contrasts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    primary: str | None = None

    def is_first(self, setting: str, seed: int) -> bool:
        """Whether these are the first setting and the first seed."""
        return (setting, seed) == (self.settings[0], self.seeds[0])


@dataclass(frozen=True)
class Measure:
    """A number of the tables: a mean of its lines' means.

    Attributes:
        name: `benchmark: subset metric`, that of the primary endpoint, or `mean`.
        lines: benchmark, subset and metric of each.
        weights: what each line counts; by default all the same.
        pooled: whether it is the mean over the items of all lines instead.
    """

    name: str
    lines: list[tuple[str, str, str]]
    weights: list[float] | None = None
    pooled: bool = False

    def parts(self, table: pd.Series) -> list[NDArray[Any]]:
        """What is averaged of a column of `by_line`: an array for each line, or one of all; of strata one for each."""
        return [part.to_numpy() for strata in self._strata(table) for part in strata]

    def shares(self, table: pd.Series) -> list[float]:
        """The weights of `parts`; those of strata share their line's."""
        strata = self._strata(table)
        weights = [1.0] * len(strata) if self.pooled or not self.weights else self.weights
        return [weight / len(own) for weight, own in zip(weights, strata, strict=True) for _ in own]

    def mean(self, values: pd.Series) -> float:
        """The number of one model."""
        return float(np.average([part.mean() for part in self.parts(values)], weights=self.shares(values)))

    def _strata(self, table: pd.Series) -> list[list[pd.Series]]:
        lines = [table.loc[line] for line in self.lines]
        lines = [pd.concat(lines)] if self.pooled else lines
        return [[part for _, part in line.groupby(level=STRATUM)] for line in lines]


def part_name(setting: str, seed: int, variant: str) -> str:
    """The name of a part's model and folder."""
    return f"{setting}/{seed}/{variant}"


def measures_of(items: pd.DataFrame, benchmarks: list[str], primary: Endpoint | None = None) -> list[Measure]:
    """The lines of composition (of a benchmark the `group` ones where it has any), and the general ones.

    Args:
        items: outcomes with the column `aspect`.
        benchmarks: those that are shown; none means all.
        primary: stands first, whatever the benchmarks. Without one, the mean of the lines of composition follows them.

    Raises:
        ValueError: for a benchmark that was not evaluated.
    """
    for name in benchmarks:
        if name not in set(items["benchmark"]):
            known = ", ".join(items["benchmark"].unique())
            raise ValueError(f"benchmarks: {name!r} was not evaluated. Known: {known}. Fix the sweep's file.")
    lines = items[[*LINE, "aspect"]].drop_duplicates()
    lines = lines[lines["benchmark"].isin(benchmarks)] if benchmarks else lines
    composed, general = (lines[lines["aspect"] == aspect] for aspect in ("composition", "general"))
    strict = set(composed.loc[composed["metric"] == HEADLINE_METRIC, "benchmark"])
    kept = composed[(composed["metric"] == HEADLINE_METRIC) | ~composed["benchmark"].isin(strict)]
    measures = [_measure(key) for key in kept[LINE].itertuples(index=False, name=None)]
    if primary is None and len(measures) > 1:
        measures.append(Measure(MEAN, [measure.lines[0] for measure in measures]))
    measures += [_measure(key) for key in general[LINE].itertuples(index=False, name=None)]
    if primary is None:
        return measures
    first = Measure(primary.name, primary.lines, primary.weights, primary.pooled)
    return [first, *(measure for measure in measures if measure.name != primary.name)]


def _measure(line: tuple[str, str, str]) -> Measure:
    return Measure(line_name(line), [line])


def summarize_sweep(
    items: pd.DataFrame, plan: SweepPlan, folder: Path, declared: Mapping[str, Sequence[Average]] | None = None
) -> dict[str, Any]:
    """Per setting, variant and measure the mean over seeds, its range, and the difference to the reference.

    A difference is paired by item and by seed; `difference_over_seeds` says what other images and other seeds would
    change, with one seed what other images would. The p of the primary endpoint are corrected by Holm for the number
    of variants and settings, those of contrasts for theirs; all others get q of Benjamini and Hochberg.

    Args:
        items: outcomes of `base` and of every part, by the column `model`.
        plan: of the sweep.
        folder: of the sweep, with the parts' training logs.
        declared: averages in use, by title of the benchmark.

    Returns:
        `measures` (their names), `primary` (the first of them, if there is one), `base` (measure to value) and
        `settings`: setting to variant to `measures` (measure to `value`, `lowest`, `highest`, `seeds`, and but for the
        reference `minus` with `value`, `low`, `high`, `p`, and `p_holm` or `q`) and `logged` (metric to mean);
        `contrasts`: setting to contrast to measure to the same as `minus`, the mean of the variants with something
        less that of those without. Shares are in 0..1.

    Raises:
        ValueError: for a benchmark or a primary endpoint that was not evaluated.
    """
    primary = find_primary(items, plan.primary, report_averages(items, declared or {}))
    measures = measures_of(items, plan.benchmarks, primary)
    bootstrap = ImageBootstrap(items.loc[items["model"] == "base", "image_id"])
    tables = {name: by_line(part) for name, part in items.groupby("model", sort=False)}
    images = tables["base"]["image_id"]
    values = {name: table["value"].reindex(images.index) for name, table in tables.items()}
    settings: dict[str, Any] = {}
    contrasts: dict[str, Any] = {}
    for setting in plan.settings:
        by_seed = {
            variant: [values[part_name(setting, seed, variant)] for seed in plan.seeds] for variant in plan.variants
        }
        settings[setting] = {}
        for variant in plan.variants:
            found = {measure.name: _over_seeds(by_seed[variant], measure) for measure in measures}
            if variant != plan.reference:
                changes = _minus(by_seed[variant], by_seed[plan.reference])
                for measure in measures:
                    found[measure.name]["minus"] = _difference(changes, images, measure, bootstrap)
            logged = {metric: _logged(folder, plan, setting, variant, metric) for metric in plan.logged}
            settings[setting][variant] = {"measures": found, "logged": logged}
        by_seed["base"] = [values["base"]] * len(plan.seeds)
        contrasts[setting] = {}
        for name, sides in plan.contrasts.items():
            there, not_there = (
                [_average(list(tables)) for tables in zip(*(by_seed[one] for one in sides[side]), strict=True)]
                for side in ("with", "without")
            )
            changes = _minus(there, not_there)
            contrasts[setting][name] = {one.name: _difference(changes, images, one, bootstrap) for one in measures}
    base = {measure.name: measure.mean(values["base"]) for measure in measures}
    names, first = [measure.name for measure in measures], primary.name if primary else None
    _correct(list(_all_minus(settings)), first)
    _correct([pair for of in contrasts.values() for found in of.values() for pair in found.items()], first)
    return {"measures": names, "primary": first, "base": base, "settings": settings, "contrasts": contrasts}


def _average(tables: list[pd.Series]) -> pd.Series:
    return sum(tables) / len(tables)


def _minus(one: list[pd.Series], other: list[pd.Series]) -> list[pd.Series]:
    """The difference of two variants under each seed."""
    return [values - others for values, others in zip(one, other, strict=True)]


def _over_seeds(seeds: list[pd.Series], measure: Measure) -> dict[str, Any]:
    found = [measure.mean(values) for values in seeds]
    return {"value": float(np.mean(found)), "lowest": min(found), "highest": max(found), "seeds": found}


def _difference(
    changes: list[pd.Series], images: pd.Series, measure: Measure, bootstrap: ImageBootstrap
) -> dict[str, float]:
    seeds = [measure.parts(change) for change in changes]
    inside = all((np.abs(part) <= 1).all() for parts in seeds for part in parts)
    bounds = (0.0, 1.0) if inside else None
    weights = measure.shares(images)
    return difference_over_seeds(bootstrap, seeds, measure.parts(images), weights=weights, bounds=bounds)


def _all_minus(settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    for variants in settings.values():
        for variant in variants.values():
            for name, found in variant["measures"].items():
                if "minus" in found:
                    yield name, found["minus"]


def _correct(differences: list[tuple[str, dict[str, float]]], primary: str | None) -> None:
    """Holm's correction over the primary endpoint, q over the others."""
    chosen = [change for name, change in differences if name == primary]
    adjust(chosen, [change for name, change in differences if name != primary])


def _logged(folder: Path, plan: SweepPlan, setting: str, variant: str, metric: str) -> float:
    """The mean of a metric over the steps of all seeds; NaN where it was not logged.

    A line of the log is the mean over the steps since the line before, and a checkpoint brings a line of its own.
    """
    values: list[float] = []
    steps: list[int] = []
    for seed in plan.seeds:
        history, before = read_history(folder / part_name(setting, seed, variant)), 0
        for line in history:
            step = line.get("step", before + 1)
            if metric in line:
                values.append(line[metric])
                steps.append(step - before)
            before = step
    return float(np.average(values, weights=steps)) if sum(steps) else float("nan")
