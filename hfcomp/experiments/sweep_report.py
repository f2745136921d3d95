"""From the numbers of a sweep to `sweep.json`, `report.md` and the tables in the terminal.

`sweep.json` holds `sweep_schema_version`, raised when a key changes its meaning, what `publish_sweep` is given, and as
`results` the contents of `SweepResults`. Of version 2 are `primary` in place of the measure `mean`, and
`minus` with intervals and p that hold for other seeds too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.experiments.plans import SweepPlan
from hfcomp.experiments.report import MEANINGS, evaluate_command, publish
from hfcomp.experiments.sweep_results import SweepResults, contrast_pair, part_name
from hfcomp.metrics.units import Unit
from hfcomp.reporting import tables
from hfcomp.reporting.format import decimal, direction
from hfcomp.reporting.lines import Line, general_of, name_of, points_of, primary_of
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.tables import merge_sections, sections_of_lines
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

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
    results: SweepResults,
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    *,
    brief: bool,
    further: Sequence[Section] = (),
    folder: Path | None = None,
) -> Report:
    """The report of a sweep.

    Args:
        plan: of the sweep.
        results: of `summarize_sweep`.
        stages: what each training run cost.
        facts: as in `publish_sweep`.
        brief: differences on the first measure alone, values without the range of seeds.
        further: sections behind the others, of the whole report.
        folder: of the sweep; with it the report ends with where its files lie.
    """
    every = [line for own in results.lines.values() for line in own]
    pairs = [(name, plan.reference) for name in plan.variants if name != plan.reference]
    pairs += map(contrast_pair, plan.contrasts)
    first = every[0]["name"]
    parts = {
        setting: sections_of_lines(
            own,
            lambda line: pairs if not brief or line["name"] == first else [],
            reference=plan.reference,
            general=general_of(own, results.general[setting]),
            brief=brief,
        )
        for setting, own in results.lines.items()
    }
    sections = [
        *merge_sections(parts),
        Section("Contrasts", [Lines(_sides(plan))]),
        Section("Training log", list(_logged(plan, results.contents))),
        Section("Cost", [tables.costs(_costs(plan, stages))]),
        Section("Models", [Lines(_variants(plan, facts))]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
        *([] if brief else further),
    ]
    several = SEVERAL_SEEDS.format(seeds=len(plan.seeds)) if len(plan.seeds) > 1 else ONE_SEED
    how = tables.legend(every, intervals=several, adjusted=ADJUSTED, brief=brief)
    verdict = [text for setting in plan.settings for text in _verdict(plan, results, setting)]
    closing = _closing(plan, facts, folder) if folder else {}
    title, notes = f"{facts['method']}: a sweep", () if brief else facts["notes"]
    return Report(title, facts["caveat"], verdict, sections, [how], notes, closing)


def _verdict(plan: SweepPlan, results: SweepResults, setting: str) -> Iterator[str]:
    """Which variants differ from the reference on the primary endpoint, and in general abilities."""
    lines = results.lines[setting]
    primary, general = primary_of(lines), general_of(lines, results.general[setting])
    if primary is not None:
        yield f"{setting}: {primary['primary']} (primary endpoint, p by Holm){_told(primary, plan)}."
    if general is not None:
        yield f"{setting}: price: general abilities ({name_of(general)}){_told(general, plan)}."


def _told(line: Line, plan: SweepPlan) -> str:
    """Which variants differ from the reference by how much, and which do not; p of Holm goes before an interval."""
    changes = {name: minus[plan.reference] for name, minus in line["differences"].items() if plan.reference in minus}
    signs = {
        name: direction({"value": one["value"], "p": one["p_holm"]} if "p_holm" in one else one)
        for name, one in changes.items()
    }
    parts = []
    for word, sign in (("better", 1), ("worse", -1)):
        found = [f"{name} {points_of(changes[name], line)}" for name in changes if signs[name] == sign]
        parts += [f"{word} than {plan.reference}: {', '.join(found)}"] if found else []
    alike = [name for name in changes if not signs[name]]
    parts += [f"no significant difference to {plan.reference}: {', '.join(alike)}"] if alike else []
    return ": " + "; ".join(parts) if parts else ""


def _closing(plan: SweepPlan, facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Where the files lie, and how to score the first runs on benchmarks."""
    models = {BASE: BASE} | {name: part_name(*plan.first, name) for name in plan.variants}
    paths = {name: facts["models"][part]["path"] for name, part in models.items()}
    return {"written to": str(folder), "next": evaluate_command(paths)}


def _sides(plan: SweepPlan) -> list[str]:
    return [
        f"{name}: mean of {' + '.join(one.of)} minus mean of {' + '.join(one.without)}"
        for name, one in plan.contrasts.items()
    ]


def _logged(plan: SweepPlan, results: Mapping[str, Any]) -> Iterator[Table]:
    for setting in plan.settings:
        variants = results["settings"][setting]
        rows = [
            [name, *(decimal(variants[name]["logged"][metric], LOGGED) for metric in plan.logged)]
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


def publish_sweep(
    folder: Path,
    plan: SweepPlan,
    results: SweepResults,
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
    primary: str | None = None,
    further: Sequence[Section] = (),
) -> None:
    """Writes `sweep.json` and `report.md`, with the figures of further sections, and prints the tables.

    Args:
        folder: of the sweep.
        plan: of the sweep.
        results: of `summarize_sweep`.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, `config`, `models`, ...; all of them go into `sweep.json`.
        primary: the primary endpoint that was asked for.
        further: sections behind the others.
    """
    written = {"plan": {**plan.facts(), "primary": primary}, "stages": [asdict(stage) for stage in stages]}
    contents = {"sweep_schema_version": SCHEMA_VERSION, **facts, **written, "results": results.contents}
    report = partial(sweep_report, plan, results, stages, facts, further=further, folder=folder)
    publish(report, contents, folder / "sweep.json")
