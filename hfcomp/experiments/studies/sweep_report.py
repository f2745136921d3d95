"""Summarizes the outcomes of a sweep, writes `sweep.json` and `report.md`, and prints the tables.

`sweep.json` contains `sweep_schema_version` (raised when a key changes its meaning), the facts and plan passed to
`publish_sweep`, and `SweepResults.contents` as `results`. Since version 3, intervals and p-values come from
`difference_over_seeds`, and the intervals have correct coverage even with only three seeds. Version 2 replaced the
measure `mean` with `primary` and introduced `minus`, with intervals and p-values that also apply to other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import nan
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from hfcomp.experiments.report import MEANINGS, evaluate_command
from hfcomp.experiments.studies.plans import ChoicePlan, Contrast, SweepPlan
from hfcomp.metrics.units import Unit
from hfcomp.reading import nearest
from hfcomp.reporting import made_tables, tables
from hfcomp.reporting.format import decimal, direction, number
from hfcomp.reporting.line_values import points_of
from hfcomp.reporting.lines import Line, general_of, name_of, primary_of, select_aspect, subsets_of
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.reporting.saving import publish
from hfcomp.statistics import Outcomes
from hfcomp.statistics.measures import Average, Measure
from hfcomp.statistics.outcomes import NO_SEED
from hfcomp.statistics.run import summarize_settings
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.stages import mean_logged

SCHEMA_VERSION = 3
ADJUSTED = (
    "adj. p is corrected for the number of differences. For the primary endpoint, it is Holm's p-value over variants "
    "and settings; for all others, it is the q-value of Benjamini and Hochberg. Contrasts are corrected separately."
)
LOG_UNIT = Unit(1, 3)
COSTS = ("name", "steps", "images", "texts", "seconds")


@dataclass(frozen=True)
class Candidate:
    """A setting that may be chosen, with the scores of the control as fractions."""

    setting: str
    primary: float
    general: float  # mean over the lines that the plan names
    loss: float  # the base's mean over these lines minus this mean


@dataclass(frozen=True)
class Choice:
    """The setting that a plan's rule chooses."""

    control: str  # variant that the rule was applied to
    endpoint: str  # name of the primary endpoint
    base: float  # mean of the base over the general lines, 0 to 1
    candidates: list[Candidate]  # all settings, in the plan's order
    chosen: Candidate
    is_kept: bool  # whether the chosen setting loses at most the tolerance; if False, all settings lose more
    lines: int  # number of general lines

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def check_choice(plan: ChoicePlan, scored: Sequence[str], primary: Measure | None) -> None:
    """Raises if a line of the plan is not among the scored measures, or if there is no primary endpoint."""
    if primary is None:
        raise ValueError(
            "choose: needs a primary endpoint of composition, but none is scored. Score one, or remove choose."
        )
    for name in plan.keep or ():
        if name not in scored:
            raise ValueError(
                f"choose: keep: {name!r} is not scored by this evaluation.{nearest(name, scored)} "
                f"Known: {'; '.join(scored)}."
            )


def choose_setting(lines: Mapping[str, Sequence[Line]], control: str, plan: ChoicePlan) -> Choice:
    """Applies the rule of `ChoicePlan` to the variant `control`; each setting must have one primary line."""
    first = next(iter(lines.values()))
    kept_lines = plan.keep or [line["name"] for line in subsets_of(select_aspect(first, "general"))]
    base, endpoint = _mean_of_lines(first, BASE, kept_lines), str(_primary_line(first)["primary"])
    candidates = []
    for setting, own in lines.items():
        general = _mean_of_lines(own, control, kept_lines)
        primary = number(_primary_line(own)["models"][control]["value"])
        # Rounded, because 0.75 - 0.74 exceeds 0.01 in floating point, but a loss equal to the tolerance is allowed.
        candidates.append(Candidate(setting, primary, general, round(base - general, 12)))
    kept = [candidate for candidate in candidates if candidate.loss <= plan.tolerance]
    chosen = max(kept, key=attrgetter("primary")) if kept else min(candidates, key=attrgetter("loss"))
    return Choice(control, endpoint, base, candidates, chosen, bool(kept), len(kept_lines))


