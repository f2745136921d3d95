"""The numbers of a sweep: means over seeds, their range, and paired differences to one variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.evaluation.spec import Average
from hfcomp.evaluation.statistics.measures import headline_measures, primary_measure
from hfcomp.evaluation.statistics.multiplicity import adjust
from hfcomp.evaluation.statistics.outcomes import NO_SEED, Outcomes
from hfcomp.evaluation.statistics.summary import BASE, summarize
from hfcomp.experiments.plans import SweepPlan
from hfcomp.experiments.stages import read_history

OF_BASE = ("", BASE)
"""The base among the cells of a sweep, setting and variant: it has neither setting nor seed."""


def part_name(setting: str, seed: int, variant: str) -> str:
    """The name of a part's model and folder."""
    return f"{setting}/{seed}/{variant}"


def summarize_sweep(
    outcomes: Outcomes | pd.DataFrame,
    plan: SweepPlan,
    folder: Path,
    declared: Mapping[str, Sequence[Average]] | None = None,
    primary: str | None = None,
) -> dict[str, Any]:
    """Per setting, variant and measure the mean over seeds, its range, and the difference to the reference.

    A difference is paired by item and by seed; `difference_over_seeds` says what other images and other seeds would
    change, with one seed what other images would. The p of the primary endpoint are corrected by Holm for the number
    of variants and settings, those of contrasts for theirs; all others get q of Benjamini and Hochberg.

    Args:
        outcomes: of `base` and of every part, whose arms are named by `part_name`.
        plan: of the sweep.
        folder: of the sweep, with the parts' training logs.
        declared: averages in use, by title of the benchmark.
        primary: the primary endpoint, as `hfcomp.evaluation.statistics.measures.primary_measure` takes it.

    Returns:
        `measures` (their names), `primary` (the first of them, if there is one), `base` (measure to value) and
        `settings`: setting to variant to `measures` (measure to `value`, `lowest`, `highest`, `seeds`, and but for the
        reference `minus` with `value`, `low`, `high`, `p`, and `p_holm` or `q`) and `logged` (metric to mean);
        `contrasts`: setting to contrast to measure to the same as `minus`, the mean of the variants with something
        less that of those without. Shares are in 0..1.

    Raises:
        ValueError: for a benchmark or a primary endpoint that was not evaluated.
    """
    outcomes = _factored(Outcomes.of(outcomes), plan)
    judged = primary_measure(outcomes, primary, declared or {})
    measures = headline_measures(outcomes, plan.benchmarks, judged)
    cells = [(setting, variant) for setting in plan.settings for variant in plan.variants]
    contrasts: dict[Any, Any] = {
        ("minus", *cell): ([cell], [(cell[0], plan.reference)]) for cell in cells if cell[1] != plan.reference
    }
    for setting in plan.settings:
        for name, sides in plan.contrasts.items():
            with_it, without = (
                [OF_BASE if one == BASE else (setting, one) for one in side] for side in (sides.of, sides.without)
            )
            contrasts["contrast", setting, name] = with_it, without
    how = {"by": ("setting", "arm"), "models": [OF_BASE, *cells], "images": "all", "intervals": False}
    lines = summarize(outcomes, measures=measures, contrasts=contrasts, **how)
    named = dict(zip([one.name for one in measures], lines, strict=True))
    settings: dict[str, Any] = {}
    for setting, variant in cells:
        found = {name: _over_seeds(line["models"][setting, variant]) for name, line in named.items()}
        if variant != plan.reference:
            for name, line in named.items():
                found[name]["minus"] = line["contrasts"]["minus", setting, variant]
        logged = {metric: _logged(folder, plan, setting, variant, metric) for metric in plan.logged}
        settings.setdefault(setting, {})[variant] = {"measures": found, "logged": logged}
    differences = {
        setting: {
            name: {measure: line["contrasts"]["contrast", setting, name] for measure, line in named.items()}
            for name in plan.contrasts
        }
        for setting in plan.settings
    }
    first = judged.name if judged else None
    _correct(list(_all_minus(settings)), first)
    _correct([pair for of in differences.values() for found in of.values() for pair in found.items()], first)
    base = {name: line["models"][OF_BASE]["value"] for name, line in named.items()}
    return {"measures": list(named), "primary": first, "base": base, "settings": settings, "contrasts": differences}


def _factored(outcomes: Outcomes, plan: SweepPlan) -> Outcomes:
    """Outcomes whose arms are parts of a sweep, by setting, seed and variant."""
    parts = {
        part_name(setting, seed, variant): (setting, seed, variant)
        for setting in plan.settings
        for seed in plan.seeds
        for variant in plan.variants
    } | {BASE: ("", NO_SEED, BASE)}
    outcomes = outcomes.select(arm=list(parts))
    columns = zip(*outcomes.table["arm"].map(parts), strict=True)
    return outcomes.assign(**dict(zip(("setting", "seed", "arm"), map(list, columns), strict=True)))


def _over_seeds(cell: dict[str, Any]) -> dict[str, Any]:
    seeds = cell.get("seeds", [cell["value"]])
    return {"value": cell["value"], "lowest": min(seeds), "highest": max(seeds), "seeds": seeds}


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
