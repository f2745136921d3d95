"""The report of a run: what the method adds to its controls, what it forgets, and what both cost.

It answers three questions first: what the negatives gave, what the method added, and what it cost.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.evaluation.blind.folders import write_blind
from hfcomp.evaluation.blind.results import BlindResults, blind_section
from hfcomp.experiments.experiment_config import HUMAN, SAME_BATCH, STATIC_MARGIN, STYLES
from hfcomp.merging.report import front_figure, points_table
from hfcomp.merging.sweep import SweepResult
from hfcomp.reporting import made_tables, tables
from hfcomp.reporting.cards.runs import FIGURE, write_run_cards
from hfcomp.reporting.figures import Points
from hfcomp.reporting.format import Estimate, counted, direction, has_interval, number, p_value, with_interval
from hfcomp.reporting.line_values import CEILING, FLOOR, difference, edge_of, points_of
from hfcomp.reporting.lines import (
    Line,
    general_of,
    models_of,
    name_of,
    num_seeds,
    of_aspect,
    parts_of,
    primary_of,
    strictest,
    subsets_of,
    unit_of_line,
)
from hfcomp.reporting.pages.items import ItemBrowser
from hfcomp.reporting.report import Lines, Report, Section, titled
from hfcomp.reporting.run_record import ADJUSTED, METHOD_FOLDER, RunRecord, guarded_name
from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE, publish
from hfcomp.statistics import Outcomes
from hfcomp.statistics.results import ITEMS_FILE, RESULTS_FILE
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

PLAIN = "plain"
MEANINGS = {
    BASE: "the model that all runs start from",
    PLAIN: "InfoNCE on the positives alone, for as many steps as {method}",
    SAME_BATCH: "InfoNCE on {method}'s own batch, negatives included: no margin, no extra term",
    STATIC_MARGIN: "{method} with the same margin for every pair, the mean of its own",
    "shuffled": "{method} with the negatives of other rows",
    "random-spans": "{method} with runs of a caption's words in place of its phrases, as many and as long",
    "equal-images": "plain with a larger batch, so that it encodes as many images as {method}",
}
FRONT = "guard.png"
NEGATIVES, ADDED, WITH_HUMAN, COST = "negatives", "method", "human", "cost"
WORDS = {1: "a gain", 0: "no difference shown", -1: "a loss", None: "not known"}
AXIS = "points (left of 0: a loss), 95% intervals"


def publish_run(
    folder: Path,
    *,
    items: pd.DataFrame,
    lines: Sequence[Line],
    stages: Sequence[StageSummary],
    facts: dict[str, Any],
    swept: Mapping[str, SweepResult] | None = None,
    page: bool = True,
    shown_items: ItemBrowser | None = None,
    blind: BlindResults | None = None,
) -> None:
    """Writes `items.parquet`, `blind.parquet`, `results.json`, `report.md`, `report.html`, the figures and the cards.

    Printed are the tables, last the verdict, its price, where the files are and what is next. `facts` are those of
    `run_report` and others of `RunRecord`. `swept` are the sweeps of the forgetting guard, by model. `shown_items` are
    those of `report.html`, which is written only with `page`.
    """
    Outcomes(items).write(folder / ITEMS_FILE)
    write_blind(folder, blind)
    said = {
        "verdict": run_report(lines, stages, facts, brief=True, swept=swept).verdict,
        "meanings": meanings(models_of(lines), facts, swept or {}),
        "stages": [asdict(stage) for stage in stages],
    }
    record = RunRecord(**{**facts, **said}, results=lines)
    report = partial(run_report, lines, stages, facts, folder=folder, swept=swept)
    publish(report, record.contents(), folder / RESULTS_FILE, page=page, items=shown_items)
    write_run_cards(folder)


def run_report(
    lines: Sequence[Line],
    stages: Sequence[StageSummary],
    facts: Mapping[str, Any],
    *,
    brief: bool,
    folder: Path | None = None,
    swept: Mapping[str, SweepResult] | None = None,
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
    # The figure shows the strictest metric of each benchmark. The other metrics say the same more loosely.
    drawn = [*strictest(of_aspect(lines, "composition")), *of_aspect(lines, "general")]
    against = [(method, name) for name in models[:-1]]
    forgotten = [(name, BASE) for name in models[1:]] if reference else []
    guarded = [(name, other) for name, other in _guarded_pairs(models, method) if reference]
    of_general = [*guarded[:1], *forgotten[-1:]] if brief else [*against, *forgotten[:-1], *guarded[1:]]

    def pairs(line: Line) -> list[tuple[str, str]]:
        return of_general if line["aspect"] == "general" else [*against, *guarded]

    known = [f"{name}: {meaning}" for name, meaning in meanings(models, facts, swept or {}).items()]
    shown = {"reference": reference, "main": method, "styles": STYLES}
    sections = [
        Section("", [tables.figure_of_lines(FIGURE, title, drawn, **shown, lead=lead)]),
        *tables.sections_of_lines(lines, pairs, reference=reference, general=general, brief=brief, edges=True),
        *([blind_section(facts["blind"], models, brief=brief)] if facts.get("blind") else []),
        Section("Lines that fall", [] if brief else [Lines(lines_that_fall(lines))]),
        _guard_section(facts, swept, titled(f"Forgetting guard: {method}", caveat), brief=brief),
        Section("Cost", [made_tables.costs(made_tables.mean_stages([asdict(stage) for stage in stages]))]),
        Section("Models", [Lines(known), *([] if brief else [made_tables.facts_table(facts["models"])])]),
        Section("How it was made", [] if brief else [made_tables.made_table(facts["config"])]),
    ]
    how = [tables.legend(lines, adjusted=ADJUSTED, brief=brief)]
    closing = _closing(folder, facts) if folder else {}
    verdict = [
        *answer(lines, general, facts.get("published_effects", ())),
        *_guarded(lines, general, swept or {}, method),
    ]
    return Report(method, caveat, verdict, sections, how, () if brief else facts["notes"], closing)


def _guarded_pairs(models: Sequence[str], method: str) -> list[tuple[str, str]]:
    # Compared with the guarded control too: a gain that interpolation brings to any model is no merit of the method.
    own, others = guarded_name(method), (BASE, guarded_name(SAME_BATCH))
    return [(own, name) for name in others if {own, name} <= {*models}]


def _guard_section(
    facts: Mapping[str, Any], swept: Mapping[str, SweepResult] | None, title: str, *, brief: bool
) -> Section:
    if not swept:
        return Section("", [])
    points = [] if brief else [points_table(name, one) for name, one in swept.items()]
    rule = f"Chosen is the point with {next(iter(swept.values())).rule}, on {facts['guard']['items']}."
    return Section("Forgetting guard", [Lines([rule]), front_figure(FRONT, title, swept, STYLES), *points])


def _guarded(lines: Sequence[Line], general: Line | None, swept: Mapping[str, SweepResult], method: str) -> list[str]:
    """The gain that the guarded method keeps and what it still forgets, against the guarded control and the base."""
    primary, name = primary_of(lines), guarded_name(method)
    if method not in swept or primary is None or general is None:
        return []
    others = [other for other in (guarded_name(SAME_BATCH), BASE) if other in models_of(lines)]
    gain, change = (_against(line, name, others) for line in (primary, general))
    alpha = f"{swept[method].chosen.alpha:g}"
    return [f"Guarded (alpha {alpha}) on this seed: {primary['primary']} {gain}; general abilities {change}."]


def _against(line: Line, method: str, others: Sequence[str]) -> str:
    return ", ".join(f"{points_of(difference(line, method, other), line)} against {other}" for other in others)


def meanings(models: Sequence[str], facts: Mapping[str, Any], swept: Mapping[str, SweepResult]) -> dict[str, str]:
    """Meanings of the base, the controls and the guarded models, by name; `facts` know some."""
    known = {name: MEANINGS[name].format(method=facts["method"]) for name in models if name in MEANINGS}
    known |= {name: text for name, text in facts.get("meanings", {}).items() if name in models}
    return known | {
        guarded_name(name): f"between base and {name}, at alpha {one.chosen.alpha:g}" for name, one in swept.items()
    }


def _closing(folder: Path, facts: Mapping[str, Any]) -> dict[str, str]:
    there = [str(folder / name) for name in (REPORT_FILE, PAGE_FILE, FIGURE) if (folder / name).is_file()]
    trained = str(folder / METHOD_FOLDER)
    models = {BASE: facts["models"][BASE]["path"], facts["method"]: trained}
    return {"report": ", ".join(there), "model": trained, "next": evaluate_command(models)}


def evaluate_command(models: Mapping[str, str]) -> str:
    """The command that scores models, by name their paths, on benchmarks."""
    named = [f"{name}={path}" for name, path in models.items()]
    return shlex.join(["hfcomp", "evaluate", *named, "--suite", "compositional"])


@dataclass(frozen=True)
class Comparison:
    """A difference that answers one of the questions."""

    question: str  # `NEGATIVES`, `ADDED`, `WITH_HUMAN` or `COST`
    model: str
    reference: str
    line: Line  # the primary endpoint, or general abilities

    @property
    def change(self) -> Estimate | None:
        return difference(self.line, self.model, self.reference)

    @property
    def word(self) -> str:
        # After a gain from 20 to 30 at a chance of 50, a model is still wrong more often than not.
        sign, chance = direction(self.change), number(self.line.get("chance"))
        below = sign == 1 and self.question != COST and number(self.line["models"][self.model]["value"]) < chance
        return WORDS[sign] + (", but both are below chance," if below else "")


def comparisons(lines: Sequence[Line], general: Line | None) -> list[Comparison]:
    """The differences that answer the questions, as far as a run has the models for them.

    Of the models in `lines` the base is first and the method last.
    """
    models, primary = models_of(lines), primary_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    method, wanted = models[-1], []
    if primary is not None:
        wanted.append((NEGATIVES, SAME_BATCH, PLAIN, primary))
        for question, suffix in ((ADDED, ""), (WITH_HUMAN, f"-{HUMAN}")):
            # The comparison with the static margin shows what the ratings add. The one with InfoNCE on the same batch
            # shows what the objective adds to its negatives. Without that control, plain shows what both add to the
            # positives.
            controls = [f"{STATIC_MARGIN}{suffix}", SAME_BATCH if SAME_BATCH in models else PLAIN]
            wanted += [(question, f"{method}{suffix}", other, primary) for other in controls]
    if general is not None:
        wanted += [(COST, method, other, general) for other in (SAME_BATCH, BASE)]
    return [Comparison(*one) for one in wanted if {one[1], one[2]} <= {*models} and one[1] != one[2]]


def answer(
    lines: Sequence[Line], general: Line | None = None, published: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The primary endpoint and the answers to the questions, a line or a few in a terminal.

    `published` are published differences between models, each with `model`, `reference`, `value` and `place`; the
    others are those of `comparisons`.
    """
    models = models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    given = comparisons(lines, general)
    of = {kind: [one for one in given if one.question == kind] for kind in (NEGATIVES, ADDED, WITH_HUMAN, COST)}
    found = [_heading(lines)]
    if of[NEGATIVES]:
        found.append(f"What did the negatives give? {_clauses(of[NEGATIVES])}.")
    if primary_of(lines) is not None:
        found.append(_added(of[ADDED], models) + _published(of[ADDED], published))
    if of[WITH_HUMAN]:
        found.append(f"And with human ratings? {_clauses(of[WITH_HUMAN])}.")
    return [*found, _cost(lines, of[COST], models)]