def choice_section(choice: Choice, plan: ChoicePlan) -> Section:
    header = ["setting", choice.endpoint, "general", "loss against base", "within tolerance"]
    rows = [
        [
            candidate.setting,
            decimal(candidate.primary),
            decimal(candidate.general),
            decimal(candidate.loss, sign="+"),
            "yes" if candidate.loss <= plan.tolerance else "no",
        ]
        for candidate in choice.candidates
    ]
    rule = (
        f"Rule: among the settings in which {choice.control} loses at most {decimal(plan.tolerance)} points of "
        f"general abilities (mean of {choice.lines} lines, {decimal(choice.base)} for {BASE}), choose the one with "
        f"the highest {choice.endpoint}; if there is none, choose the one that loses least."
    )
    return Section("Choice of a setting", [Table("", header, rows), Lines([rule])])


def choice_verdict(choice: Choice, plan: ChoicePlan) -> str:
    chosen = choice.chosen
    loss = decimal(chosen.loss, sign="+")
    numbers = f"{choice.endpoint} {decimal(chosen.primary)}, loss of general abilities {loss} points"
    if choice.is_kept:
        return f"Chosen from the scores of {choice.control} alone: {chosen.setting} ({numbers})."
    return (
        f"No setting keeps the loss of general abilities within {decimal(plan.tolerance)} points. The setting that "
        f"loses least, from the scores of {choice.control} alone: {chosen.setting} ({numbers})."
    )


def _primary_line(lines: Sequence[Line]) -> Line:
    return next(line for line in lines if line.get("primary"))


def _mean_of_lines(lines: Sequence[Line], model: str, names: Sequence[str]) -> float:
    known = {line["name"]: line for line in lines}
    return sum(number(known[name]["models"][model]["value"]) for name in names) / len(names)


def part_name(setting: str, seed: int, variant: str) -> str:
    return f"{setting}/{seed}/{variant}"


def contrast_pair(name: str) -> tuple[str, str]:
    """The names of the two sides of a contrast in a report."""
    return f"with {name}", "without it"


def relative_change(line: Line, contrast: Contrast) -> float:
    """The difference of a contrast, divided by the mean of the variants without the part; NaN if that mean is 0."""
    present, absent = (
        fmean(number(line["models"][name]["value"]) for name in names) for names in (contrast.of, contrast.without)
    )
    return (present - absent) / absent if absent else nan


@dataclass(frozen=True)
class SweepResults:
    """The numbers of a sweep by setting: lines, mean of general abilities, and training-log means by variant."""

    plan: SweepPlan
    lines: dict[str, list[Line]]
    general: dict[str, Line | None]
    logged: dict[str, dict[str, dict[str, float]]]

    @property
    def contents(self) -> dict[str, Any]:
        """The `results` of `sweep.json`.

        The keys are `measures` (their names), `primary` (the first of them, if any), `base` (measure to value),
        `settings` and `contrasts`. `settings` maps setting and variant to `measures` and `logged` (metric to mean).
        Each measure has `value`, `lowest`, `highest`, `seeds` and, except for the reference, `minus` with `value`,
        `low`, `high`, `p`, and `p_holm` or `q`. `contrasts` maps setting, contrast and measure to numbers like those
        of `minus`: the mean of the variants with a part minus the mean of those without, and as `relative`, this
        difference divided by the latter. Fractions are in 0..1.
        """
        first, plan = self.lines[self.plan.first[0]], self.plan
        settings = {
            setting: {
                name: {"measures": {line["name"]: self._numbers(line, name) for line in own}, "logged": logged}
                for name, logged in self.logged[setting].items()
            }
            for setting, own in self.lines.items()
        }
        contrasts = {
            setting: {
                name: {
                    line["name"]: {**line["differences"][present][absent], "relative": relative_change(line, contrast)}
                    for line in own
                }
                for name, contrast in plan.contrasts.items()
                for present, absent in [contrast_pair(name)]
            }
            for setting, own in self.lines.items()
        }
        return {
            "measures": [line["name"] for line in first],
            "primary": next((line["primary"] for line in first if "primary" in line), None),
            "base": {line["name"]: line["models"][BASE]["value"] for line in first},
            "settings": settings,
            "contrasts": contrasts,
            **({"choice": self.choice.facts()} if self.choice else {}),
        }

    @property
    def choice(self) -> Choice | None:
        return self.plan.choose and choose_setting(self.lines, self.plan.reference, self.plan.choose)

    def _numbers(self, line: Line, variant: str) -> dict[str, Any]:
        estimate, minus = line["models"][variant], line["differences"].get(variant)
        seeds = estimate.get("seeds", [estimate["value"]])
        numbers = {"value": estimate["value"], "lowest": min(seeds), "highest": max(seeds), "seeds": seeds}
        return numbers | ({"minus": minus[self.plan.reference]} if minus else {})


