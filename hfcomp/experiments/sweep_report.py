"""From the numbers of a sweep to `sweep.json`, `report.md` and the tables in the terminal.

`sweep.json` holds `sweep_schema_version`, raised when a key changes its meaning, what `write_sweep` is given, and as
`results` what `summarize_sweep` returns. Of version 2 are `primary` in place of the measure `mean`, and
`minus` with intervals and p that hold for other seeds too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation import results as files
from hfcomp.experiments.plans import SweepPlan
from hfcomp.experiments.report import MEANINGS
from hfcomp.experiments.stages import StageSummary
from hfcomp.metrics.units import Unit
from hfcomp.reporting import tables
from hfcomp.reporting.format import unsigned
from hfcomp.reporting.lines import BASE, Line
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.saving import save_report
from hfcomp.reporting.terminal import render_terminal

SCHEMA_VERSION = 2
SEEDS = (
    "Values are means over seeds, in parentheses the lowest and the highest seed; differences are paired by seed too."
)
ONE_SEED = f"{tables.IMAGES} One seed: what another seed would change is not shown."
SEVERAL_SEEDS = (
    "Intervals (95 %) and p are for other images and other seeds: a t-interval of the {seeds} seeds' means with the "
    "variance of images added, and no narrower than the image-clustered bootstrap interval. " + SEEDS
)
ADJUSTED = (
    "adj. p is adjusted for the number of differences: on the primary endpoint by Holm, over variants and settings; "
    "all others as q (Benjamini and Hochberg). Contrasts are adjusted among themselves."
)
LOGGED = Unit(1, 3)


def sweep_report(
    plan: SweepPlan,
    results: Mapping[str, Any],
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    *,
    brief: bool,
    further: Sequence[Section] = (),
) -> Report:
    """The report of a sweep.

    Args:
        plan: of the sweep.
        results: of `summarize_sweep`.
        stages: what each training run cost.
        facts: as in `write_sweep`.
        brief: differences on the first measure alone, values without the range of seeds.
        further: sections behind the others.
    """
    lines = {setting: _lines(plan, results, setting) for setting in plan.settings}
    pairs = [(name, plan.reference) for name in plan.variants if name != plan.reference]
    what = f"{results['measures'][0]}{' (primary)' if results.get('primary') else ''}"
    gain, values, minus = [], [], []
    for setting, own in lines.items():
        gain.append(tables.gain_beside_forgetting(f"{setting}: {what}", {"value": own[0]}, plan.reference))
        values += _of_setting(setting, tables.brief_values(own)) if brief else [tables.full_values(own, setting)]
        minus += tables.differences([(line, pairs) for line in (own[:1] if brief else own)], setting, brief=brief)
        minus += _contrasts(plan, results, setting, brief=brief)
    sections = [
        Section("Gain beside forgetting", gain),
        Section("Composition and general abilities", values),
        Section("Differences", [*minus, Lines(_sides(plan), "contrasts")]),
        Section("Training log", list(_logged(plan, results))),
        Section("Cost", [tables.costs(_costs(plan, stages))]),
        Section("Models", [Lines(_variants(plan, facts))]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
        *further,
    ]
    several = SEVERAL_SEEDS.format(seeds=len(plan.seeds)) if len(plan.seeds) > 1 else ONE_SEED
    every = [line for own in lines.values() for line in own]
    how = tables.legend(every, intervals=several, adjusted=ADJUSTED, brief=brief)
    return Report(f"{facts['method']}: a sweep", facts["caveat"], (), sections, [how], () if brief else facts["notes"])


def _lines(plan: SweepPlan, results: Mapping[str, Any], setting: str) -> list[Line]:
    """The measures of a setting as lines of results, whose models are the variants."""
    lines = []
    for measure in results["measures"]:
        of = {name: results["settings"][setting][name]["measures"][measure] for name in plan.variants}
        estimates = {name: {key: one[key] for key in ("value", "lowest", "highest")} for name, one in of.items()}
        minus = {name: {plan.reference: one["minus"]} for name, one in of.items() if "minus" in one}
        models = {BASE: {"value": results["base"][measure]}, **estimates}
        primary = {"primary": measure} if measure == results.get("primary") else {}
        lines.append({**_named(measure), "models": models, "differences": minus, **primary})
    return lines


def _named(measure: str) -> Line:
    benchmark, colon, rest = measure.partition(": ")
    return {"benchmark": benchmark if colon else "", "subset": "all", "metric": rest or measure, "chance": None}


def _of_setting(setting: str, shown: Sequence[Table]) -> list[Table]:
    return [replace(table, title=": ".join(filter(None, (setting, table.title)))) for table in shown]


def _contrasts(plan: SweepPlan, results: Mapping[str, Any], setting: str, *, brief: bool) -> list[Table]:
    """What a part gives: the mean of the variants with it less that of those without."""
    pairs = [(f"with {name}", "without it") for name in plan.contrasts]
    shown = []
    for measure in results["measures"] if pairs else ():
        changes = {
            f"with {name}": {"without it": results["contrasts"][setting][name][measure]} for name in plan.contrasts
        }
        shown.append(({**_named(measure), "models": {}, "differences": changes}, pairs))
    return tables.differences(shown, f"{setting}: contrasts", brief=brief)


def _sides(plan: SweepPlan) -> list[str]:
    return [
        f"{name}: mean of {' + '.join(one.of)} minus mean of {' + '.join(one.without)}"
        for name, one in plan.contrasts.items()
    ]


def _logged(plan: SweepPlan, results: Mapping[str, Any]) -> Iterator[Table]:
    for setting in plan.settings:
        variants = results["settings"][setting]
        rows = [
            [name, *(unsigned(variants[name]["logged"][metric], LOGGED) for metric in plan.logged)]
            for name in (plan.variants if plan.logged else ())
        ]
        yield Table(f"{setting}: means", ["variant", *plan.logged], rows)


def _costs(plan: SweepPlan, stages: Sequence[StageSummary]) -> list[dict[str, Any]]:
    """What one run of a variant cost, as the mean over settings and seeds."""
    found = []
    for variant in plan.variants:
        runs = [stage for stage in stages if stage.name.endswith(f"/{variant}")]
        keys = ("steps", "images", "texts", "seconds")
        found.append({"name": variant} | {key: sum(getattr(run, key) for run in runs) / len(runs) for key in keys})
    return found


def _variants(plan: SweepPlan, facts: Mapping[str, Any]) -> list[str]:
    """What variants train and start from, where it is not what the recipe says."""
    found = [f"{name}: trains {objective}" for name, objective in plan.objectives.items()]
    rest = [name for name in plan.variants if name not in plan.objectives]
    found += [f"{', '.join(rest)}: trains {facts['config']['objective']}"] if found and rest else []
    found += [f"{name}: {MEANINGS[of].format(method=facts['method'])}" for name, of in plan.controls.items()]
    found += [f"{name}: starts from {of}, whose steps are on top of its own" for name, of in plan.after.items()]
    return found


def write_sweep(
    folder: Path,
    plan: SweepPlan,
    results: dict[str, Any],
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
    primary: str | None = None,
    further: Sequence[Section] = (),
) -> None:
    """Writes `sweep.json` and `report.md`, with the figures of further sections.

    Args:
        folder: of the sweep.
        plan: of the sweep.
        results: of `summarize_sweep`.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, `config`, ...; all of them go into `sweep.json`.
        primary: the primary endpoint that was asked for.
        further: sections behind the others.
    """
    written = {"plan": {**plan.facts(), "primary": primary}, "stages": [asdict(stage) for stage in stages]}
    contents = {**facts, **written, "results": results}
    files.write_results(folder / "sweep.json", {"sweep_schema_version": SCHEMA_VERSION, **contents})
    save_report(sweep_report(plan, results, stages, facts, brief=False, further=further), folder)


def print_sweep(
    plan: SweepPlan, results: dict[str, Any], stages: list[StageSummary], facts: dict[str, Any], folder: Path
) -> None:
    """The tables in the terminal, in 80 columns."""
    render_terminal(sweep_report(plan, results, stages, facts, brief=True), folder=folder)