def _heading(lines: Sequence[Line]) -> str:
    """The number of seeds, the primary endpoint, and how many of its parts cannot show a difference."""
    # At the floor or the ceiling both models score alike, whatever they have learned.
    seeds, primary = num_seeds(lines), primary_of(lines)
    where = "On this seed" if seeds == 1 else f"Over {seeds} seeds"
    if primary is None:
        return f"{where}. No primary endpoint."
    parts = parts_of(primary, lines)
    edges = [{edge_of(line) for line in part} for part in parts]
    at = {name: sum(edge == {name} for edge in edges) for name in (FLOOR, CEILING)}
    stuck = ", ".join(f"{count} at the {name}" for name, count in at.items() if count)
    of = f"of {len(parts)} parts " if len(parts) > 1 else ""
    return f"{where}. Endpoint: {primary['primary']} ({of}{stuck or 'none at floor or ceiling'})."


def _added(given: Sequence[Comparison], models: Sequence[str]) -> str:
    method = models[-1]
    if SAME_BATCH not in models:
        lacking = f"There is no {SAME_BATCH} control here, so what {method} adds to its own batch is not shown."
        return f"What did {method} give? {_clauses(given)}. {lacking}" if given else lacking
    what = "the margin" if STATIC_MARGIN in models else method
    return f"What did {what} add? {_clauses(given)}."