def summarize_sweep(
    outcomes: Outcomes | pd.DataFrame,
    plan: SweepPlan,
    folder: Path,
    declared: Mapping[str, Sequence[Average]] | None = None,
    primary: str | None = None,
) -> SweepResults:
    """Summarizes a sweep with `summarize_settings` and reads the training logs in its folder.

    `outcomes` must contain `base` and every part, with arms named by `part_name`.
    """
    contrasts = {contrast_pair(name): (contrast.of, contrast.without) for name, contrast in plan.contrasts.items()}
    how = {"reference": plan.reference, "contrasts": contrasts, "benchmarks": plan.benchmarks}
    by_setting = {setting: _select_setting(Outcomes.of(outcomes), plan, setting) for setting in plan.settings}
    summaries = summarize_settings(by_setting, list(plan.variants), **how, primary=primary, declared=declared or {})

    def folders(setting: str, name: str) -> list[Path]:
        return [folder / part_name(setting, seed, name) for seed in plan.seeds]

    logged = {
        setting: {
            name: {metric: mean_logged(folders(setting, name), metric) for metric in plan.logged}
            for name in plan.variants
        }
        for setting in plan.settings
    }
    lines, general = ({setting: summary[index] for setting, summary in summaries.items()} for index in (0, 1))
    return SweepResults(plan, lines, general, logged)


def _select_setting(outcomes: Outcomes, plan: SweepPlan, setting: str) -> Outcomes:
    parts = {part_name(setting, seed, name): (name, seed) for name in plan.variants for seed in plan.seeds}
    return outcomes.relabel({**parts, BASE: (BASE, NO_SEED)})


def publish_sweep(
    folder: Path,
    results: SweepResults,
    *,
    stages: list[StageSummary],
    facts: dict[str, Any],
    primary: str | None = None,
    further: Sequence[Section] = (),
) -> None:
    """Writes `sweep.json` and `report.md`, and prints the tables.

    `facts` (`method`, `caveat`, `notes`, `config`, `models`, ...) and the requested primary endpoint are written into
    `sweep.json`. The sections in `further` are appended to `report.md`, with their figures.
    """
    written = {"plan": {**results.plan.facts(), "primary": primary}, "stages": [asdict(stage) for stage in stages]}
    contents = {"sweep_schema_version": SCHEMA_VERSION, **facts, **written, "results": results.contents}
    report = partial(sweep_report, results, stages, facts, folder, further=further)
    publish(report, contents, folder / "sweep.json")


def sweep_report(
    results: SweepResults,
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    folder: Path,
    *,
    brief: bool,
    further: Sequence[Section] = (),
) -> Report:
    """The report of a sweep; the sections in `further` are appended to it unless it is brief.

    The brief report shows differences only for the first measure, and omits the range over seeds.
    """
    plan = results.plan
    every = [line for own in results.lines.values() for line in own]
    pairs = [(name, plan.reference) for name in plan.variants if name != plan.reference]
    pairs += map(contrast_pair, plan.contrasts)
    parts, verdict = {}, []
    for setting, own in results.lines.items():
        general = general_of(own, results.general[setting])
        parts[setting] = tables.sections_of_lines(
            own,
            lambda line: pairs if not brief or line["name"] == every[0]["name"] else [],
            reference=plan.reference,
            general=general,
            brief=brief,
        )
        where = setting if len(plan.seeds) > 1 else f"{setting}, on this seed"
        verdict += [f"{where}: {sentence}" for sentence in _verdict(plan.reference, primary_of(own), general)]
    measured = tables.merge_sections(parts)
    if plan.choose and (choice := results.choice):
        verdict = [choice_verdict(choice, plan.choose)]
        measured = [choice_section(choice, plan.choose), *([] if brief else measured)]
    costs = made_tables.mean_stages([{key: getattr(stage, key) for key in COSTS} for stage in stages])
    sections = [
        *measured,
        Section("Contrasts", [Lines(_contrast_lines(plan)), *([] if brief else _relative_changes(results))]),
        Section("Training log", list(_log_means(results))),
        Section("Cost", [made_tables.costs(costs)]),
        Section("Models", [Lines(_variant_lines(plan, facts))]),
        Section("How it was made", [] if brief else [made_tables.made_table(facts["config"])]),
        *([] if brief else further),
    ]
    how = tables.legend(every, adjusted=ADJUSTED, brief=brief)
    title, notes = f"{facts['method']}: sweep", () if brief else facts["notes"]
    return Report(title, facts["caveat"], verdict, sections, [how], notes, _closing(plan, facts, folder))


