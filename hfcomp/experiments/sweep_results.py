"""The numbers of a sweep: means over seeds, their range, and paired differences to one variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.experiments.plans import SweepPlan
from hfcomp.reporting.lines import Line
from hfcomp.statistics.measures import GENERAL, Average, headline_measures, mean_of_lines, primary_measure
from hfcomp.statistics.multiplicity import adjust
from hfcomp.statistics.outcomes import NO_SEED, Outcomes
from hfcomp.statistics.summary import BASE, summarize
from hfcomp.trainers.stages import read_history

OF_BASE = ("", BASE)
"""The base among the cells of a sweep, setting and variant: it has neither setting nor seed."""


def part_name(setting: str, seed: int, variant: str) -> str:
    """The name of a part's model and folder."""
    return f"{setting}/{seed}/{variant}"


@dataclass(frozen=True)
class SweepResults:
    """The numbers of a sweep.

    Attributes:
        contents: the `results` of `sweep.json`: `measures` (their names), `primary` (the first of them, if there is
            one), `base` (measure to value) and `settings`: setting to variant to `measures` (measure to `value`,
            `lowest`, `highest`, `seeds`, and but for the reference `minus` with `value`, `low`, `high`, `p`, and
            `p_holm` or `q`) and `logged` (metric to mean); `contrasts`: setting to contrast to measure to the same as
            `minus`, the mean of the variants with something less that of those without. Shares are in 0..1.
        lines: the same by setting, as a report takes them, the primary endpoint first. Models are the base and the
            variants; a contrast is the difference of `with <name>` to `without it`.
        general: by setting the mean of general abilities, where there are several.
    """

    contents: dict[str, Any]
    lines: dict[str, list[Line]]
    general: dict[str, Line | None]


def summarize_sweep(
    outcomes: Outcomes | pd.DataFrame,
    plan: SweepPlan,
    folder: Path,
    declared: Mapping[str, Sequence[Average]] | None = None,
    primary: str | None = None,
) -> SweepResults:
    """Per setting, variant and measure the mean over seeds, its range, and the difference to the reference.

    A difference is paired by item and by seed; `difference_over_seeds` says what other images and other seeds would
    change, with one seed what other images would. The p of the primary endpoint are corrected by Holm for the number
    of variants and settings, those of contrasts for theirs; all others get q of Benjamini and Hochberg.

    Args:
        outcomes: of `base` and of every part, whose arms are named by `part_name`.
        plan: of the sweep.
        folder: of the sweep, with the parts' training logs.
        declared: averages in use, by title of the benchmark.
        primary: the primary endpoint, as `hfcomp.statistics.measures.primary_measure` takes it.

    Raises:
        ValueError: for a benchmark or a primary endpoint that was not evaluated.
    """
    outcomes = _factored(Outcomes.of(outcomes), plan)
    judged = primary_measure(outcomes, primary, declared or {})
    measures = headline_measures(outcomes, plan.benchmarks, judged)
    aspects = [outcomes.aspects[one.lines[0]] for one in measures]
    general = [one.lines[0] for one, aspect in zip(measures, aspects, strict=True) if aspect == GENERAL]
    mean = [mean_of_lines("general average", general)] if len(general) > 1 else []
    cells = [(setting, variant) for setting in plan.settings for variant in plan.variants]
    how = {"by": ("setting", "arm"), "models": [OF_BASE, *cells], "images": "all", "intervals": len(plan.seeds) == 1}
    found = summarize(outcomes, measures=[*measures, *mean], contrasts=_contrasts(plan), **how)
    for line, measure, aspect in zip(found, [*measures, *mean], [*aspects, GENERAL], strict=False):
        benchmark, colon, rest = measure.name.partition(": ")
        named = {"benchmark": benchmark if colon else "", "subset": "all", "metric": rest or measure.name}
        line |= {**named, **measure.labels, "aspect": aspect, "name": measure.name}
        line |= {"primary": measure.name} if measure is judged else {}
    lines = {setting: [_of_setting(line, plan, setting) for line in found] for setting in plan.settings}
    averages = {setting: own.pop() if mean else None for setting, own in lines.items()}
    first = judged.name if judged else None
    for contrasts in (False, True):
        every = [line for own in lines.values() for line in own]
        _correct([pair for line in every for pair in _changes(line, plan, contrasts=contrasts)], first)
    return SweepResults(_contents(lines, plan, folder, first), lines, averages)


def _contrasts(plan: SweepPlan) -> dict[Any, Any]:
    """Sides by setting and the two names of a difference."""
    found: dict[Any, Any] = {}
    for setting in plan.settings:
        for variant in plan.variants:
            if variant != plan.reference:
                found[setting, variant, plan.reference] = [(setting, variant)], [(setting, plan.reference)]
        for name, sides in plan.contrasts.items():
            found[setting, *contrast_pair(name)] = tuple(
                [OF_BASE if one == BASE else (setting, one) for one in side] for side in (sides.of, sides.without)
            )
    return found


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


def contrast_pair(name: str) -> tuple[str, str]:
    """What a contrast is the difference of, as a report calls it."""
    return f"with {name}", "without it"


def _of_setting(line: Line, plan: SweepPlan, setting: str) -> Line:
    """A line of `summarize` as one of a setting."""
    cells = {BASE: OF_BASE} | {variant: (setting, variant) for variant in plan.variants}
    models = {name: _estimate(line["models"][cell], plan) for name, cell in cells.items()}
    differences: dict[str, dict[str, Any]] = {}
    for (of, one, other), change in line["contrasts"].items():
        if of == setting:
            differences.setdefault(one, {})[other] = change
    return {**line, "models": models, "differences": differences}


def _estimate(cell: dict[str, Any], plan: SweepPlan) -> dict[str, Any]:
    """A mean with what is known of it: over several seeds their range, and nothing of the base's single one."""
    if len(plan.seeds) == 1:
        return cell
    seeds = cell.get("seeds")
    return {"value": cell["value"], **({"lowest": min(seeds), "highest": max(seeds), "seeds": seeds} if seeds else {})}


def _changes(line: Line, plan: SweepPlan, *, contrasts: bool) -> Iterator[tuple[str, dict[str, float]]]:
    """The differences of a line to the reference, or its contrasts."""
    for minus in line["differences"].values():
        yield from ((line["name"], one) for other, one in minus.items() if (other != plan.reference) == contrasts)


def _contents(lines: dict[str, list[Line]], plan: SweepPlan, folder: Path, primary: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for setting, own in lines.items():
        for variant in plan.variants:
            measures: dict[str, Any] = {}
            for line in own:
                value, minus = line["models"][variant]["value"], line["differences"].get(variant, {})
                seeds = line["models"][variant].get("seeds", [value])
                found = {"value": value, "lowest": min(seeds), "highest": max(seeds), "seeds": seeds}
                measures[line["name"]] = found | ({"minus": minus[plan.reference]} if minus else {})
            logged = {metric: _logged(folder, plan, setting, variant, metric) for metric in plan.logged}
            settings.setdefault(setting, {})[variant] = {"measures": measures, "logged": logged}
    first, contrasts = lines[plan.first[0]], {name: contrast_pair(name) for name in plan.contrasts}
    return {
        "measures": [line["name"] for line in first],
        "primary": primary,
        "base": {line["name"]: line["models"][BASE]["value"] for line in first},
        "settings": settings,
        "contrasts": {
            setting: {
                name: {line["name"]: line["differences"][one][other] for line in own}
                for name, (one, other) in contrasts.items()
            }
            for setting, own in lines.items()
        },
    }


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
