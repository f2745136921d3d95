"""From the outcomes of a sweep to its numbers, `sweep.json`, `report.md` and the tables in the terminal.

`sweep.json` holds `sweep_schema_version`, raised when a key changes its meaning, what `publish_sweep` is given, and as
`results` those of `SweepResults.contents`. Of version 3 are intervals and p of `difference_over_seeds`, which cover
with three seeds too. Of version 2 are `primary` in place of the measure `mean`, and `minus` with intervals and p that
hold for other seeds too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.experiments.report import MEANINGS, evaluate_command
from hfcomp.experiments.studies.plans import ChoicePlan, SweepPlan
from hfcomp.metrics.units import Unit
from hfcomp.reading import nearest
from hfcomp.reporting import made_tables, tables
from hfcomp.reporting.format import decimal, direction, number
from hfcomp.reporting.line_values import points_of
from hfcomp.reporting.lines import Line, general_of, name_of, of_aspect, primary_of, subsets_of
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
    "adj. p is adjusted for the number of differences: on the primary endpoint by Holm, over variants and settings; "
    "all others as q (Benjamini and Hochberg). Contrasts are adjusted among themselves."
)
LOGGED = Unit(1, 3)
COSTS = ("name", "steps", "images", "texts", "seconds")


@dataclass(frozen=True)
class Candidate:
    """A setting that may be chosen, with the control's scores as fractions."""

    setting: str
    primary: float
    general: float  # mean of the lines that the plan names
    loss: float  # the base's mean of these lines less this one


@dataclass(frozen=True)
class Choice:
    """The setting that a plan's rule chooses."""

    control: str  # the variant that was judged
    endpoint: str  # name of the primary endpoint
    base: float  # its mean of the general lines, 0 to 1
    candidates: list[Candidate]  # all settings, in the plan's order
    chosen: Candidate
    is_kept: bool  # whether it loses at most the tolerance; if not, none does
    lines: int  # number of general lines

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def check_choice(plan: ChoicePlan, scored: Sequence[str], primary: Measure | None) -> None:
    """Raises for a line of the plan that is not among the scored measures, or no primary endpoint."""
    if primary is None:
        raise ValueError("choose: compares primary endpoints of composition, and none is scored.")
    for name in plan.keep or ():
        if name not in scored:
            raise ValueError(
                f"choose: keep: {name!r} is not scored by this evaluation.{nearest(name, scored)} "
                f"Known: {'; '.join(scored)}."
            )


def choose_setting(lines: Mapping[str, Sequence[Line]], control: str, plan: ChoicePlan) -> Choice:
    """Applies the rule of `ChoicePlan` to the variant `control`; of the lines of each setting one is primary."""
    first = next(iter(lines.values()))
    kept_lines = plan.keep or [line["name"] for line in subsets_of(of_aspect(first, "general"))]
    base, endpoint = _general(first, BASE, kept_lines), str(_primary(first)["primary"])
    candidates = []
    for setting, own in lines.items():
        general = _general(own, control, kept_lines)
        primary = number(_primary(own)["models"][control]["value"])
        # Rounded, because 0.75 - 0.74 is above 0.01 in floating point, and a loss of exactly the tolerance is within
        # it.
        candidates.append(Candidate(setting, primary, general, round(base - general, 12)))
    kept = [one for one in candidates if one.loss <= plan.tolerance]
    chosen = max(kept, key=lambda one: one.primary) if kept else min(candidates, key=lambda one: one.loss)
    return Choice(control, endpoint, base, candidates, chosen, bool(kept), len(kept_lines))


def choice_section(choice: Choice, plan: ChoicePlan) -> Section:
    header = ["setting", choice.endpoint, "general", "loss against base", "within tolerance"]
    rows = [
        [
            one.setting,
            decimal(one.primary),
            decimal(one.general),
            decimal(one.loss, sign="+"),
            "yes" if one.loss <= plan.tolerance else "no",
        ]
        for one in choice.candidates
    ]
    rule = (
        f"Rule: of the settings in which {choice.control} loses at most {decimal(plan.tolerance)} points of general "
        f"abilities (the mean of {choice.lines} lines, {decimal(choice.base)} for {BASE}), the one with its highest "
        f"{choice.endpoint}; if there is none, the one that loses least."
    )
    return Section("Choice of a setting", [Table("", header, rows), Lines([rule])])


