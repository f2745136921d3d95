"""The report of a run: what the method adds to its controls, what it forgets, and what both cost."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.evaluation.blind.results import BlindResults, blind_section, write_blind
from hfcomp.experiments.experiment_config import SAME_BATCH, STATIC_MARGIN
from hfcomp.experiments.questions import answer, lines_that_fall, questions_panel
from hfcomp.merging.report import front_figure, points_table
from hfcomp.merging.sweep import Swept
from hfcomp.reporting import tables
from hfcomp.reporting.cards.runs import FIGURE, write_run_cards
from hfcomp.reporting.lines import (
    Line,
    difference,
    general_of,
    models_of,
    of_aspect,
    points_of,
    primary_of,
    strictest,
)
from hfcomp.reporting.pages.items import ItemBrowser
from hfcomp.reporting.report import Lines, Report, Section, titled
from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE, publish
from hfcomp.run_folders import METHOD_FOLDER, guarded_name
from hfcomp.statistics import Outcomes
from hfcomp.statistics.results import ITEMS_FILE, RESULTS_FILE
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

MEANINGS = {
    BASE: "the model that all runs start from",
    "plain": "InfoNCE on the positives alone, for as many steps as {method}",
    SAME_BATCH: "InfoNCE on {method}'s own batch, negatives included: no margin, no extra term",
    STATIC_MARGIN: "{method} with the same margin for every pair, the mean of its own",
    "shuffled": "{method} with the negatives of other rows",
    "random-spans": "{method} with runs of a caption's words in place of its phrases, as many and as long",
    "equal-images": "plain with a larger batch, so that it encodes as many images as {method}",
}
FRONT = "guard.png"


def publish_run(
    folder: Path,
    *,
    items: pd.DataFrame,
    lines: Sequence[Line],
    stages: Sequence[StageSummary],
    facts: dict[str, Any],
    swept: Mapping[str, Swept] | None = None,
    page: bool = True,
    shown_items: ItemBrowser | None = None,
    blind: BlindResults | None = None,
) -> None:
    """Writes `items.parquet`, `blind.parquet`, `results.json`, `report.md`, `report.html`, the figures and the cards.

    Printed are the tables, last the verdict, its price, where the files are and what is next. `facts` are those of
    `run_report` and `hfcomp_version`; all of them go into `results.json`. `swept` are the sweeps of the forgetting
    guard, by model. `shown_items` are those of the page, which is written with `page` alone.
    """
    Outcomes(items).write(folder / ITEMS_FILE)
    write_blind(folder, blind)
    said = {
        "verdict": run_report(lines, stages, facts, brief=True, swept=swept).verdict,
        "meanings": meanings(models_of(lines), facts, swept or {}),
        "stages": [asdict(stage) for stage in stages],
    }
    contents = {**facts, **said, "results": lines}
    report = partial(run_report, lines, stages, facts, folder=folder, swept=swept)
    publish(report, contents, folder / RESULTS_FILE, page=page, items=shown_items)
    write_run_cards(folder)


def run_report(
    lines: Sequence[Line],
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    *,
    brief: bool,
    folder: Path | None = None,
    swept: Mapping[str, Swept] | None = None,
) -> Report:
    """The report of a run.

    Args:
        lines: as `summarize` makes them, the method last.
        stages: what each training run cost.
        facts: `method`, `caveat`, `notes`, `models`, `config` and where known `general_average`, `blind` and
            `published_effects`.
        brief: of the lines and differences what fits a terminal.
        folder: of the run; with it the report ends with where its files are.
        swept: of the forgetting guard, by model; then `facts` have `guard`.
    """
    models, method, caveat = models_of(lines), facts["method"], facts["caveat"]
    reference = BASE if models[:1] == [BASE] and len(models) > 1 else None
    general = general_of(lines, facts.get("general_average"))
    title = titled(f"{method}: composition, and what became of general abilities", caveat)
    lead = questions_panel(lines, general) if reference else None
    drawn = [*strictest(of_aspect(lines, "composition")), *of_aspect(lines, "general")]
    against = [(method, name) for name in models[:-1]]
    forgotten = [(name, BASE) for name in models[1:]] if reference else []
    guarded = [(name, other) for name, other in _guarded_pairs(models, method) if reference]
    of_general = [*guarded[:1], *forgotten[-1:]] if brief else [*against, *forgotten[:-1], *guarded[1:]]

    def pairs(line: Line) -> list[tuple[str, str]]:
        return of_general if line["aspect"] == "general" else [*against, *guarded]

    known = [f"{name}: {meaning}" for name, meaning in meanings(models, facts, swept or {}).items()]
    sections = [
        Section("", [tables.figure_of_lines(FIGURE, title, drawn, reference=reference, main=method, lead=lead)]),
        *tables.sections_of_lines(lines, pairs, reference=reference, general=general, brief=brief, edges=True),
        *([blind_section(facts["blind"], models, brief=brief)] if facts.get("blind") else []),
        Section("Lines that fall", [] if brief else [Lines(lines_that_fall(lines))]),
        _guard_section(facts, swept, titled(f"Forgetting guard: {method}", caveat), brief=brief),
        Section("Cost", [tables.costs(tables.mean_stages([asdict(stage) for stage in stages]))]),
        Section("Models", [Lines(known), *([] if brief else [tables.facts_table(facts["models"])])]),
        Section("How it was made", [] if brief else [tables.made_table(facts["config"])]),
    ]
    how = [tables.legend(lines, adjusted=tables.ADJUSTED_IN_RUNS, brief=brief)]
    closing = _closing(folder, facts) if folder else {}
    verdict = [
        *answer(lines, general, facts.get("published_effects", ())),
        *_guarded(lines, general, swept or {}, method),
    ]
    return Report(method, caveat, verdict, sections, how, () if brief else facts["notes"], closing)


def _guarded_pairs(models: Sequence[str], method: str) -> list[tuple[str, str]]:
    """The guarded method against the base, then against the guarded control."""
    own, others = guarded_name(method), (BASE, guarded_name(SAME_BATCH))
    return [(own, name) for name in others if {own, name} <= {*models}]


def _guard_section(facts: Mapping[str, Any], swept: Mapping[str, Swept] | None, title: str, *, brief: bool) -> Section:
    """How the points were chosen."""
    if not swept:
        return Section("", [])
    points = [] if brief else [points_table(name, one) for name, one in swept.items()]
    rule = f"Chosen is the point with {next(iter(swept.values())).rule}, on {facts['guard']['items']}."
    return Section("Forgetting guard", [Lines([rule]), front_figure(FRONT, title, swept), *points])


def _guarded(lines: Sequence[Line], general: Line | None, swept: Mapping[str, Swept], method: str) -> list[str]:
    """What the guarded method keeps of the gain and still forgets, against the guarded control and the base."""
    primary, name = primary_of(lines), guarded_name(method)
    if method not in swept or primary is None or general is None:
        return []
    others = [other for other in (guarded_name(SAME_BATCH), BASE) if other in models_of(lines)]
    gain, change = (_against(line, name, others) for line in (primary, general))
    alpha = f"{swept[method].chosen.alpha:g}"
    return [f"Guarded (alpha {alpha}) on this seed: {primary['primary']} {gain}; general abilities {change}."]


def _against(line: Line, method: str, others: Sequence[str]) -> str:
    """The differences to some models, in a sentence."""
    return ", ".join(f"{points_of(difference(line, method, other), line)} against {other}" for other in others)


def meanings(models: Sequence[str], facts: Mapping[str, Any], swept: Mapping[str, Swept]) -> dict[str, str]:
    """What the base, the controls and the guarded ones among the models are, by name; `facts` know some."""
    known = {name: MEANINGS[name].format(method=facts["method"]) for name in models if name in MEANINGS}
    known |= {name: text for name, text in facts.get("meanings", {}).items() if name in models}
    return known | {
        guarded_name(name): f"between base and {name}, at alpha {one.chosen.alpha:g}" for name, one in swept.items()
    }


def _closing(folder: Path, facts: Mapping[str, Any]) -> dict[str, str]:
    """Where the files are, and the next command."""
    there = [str(folder / name) for name in (REPORT_FILE, PAGE_FILE, FIGURE) if (folder / name).is_file()]
    trained = str(folder / METHOD_FOLDER)
    models = {BASE: facts["models"][BASE]["path"], facts["method"]: trained}
    return {"report": ", ".join(there), "model": trained, "next": evaluate_command(models)}


def evaluate_command(models: Mapping[str, str]) -> str:
    """The command that scores models, by name their paths, on benchmarks."""
    named = [f"{name}={path}" for name, path in models.items()]
    return shlex.join(["hfcomp", "evaluate", *named, "--suite", "compositional"])
