"""From the numbers of a sweep to `sweep.json`, `report.md` and the tables in the terminal.

`sweep.json` holds `sweep_schema_version`, raised when a key changes its meaning, what `write_sweep` is given, and as
`results` what `summarize_sweep` returns. Of version 2 are `primary` in place of the measure `mean`, and
`minus` with intervals and p that hold for other seeds too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from hfcomp.evaluation import results as files
from hfcomp.experiments.comparison import MEANINGS, adjusted, p_value, percent, points, with_p
from hfcomp.experiments.sheets import escaped, markdown_table
from hfcomp.experiments.stages import StageSummary
from hfcomp.experiments.sweep_results import SweepPlan
from hfcomp.experiments.tables import SHORT_METRICS, Sheet, terminal_table
from hfcomp.writing import write_text

SCHEMA_VERSION = 2
TERMINAL_WIDTH = 80
LEGEND = (
    "Shares in percent, means over seeds, with the lowest and the highest seed. Differences in points, paired by item "
    "and seed. {intervals} Adjusted for their number: on the primary endpoint{primary} by Holm, over variants and "
    "settings; all others as q (Benjamini and Hochberg). Contrasts are adjusted among themselves."
)
ONE_SEED = (
    "One seed: intervals of 95 % draw whole images and p is from a sign-flip test over images; what another seed "
    "would change is not shown."
)
SEVERAL_SEEDS = (
    "Intervals of 95 % and p are for other images and other seeds: a t-interval of the {seeds} seeds' means with the "
    "variance of images added, and no narrower than the interval that draws images."
)


def write_sweep(
    folder: Path,
    plan: SweepPlan,
    results: dict[str, Any],
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
    further: Sequence[str] = (),
) -> None:
    """Writes `sweep.json` and `report.md`.

    Args:
        folder: of the sweep.
        plan: of the sweep.
        results: of `summarize_sweep`.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, ...; all of them go into `sweep.json`.
        further: lines of Markdown behind the tables.
    """
    contents = {**facts, "plan": asdict(plan), "stages": [asdict(stage) for stage in stages], "results": results}
    files.write_results(folder / "sweep.json", {"sweep_schema_version": SCHEMA_VERSION, **contents})
    parts = [f"# {facts['method']}: a sweep", "", facts["caveat"], "", escaped(_legend(plan, results)), ""]
    parts += _objectives(plan, facts["config"]["objective"])
    parts += _controls(plan, facts["method"])
    parts += _starts(plan)
    for sheet in (*_full_sheets(plan, results), *_contrasts(plan, results), _costs(plan, stages)):
        parts += [f"## {sheet.title}", "", *markdown_table(sheet), ""]
    parts += further
    if facts["notes"]:
        parts += ["## Data", "", *(f"- {note}" for note in facts["notes"]), ""]
    write_text(folder / "report.md", "\n".join(parts))


def print_sweep(plan: SweepPlan, results: dict[str, Any], facts: dict[str, Any], folder: Path) -> None:
    """The tables in the terminal, in 80 columns."""
    console = Console(width=max(TERMINAL_WIDTH, Console().width))
    console.print(Text(f"\n{facts['method']}: a sweep\n{facts['caveat']}", style="bold"))
    for variant, objective in plan.objectives.items():
        console.print(Text(f"{variant}: trains {objective.partition(':')[2]}"))
    for variant, control in plan.controls.items():
        console.print(Text(f"{variant}: {MEANINGS[control].format(method=facts['method'])}"))
    for variant, other in plan.after.items():
        console.print(Text(f"{variant}: starts from {other}, whose steps are on top of its own"))
    for sheet in (*_short_sheets(plan, results), *_contrasts(plan, results, short=True)):
        console.print(Text(f"\n{sheet.title}", style="bold"))
        console.print(terminal_table(sheet))
    console.print(Text(f"\n{_legend(plan, results)}"))
    console.print(Text(f"written to {folder}"), soft_wrap=True)  # a path broken over lines cannot be copied


def _legend(plan: SweepPlan, results: dict[str, Any]) -> str:
    """How intervals and p were made."""
    several = len(plan.seeds) > 1
    intervals = SEVERAL_SEEDS.format(seeds=len(plan.seeds)) if several else ONE_SEED
    primary = f", {results['primary']}," if results.get("primary") else ""
    return LEGEND.format(intervals=intervals, primary=primary)


def _objectives(plan: SweepPlan, usual: str) -> list[str]:
    """Which variants train another objective than the recipe's."""
    if not plan.objectives:
        return []
    lines = [f"- {escaped(variant)} trains `{objective}`" for variant, objective in plan.objectives.items()]
    rest = [variant for variant in plan.variants if variant not in plan.objectives]
    lines += [f"- {escaped(', '.join(rest))}: `{usual}`"] if rest else []
    return ["## Objectives", "", *lines, ""]


def _controls(plan: SweepPlan, method: str) -> list[str]:
    """Which variants are controls, and what each trains."""
    lines = [f"- {escaped(name)}: {MEANINGS[of].format(method=method)}" for name, of in plan.controls.items()]
    return ["## Controls", "", *lines, ""] if lines else []