def choice_verdict(choice: Choice, plan: ChoicePlan) -> str:
    one = choice.chosen
    numbers = (
        f"{choice.endpoint} {decimal(one.primary)}, loss of general abilities {decimal(one.loss, sign='+')} points"
    )
    if choice.is_kept:
        return f"Chosen on {choice.control} alone: {one.setting} ({numbers})."
    return (
        f"No setting keeps the loss of general abilities within {decimal(plan.tolerance)} points. Chosen on "
        f"{choice.control} alone is the one that loses least: {one.setting} ({numbers})."
    )


def _primary(lines: Sequence[Line]) -> Line:
    return next(line for line in lines if line.get("primary"))


def _general(lines: Sequence[Line], model: str, names: Sequence[str]) -> float:
    known = {line["name"]: line for line in lines}
    return sum(number(known[name]["models"][model]["value"]) for name in names) / len(names)


def part_name(setting: str, seed: int, variant: str) -> str:
    return f"{setting}/{seed}/{variant}"


def contrast_pair(name: str) -> tuple[str, str]:
    """Names of the two sides of a contrast in a report."""
    return f"with {name}", "without it"


@dataclass(frozen=True)
class SweepResults:
    """The numbers of a sweep by setting: lines, the mean of general abilities, and by variant the means of the log."""

    plan: SweepPlan
    lines: dict[str, list[Line]]
    general: dict[str, Line | None]
    logged: dict[str, dict[str, dict[str, float]]]

    @property
    def contents(self) -> dict[str, Any]:
        """The `results` of `sweep.json`.

        `measures` (their names), `primary` (the first of them, if there is one), `base` (measure to value) and
        `settings`: setting to variant to `measures` (measure to `value`, `lowest`, `highest`, `seeds`, and but for the
        reference `minus` with `value`, `low`, `high`, `p`, and `p_holm` or `q`) and `logged` (metric to mean);
        `contrasts`: setting to contrast to measure to the same as `minus`, the mean of the variants with something
        less that of those without. Fractions are in 0..1.
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
                name: {line["name"]: line["differences"][one][other] for line in own}
                for name, (one, other) in ((name, contrast_pair(name)) for name in plan.contrasts)
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
        found, minus = line["models"][variant], line["differences"].get(variant)
        seeds = found.get("seeds", [found["value"]])
        numbers = {"value": found["value"], "lowest": min(seeds), "highest": max(seeds), "seeds": seeds}
        return numbers | ({"minus": minus[self.plan.reference]} if minus else {})


def summarize_sweep(
    outcomes: Outcomes | pd.DataFrame,
    plan: SweepPlan,
    folder: Path,
    declared: Mapping[str, Sequence[Average]] | None = None,
    primary: str | None = None,
) -> SweepResults:
    """The numbers of a sweep, see `summarize_settings`, and what was logged in its folder.

    Outcomes are of `base` and of every part, whose arms are named by `part_name`.
    """
    contrasts = {contrast_pair(name): (one.of, one.without) for name, one in plan.contrasts.items()}
    how = {"reference": plan.reference, "contrasts": contrasts, "benchmarks": plan.benchmarks}
    of_settings = {setting: _of_setting(Outcomes.of(outcomes), plan, setting) for setting in plan.settings}
    found = summarize_settings(of_settings, list(plan.variants), **how, primary=primary, declared=declared or {})

    def folders(setting: str, name: str) -> list[Path]:
        return [folder / part_name(setting, seed, name) for seed in plan.seeds]

    logged = {
        setting: {
            name: {metric: mean_logged(folders(setting, name), metric) for metric in plan.logged}
            for name in plan.variants
        }
        for setting in plan.settings
    }
    lines, general = ({setting: one[index] for setting, one in found.items()} for index in (0, 1))
    return SweepResults(plan, lines, general, logged)


def _of_setting(outcomes: Outcomes, plan: SweepPlan, setting: str) -> Outcomes:
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
    """Writes `sweep.json` and `report.md`, with the figures of further sections, and prints the tables.

    `facts` (`method`, `caveat`, `notes`, `config`, `models`, ...) and the primary endpoint that was asked for go into
    `sweep.json`.
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
    """The report of a sweep, with further sections behind the others, as in `publish_sweep`.

    In brief there are differences on the first measure alone, and values without the range of seeds.
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
    costs = made_tables.mean_stages([{key: getattr(one, key) for key in COSTS} for one in stages])
    sections = [
        *measured,
        Section("Contrasts", [Lines(_sides(plan))]),
        Section("Training log", list(_log_means(results))),
        Section("Cost", [made_tables.costs(costs)]),
        Section("Models", [Lines(_variants(plan, facts))]),
        Section("How it was made", [] if brief else [made_tables.made_table(facts["config"])]),
        *([] if brief else further),
    ]
    how = tables.legend(every, adjusted=ADJUSTED, brief=brief)
    title, notes = f"{facts['method']}: a sweep", () if brief else facts["notes"]
    return Report(title, facts["caveat"], verdict, sections, [how], notes, _closing(plan, facts, folder))


def _verdict(reference: str, primary: Line | None, general: Line | None) -> Iterator[str]:
    if primary is not None:
        yield f"{primary['primary']} (primary endpoint, p by Holm){_compared(primary, reference)}."
    if general is not None:
        yield f"price: general abilities ({name_of(general)}){_compared(general, reference)}."


def _compared(line: Line, reference: str) -> str:
    changes = {name: minus[reference] for name, minus in line["differences"].items() if reference in minus}
    # The adjusted p takes precedence over an interval that excludes 0: with many variants one in twenty does by
    # chance.
    signs = {
        name: direction({"value": one["value"], "p": one["p_holm"]} if "p_holm" in one else one)
        for name, one in changes.items()
    }
    parts = []
    for word, sign in (("better", 1), ("worse", -1)):
        found = [f"{name} {points_of(changes[name], line)}" for name in changes if signs[name] == sign]
        parts += [f"{word} than {reference}: {', '.join(found)}"] if found else []
    alike = [name for name in changes if signs[name] == 0]
    parts += [f"no significant difference to {reference}: {', '.join(alike)}"] if alike else []
    untested = [name for name in changes if signs[name] is None]
    parts += [f"not tested: {', '.join(untested)}"] if untested else []
    return f": {'; '.join(parts)}" if parts else ""


def _closing(plan: SweepPlan, facts: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Where the files are, and how to score the first runs on benchmarks."""
    models = {BASE: BASE} | {name: part_name(*plan.first, name) for name in plan.variants}
    paths = {name: facts["models"][part]["path"] for name, part in models.items()}
    return {"written to": str(folder), "next": evaluate_command(paths)}


def _sides(plan: SweepPlan) -> list[str]:
    return [
        f"{name}: mean of {' + '.join(one.of)} minus mean of {' + '.join(one.without)}"
        for name, one in plan.contrasts.items()
    ]


def _log_means(results: SweepResults) -> Iterator[Table]:
    for setting, variants in results.logged.items():
        rows = [[name, *(decimal(mean, LOGGED) for mean in logged.values())] for name, logged in variants.items()]
        yield Table(f"{setting}: means", ["variant", *results.plan.logged], rows if results.plan.logged else [])


def _variants(plan: SweepPlan, facts: Mapping[str, Any]) -> list[str]:
    """What variants train and start from, where it is not what the recipe says."""
    objectives = plan.chosen("objective")
    found = [f"{name}: trains {objective}" for name, objective in objectives.items()]
    rest = [name for name in plan.variants if name not in objectives]
    found += [f"{', '.join(rest)}: trains {facts['config']['objective']}"] if found and rest else []
    found += [f"{name}: {MEANINGS[of].format(method=facts['method'])}" for name, of in plan.chosen("control").items()]
    after = plan.chosen("after")
    found += [f"{name}: starts from {start}, whose steps are on top of its own" for name, start in after.items()]
    return found