def _verdict(reference: str, primary: Line | None, general: Line | None) -> Iterator[str]:
    if primary is not None:
        yield f"{primary['primary']} (primary endpoint, p by Holm){_compare_with_reference(primary, reference)}."
    if general is not None:
        yield f"general abilities ({name_of(general)}){_compare_with_reference(general, reference)}."


def _compare_with_reference(line: Line, reference: str) -> str:
    changes = {name: minus[reference] for name, minus in line["differences"].items() if reference in minus}
    # The adjusted p takes precedence over an interval that excludes 0, because with many variants, one interval in
    # twenty does so by chance.
    signs = {
        name: direction({"value": change["value"], "p": change["p_holm"]} if "p_holm" in change else change)
        for name, change in changes.items()
    }
    parts = []
    for word, sign in (("better", 1), ("worse", -1)):
        names = [f"{name} {points_of(changes[name], line)}" for name in changes if signs[name] == sign]
        parts += [f"{word} than {reference}: {', '.join(names)}"] if names else []
    alike = [name for name in changes if signs[name] == 0]
    parts += [f"no significant difference from {reference}: {', '.join(alike)}"] if alike else []
    untested = [name for name in changes if signs[name] is None]
    parts += [f"not tested: {', '.join(untested)}"] if untested else []
    return f": {'; '.join(parts)}" if parts else ""


def _closing(plan: SweepPlan, facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """The output folder, and a command that scores the models of the first setting and seed on benchmarks."""
    models = {BASE: BASE} | {name: part_name(*plan.first, name) for name in plan.variants}
    paths = {name: facts["models"][part]["path"] for name, part in models.items()}
    return {"written to": str(folder), "next": evaluate_command(paths)}


def _contrast_lines(plan: SweepPlan) -> list[str]:
    return [
        f"{name}: mean of {' + '.join(contrast.of)} minus mean of {' + '.join(contrast.without)}"
        for name, contrast in plan.contrasts.items()
    ]


def _relative_changes(results: SweepResults) -> Iterator[Table]:
    """Yields the contrasts as papers state gains, in percent of the mean without the part."""
    contrasts = results.plan.contrasts
    for setting, own in results.lines.items() if contrasts else ():
        changes = {line["name"]: [relative_change(line, contrast) for contrast in contrasts.values()] for line in own}
        rows = [[name, *(decimal(change, sign="+") for change in own)] for name, own in changes.items()]
        yield Table(f"{setting}: relative change, in percent of the mean without the part", ["", *contrasts], rows)


def _log_means(results: SweepResults) -> Iterator[Table]:
    for setting, variants in results.logged.items():
        rows = [[name, *(decimal(mean, LOG_UNIT) for mean in logged.values())] for name, logged in variants.items()]
        yield Table(f"{setting}: means", ["variant", *results.plan.logged], rows if results.plan.logged else [])


def _variant_lines(plan: SweepPlan, facts: Mapping[str, Any]) -> list[str]:
    """Lines for variants whose objective or start differs from the recipe's."""
    objectives, controls, after = (plan.variant_values(key) for key in ("objective", "control", "after"))
    lines = [f"{name}: trained with {objective}" for name, objective in objectives.items()]
    rest = [name for name in plan.variants if name not in objectives]
    lines += [f"{', '.join(rest)}: trained with {facts['config']['objective']}"] if lines and rest else []
    lines += [f"{name}: {MEANINGS[control].format(method=facts['method'])}" for name, control in controls.items()]
    lines += [f"{name}: starts from {start}, so it was trained for the steps of both" for name, start in after.items()]
    return lines