def _starts(plan: SweepPlan) -> list[str]:
    """Which variants do not start from the base."""
    lines = [f"- {escaped(name)} starts from {escaped(of)}" for name, of in plan.after.items()]
    return (
        ["## Starts", "", *lines, "", "Their steps are on top of those of what they start from.", ""] if lines else []
    )


def _contrasts(plan: SweepPlan, results: dict[str, Any], *, short: bool = False) -> Iterator[Sheet]:
    """What a part gives: the mean of the variants with it less that of those without; in short, without its p."""
    if not plan.contrasts:
        return
    measures = results["measures"]
    labels = short_names(measures) if short else measures
    for setting in plan.settings:
        found = results["contrasts"][setting]
        rows = []
        for measure, label in zip(measures, labels, strict=True):
            changes = [found[name][measure] for name in plan.contrasts]
            rows.append([label, *(points(change) if short else with_p(change) for change in changes)])
        if short:
            yield Sheet(f"{setting}: contrasts", ["", *plan.contrasts], rows)
            continue
        sides = [[name, " + ".join(of["with"]), " + ".join(of["without"])] for name, of in plan.contrasts.items()]
        yield Sheet(f"{setting}: contrasts, mean of", ["contrast", "with", "minus without"], sides)
        yield Sheet(f"{setting}: contrasts", ["measure", *plan.contrasts], rows)


def _full_sheets(plan: SweepPlan, results: dict[str, Any]) -> Iterator[Sheet]:
    for setting in plan.settings:
        variants = results["settings"][setting]
        compared = [name for name in plan.variants if name != plan.reference]
        shares, changes = [], []
        for measure in results["measures"]:
            found = {name: variants[name]["measures"][measure] for name in plan.variants}
            row = [f"{percent(found[name]['value'])} ({_range(found[name])})" for name in plan.variants]
            shares.append([measure, percent(results["base"][measure]), *row])
            minus = [found[name]["minus"] for name in compared]
            changes.append([measure, *map(with_p, minus)])
        for metric in plan.logged:
            row = [_logged(variants[name]["logged"][metric], 3) for name in plan.variants]
            shares.append([f"mean {metric} in training", "", *row])
        yield Sheet(f"{setting}: shares", ["measure", "base", *plan.variants], shares)
        yield Sheet(f"{setting}: minus {plan.reference}", ["measure", *compared], changes)


def _short_sheets(plan: SweepPlan, results: dict[str, Any]) -> Iterator[Sheet]:
    measures = results["measures"]
    main = measures[0]
    names = [name.replace("_", "\n").replace("-", "\n") for name in plan.variants]
    for setting in plan.settings:
        variants = results["settings"][setting]
        rows = []
        for measure, label in zip(measures, short_names(measures), strict=True):
            values = [variants[name]["measures"][measure]["value"] for name in plan.variants]
            rows.append([label, percent(results["base"][measure]), *map(percent, values)])
        yield Sheet(f"{setting}: means over {len(plan.seeds)} seeds", ["", "base", *names], rows)
        rows = []
        for name in plan.variants:
            found = variants[name]["measures"][main]
            change = found.get("minus")
            row = [name, percent(found["value"]), _range(found), points(change) if change else ""]
            tests = [p_value(change), adjusted(change)] if change else ["", ""]
            rows.append([*row, *tests])
        header = ["variant", "share", "seeds", f"minus {plan.reference}", "p", "adj. p"]
        what = f"{main} (primary)" if results.get("primary") else main
        yield Sheet(f"{setting}: {what}", header, rows)
        if plan.logged:
            rows = [[name, *(_logged(value, 2) for value in variants[name]["logged"].values())] for name in variants]
            metrics = [metric.replace("_", "\n") for metric in plan.logged]
            yield Sheet(f"{setting}: means of the training log", ["variant", *metrics], rows)


def short_names(measures: list[str]) -> list[str]:
    """Names of measures without benchmark and metric, as far as they stay different."""
    short = []
    for measure in measures:
        rest = measure.partition(": ")[2] or measure
        short.append(SHORT_METRICS.get(rest, rest).removesuffix(" group"))
    return [name if short.count(name) == 1 else measure for name, measure in zip(short, measures, strict=True)]


def _costs(plan: SweepPlan, stages: list[StageSummary]) -> Sheet:
    """What one run of a variant cost, as the mean over settings and seeds."""
    rows = []
    for variant in plan.variants:
        runs = [stage for stage in stages if stage.name.endswith(f"/{variant}")]
        means = [sum(getattr(run, key) for run in runs) / len(runs) for key in ("steps", "images", "texts")]
        seconds = sum(run.seconds for run in runs) / len(runs)
        rows.append([variant, *(f"{value:,.0f}" for value in means), f"{seconds:.1f}"])
    return Sheet("Cost of a run", ["variant", "steps", "images", "texts", "seconds"], rows)


def _range(found: dict[str, Any]) -> str:
    return f"{percent(found['lowest'])} to {percent(found['highest'])}"


def _logged(value: float, decimals: int) -> str:
    """A mean of the training log, `-` where a variant does not log the metric."""
    return "-" if math.isnan(value) else f"{value:.{decimals}f}"
