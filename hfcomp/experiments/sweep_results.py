"""The numbers of a sweep: means over seeds, their range, and paired differences to one variant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.evaluation.statistics import ImageBootstrap, sign_flip_test
from hfcomp.experiments.comparison import HEADLINE_METRIC
from hfcomp.experiments.stages import read_history

LINE = ["benchmark", "subset", "metric"]
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

    def is_first(self, setting: str, seed: int) -> bool:
        """Whether these are the first setting and the first seed."""
        return (setting, seed) == (self.settings[0], self.seeds[0])


@dataclass(frozen=True)
class Measure:
    """A number of the tables: the mean of its lines' means, each with the same weight.

    Attributes:
        name: `benchmark: subset metric`, or `mean`.
        lines: benchmark, subset and metric of each.
    """

    name: str
    lines: list[tuple[str, str, str]]


def part_name(setting: str, seed: int, variant: str) -> str:
    """The name of a part's model and folder."""
    return f"{setting}/{seed}/{variant}"


def measures_of(items: pd.DataFrame, benchmarks: list[str]) -> list[Measure]:
    """The lines of composition (of a benchmark the `group` ones where it has any), their mean, and the general ones.

    Args:
        items: outcomes with the column `aspect`.
        benchmarks: those that are shown; none means all.

    Raises:
        ValueError: for a benchmark that was not evaluated.
    """
    for name in benchmarks:
        if name not in set(items["benchmark"]):
            known = ", ".join(items["benchmark"].unique())
            raise ValueError(f"benchmarks: {name!r} was not evaluated. Known: {known}. Mend the sweep's file.")
    lines = items[[*LINE, "aspect"]].drop_duplicates()
    lines = lines[lines["benchmark"].isin(benchmarks)] if benchmarks else lines
    composed, general = (lines[lines["aspect"] == aspect] for aspect in ("composition", "general"))
    strict = set(composed.loc[composed["metric"] == HEADLINE_METRIC, "benchmark"])
    kept = composed[(composed["metric"] == HEADLINE_METRIC) | ~composed["benchmark"].isin(strict)]
    measures = [_measure(key) for key in kept[LINE].itertuples(index=False, name=None)]
    if len(measures) > 1:
        measures.append(Measure(MEAN, [measure.lines[0] for measure in measures]))
    return measures + [_measure(key) for key in general[LINE].itertuples(index=False, name=None)]


def _measure(line: tuple[str, str, str]) -> Measure:
    benchmark, subset, metric = line
    return Measure(f"{benchmark}: {metric}" if subset == "all" else f"{benchmark}: {subset} {metric}", [line])


def summarize_sweep(items: pd.DataFrame, plan: SweepPlan, folder: Path) -> dict[str, Any]:
    """Per setting, variant and measure the mean over seeds, its range, and the difference to the reference.

    A difference is paired by item on outcomes averaged over seeds. Its interval draws images and its p flips the signs
    of images: both say what other images would change, not what other seeds would.

    Args:
        items: outcomes of `base` and of every part, by the column `model`.
        plan: of the sweep.
        folder: of the sweep, with the parts' training logs.

    Returns:
        `measures` (their names), `base` (measure to value) and `settings`: setting to variant to `measures` (measure
        to `value`, `lowest`, `highest`, `seeds`, and but for the reference `minus` with `value`, `low`, `high`, `p`)
        and `logged` (metric to mean); `contrasts`: setting to contrast to measure to the same as `minus`, the mean of
        the variants with something less that of those without. Shares are in 0..1.
    """
    measures = measures_of(items, plan.benchmarks)
    bootstrap = ImageBootstrap(items.loc[items["model"] == "base", "image_id"])
    tables = {name: part.set_index([*LINE, "item"]).sort_index() for name, part in items.groupby("model", sort=False)}
    images = tables["base"]["image_id"]
    values = {name: table["value"].reindex(images.index) for name, table in tables.items()}
    settings: dict[str, Any] = {}
    contrasts: dict[str, Any] = {}
    for setting in plan.settings:
        by_seed = {
            variant: [values[part_name(setting, seed, variant)] for seed in plan.seeds] for variant in plan.variants
        }
        averaged = {variant: _average(seeds) for variant, seeds in by_seed.items()}
        settings[setting] = {}
        for variant in plan.variants:
            found = {measure.name: _over_seeds(by_seed[variant], measure) for measure in measures}
            if variant != plan.reference:
                change = averaged[variant] - averaged[plan.reference]
                for measure in measures:
                    found[measure.name]["minus"] = _difference(change, images, measure, bootstrap)
            logged = {metric: _logged(folder, plan, setting, variant, metric) for metric in plan.logged}
            settings[setting][variant] = {"measures": found, "logged": logged}
        averaged["base"] = values["base"]
        contrasts[setting] = {}
        for name, sides in plan.contrasts.items():
            there, not_there = (_average([averaged[one] for one in sides[side]]) for side in ("with", "without"))
            change = there - not_there
            contrasts[setting][name] = {one.name: _difference(change, images, one, bootstrap) for one in measures}
    base = {measure.name: _mean(values["base"], measure) for measure in measures}
    names = [measure.name for measure in measures]
    return {"measures": names, "base": base, "settings": settings, "contrasts": contrasts}


def _average(tables: list[pd.Series]) -> pd.Series:
    return sum(tables) / len(tables)


def _mean(values: pd.Series, measure: Measure) -> float:
    return float(np.mean([values.loc[line].mean() for line in measure.lines]))


def _over_seeds(seeds: list[pd.Series], measure: Measure) -> dict[str, Any]:
    found = [_mean(values, measure) for values in seeds]
    return {"value": float(np.mean(found)), "lowest": min(found), "highest": max(found), "seeds": found}


def _difference(change: pd.Series, images: pd.Series, measure: Measure, bootstrap: ImageBootstrap) -> dict[str, float]:
    subsets = [(change.loc[line].to_numpy(), images.loc[line].to_numpy()) for line in measure.lines]
    low, high = bootstrap.macro_interval(subsets, difference=True)
    weighted = np.concatenate([part / len(part) for part, _ in subsets])  # each line counts the same
    p = sign_flip_test(weighted, np.concatenate([names for _, names in subsets]))
    return {"value": float(np.mean([part.mean() for part, _ in subsets])), "low": low, "high": high, "p": p}


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