def _clauses(given: Sequence[Comparison]) -> str:
    parts, before = [], ""
    for one in given:
        word = "" if one.word == before else f"{one.word} "
        before = one.word
        parts.append(f"{word}against {one.reference}: {points_of(one.change, one.line)}{_test(one)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _test(one: Comparison) -> str:
    # Only the planned comparison has a p here. The other comparisons were not fixed in advance and are read by their
    # intervals.
    planned = one.question in (ADDED, WITH_HUMAN) and one.reference == SAME_BATCH
    known = [f"p {p_value((one.change or {}).get('p'))}"] if planned else []
    known += [] if has_interval(one.change) else ["no interval"]
    return f" ({', '.join(known)})" if known else ""


def _published(given: Sequence[Comparison], published: Sequence[Mapping[str, Any]]) -> str:
    pairs = [(one.model, one.reference) for one in given]
    known = [one for one in published if (one["model"], one["reference"]) in pairs]
    if not known:
        return ""
    parts = [f"{100 * one['value']:+.2f} against {one['reference']}" for one in known]
    table = known[0]["place"].rpartition(", ")[2]
    return f" The paper's own: {', '.join(parts)} ({table})."


def _cost(lines: Sequence[Line], given: Sequence[Comparison], models: Sequence[str]) -> str:
    # The mean can hide a line that falls, so falling lines are counted too.
    method, abilities = models[-1], subsets_of(of_aspect(lines, "general"))
    question = f"What did {method} cost in general abilities?"
    if not abilities:
        return f"{question} Not known, as none was scored."
    falls = []
    for other in (name for name in (SAME_BATCH, BASE) if name in models[:-1]):
        signs = [direction(difference(line, method, other)) for line in abilities]
        untested = signs.count(None)
        of = "" if falls else f" of {counted(len(abilities), 'line')} fall"
        falls.append(f"{signs.count(-1)}{of} against {other}" + (f" ({untested} have no test)" if untested else ""))
    fall = f"{', '.join(falls)}."
    return f"{question} {_clauses(given)}. {fall}" if given else f"{question} {fall}"


def questions_panel(lines: Sequence[Line], general: Line | None) -> Points:
    """The answers as a panel of a figure: a row for each difference, with its numbers and its word."""
    given = comparisons(lines, general)
    rows = [(f"{one.question}: {one.model} minus {one.reference}", {one.model: one.change}, None) for one in given]
    notes = [f"{with_interval(one.change, unit_of_line(one.line), '+')}, {one.word}" for one in given]
    names = list(dict.fromkeys(one.model for one in given))
    primary = [f"gain on {one.line['primary']}" for one in given if one.question != COST][:1]
    cost = [f"cost in general abilities ({name_of(one.line)})" for one in given if one.question == COST][:1]
    title = ", ".join([*primary, *cost])
    title = title[:1].upper() + title[1:]
    return Points(title, AXIS, rows, names, differences=True, notes=notes)


def lines_that_fall(lines: Sequence[Line]) -> list[str]:
    """Each line of general abilities that falls significantly."""
    models, abilities = models_of(lines), subsets_of(of_aspect(lines, "general"))
    if len(models) < 2 or models[0] != BASE:
        return []
    method, control = models[-1], SAME_BATCH if SAME_BATCH in models[:-1] else ""
    # Lines that fall more than the control's come first: these are the method's doing, the others may be any
    # training's.
    found: dict[str, list[str]] = {f"more than {control}": [], "against base alone": []}
    for line in abilities:
        beyond = control and direction(difference(line, method, control)) == -1
        if beyond or direction(difference(line, method, BASE)) == -1:
            others = [name for name in (control, BASE) if name]
            changes = ", ".join(
                f"{points_of(difference(line, method, other), line)} against {other}" for other in others
            )
            found[f"more than {control}" if beyond else "against base alone"].append(f"{name_of(line)} {changes}")
    return [f"{kind}: {text}" for kind, texts in found.items() for text in texts]
