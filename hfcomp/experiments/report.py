"""The report of a run: gains of the method over its controls, forgetting, and training effort.

It starts with three answers: what the negatives contributed, what the method added, and what it cost in general
abilities.
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
from hfcomp.reporting.format import Estimate, count_text, direction, has_interval, number, p_value, with_interval
from hfcomp.reporting.line_values import CEILING, FLOOR, difference, edge_of, points_of
from hfcomp.reporting.lines import (
    Line,
    general_of,
    models_of,
    name_of,
    num_seeds,
    parts_of,
    primary_of,
    select_aspect,
    strictest,
    subsets_of,
    unit_of_line,
)
from hfcomp.reporting.pages.items import ItemBrowser
from hfcomp.reporting.report import Lines, Report, Section, figure_title
from hfcomp.reporting.run_record import ADJUSTED, METHOD_FOLDER, RunRecord, guarded_name
from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE, publish
from hfcomp.statistics import Outcomes
from hfcomp.statistics.results import ITEMS_FILE, RESULTS_FILE
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

PLAIN = "plain"
MEANINGS = {
    BASE: "the model that all runs start from",
    PLAIN: "InfoNCE on the positives only, for the same number of steps as {method}",
    SAME_BATCH: "InfoNCE on the same batch as {method}, including its negatives, without a margin or extra terms",
    STATIC_MARGIN: "{method} with one margin for all pairs, the mean of {method}'s own margins",
    "shuffled": "{method} with each row's negatives taken from another row",
    "random-spans": "{method} with random word spans of a caption instead of its phrases, equal in number and length",
    "equal-images": "plain with a larger batch that makes it encode the same number of images as {method}",
}
GUARD_FIGURE = "guard.png"
NEGATIVES, ADDED, WITH_HUMAN, FORGETTING = "negatives", "method", "human", "general"
WORDS = {1: "a gain", 0: "no difference shown", -1: "a loss", None: "unknown"}
CLAUSES = {
    1: "a gain over {}",
    0: "no difference from {} is shown",
    -1: "a loss relative to {}",
    None: "the difference from {} is unknown",
}
GAIN_AXIS = "difference in points with 95% interval; left of 0 is a loss"


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

    Prints the tables and then the verdict, the paths of the files and the next command. `facts` has the keys that
    `run_report` needs, and other fields of `RunRecord`. `swept` maps models to the sweeps of the forgetting guard.
    `shown_items` appear in `report.html`, which is written only with `page`.
    """
    Outcomes(items).write(folder / ITEMS_FILE)
    write_blind(folder, blind)
    texts = {
        "verdict": run_report(lines, stages, facts, brief=True, swept=swept).verdict,
        "meanings": meanings(models_of(lines), facts, swept or {}),
        "stages": [asdict(stage) for stage in stages],
    }
    record = RunRecord(**{**facts, **texts}, results=lines)
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
    """Builds the report of a run.

    Args:
        lines: Lines from `summarize`, with the method as the last model.
        stages: Cost of each training run.
        facts: `method`, `caveat`, `notes`, `models`, `config` and, if known, `general_average`, `blind` and
            `published_effects`.
        brief: Whether to limit lines and differences to what fits in a terminal.
        folder: Folder of the run. If given, the report ends with the paths of its files.
        swept: Sweeps of the forgetting guard by model. `facts` must then have `guard`.
    """
    models, method, caveat = models_of(lines), facts["method"], facts["caveat"]
    reference = BASE if models[:1] == [BASE] and len(models) > 1 else None
    general = general_of(lines, facts.get("general_average"))
    title = figure_title(f"{method}: composition and general abilities", caveat)
    lead = questions_panel(lines, general) if reference else None
    # The figure shows the strictest metric of each benchmark. The others measure the same less strictly.
    drawn = [*strictest(select_aspect(lines, "composition")), *select_aspect(lines, "general")]
    against = [(method, name) for name in models[:-1]]
    forgotten = [(name, BASE) for name in models[1:]] if reference else []
    guarded = [(name, other) for name, other in _guarded_pairs(models, method) if reference]
    general_pairs = [*guarded[:1], *forgotten[-1:]] if brief else [*against, *forgotten[:-1], *guarded[1:]]

    def pairs(line: Line) -> list[tuple[str, str]]:
        return general_pairs if line["aspect"] == "general" else [*against, *guarded]

    known = [f"{name}: {meaning}" for name, meaning in meanings(models, facts, swept or {}).items()]
    shown = {"reference": reference, "main": method, "styles": STYLES}
    sections = [
        Section("", [tables.figure_of_lines(FIGURE, title, drawn, **shown, lead=lead)]),
        *tables.sections_of_lines(lines, pairs, reference=reference, general=general, brief=brief, edges=True),
        *([blind_section(facts["blind"], models, brief=brief)] if facts.get("blind") else []),
        Section("Lines that fall", [] if brief else [Lines(lines_that_fall(lines))]),
        _guard_section(facts, swept, figure_title(f"Forgetting guard: {method}", caveat), brief=brief),
        Section("Cost", [made_tables.costs(made_tables.mean_stages([asdict(stage) for stage in stages]))]),
        Section("Models", [Lines(known), *([] if brief else [made_tables.facts_table(facts["models"])])]),
        Section("How it was made", [] if brief else [made_tables.made_table(facts["config"])]),
    ]
    how = [tables.legend(lines, adjusted=ADJUSTED, brief=brief)]
    closing = _closing(folder, facts) if folder else {}
    verdict = [
        *answers(lines, general, facts.get("published_effects", ())),
        *_guard_verdict(lines, general, swept or {}, method),
    ]
    return Report(method, caveat, verdict, sections, how, () if brief else facts["notes"], closing)


def _guarded_pairs(models: Sequence[str], method: str) -> list[tuple[str, str]]:
    # Includes the guarded control: a gain that interpolation gives to any model is not an advantage of the method.
    own, others = guarded_name(method), (BASE, guarded_name(SAME_BATCH))
    return [(own, name) for name in others if {own, name} <= {*models}]


def _guard_section(
    facts: Mapping[str, Any], swept: Mapping[str, SweepResult] | None, title: str, *, brief: bool
) -> Section:
    if not swept:
        return Section("", [])
    points = [] if brief else [points_table(name, sweep) for name, sweep in swept.items()]
    rule = f"Rule that chose the point: {next(iter(swept.values())).rule}, applied to {facts['guard']['items']}."
    return Section("Forgetting guard", [Lines([rule]), front_figure(GUARD_FIGURE, title, swept, STYLES), *points])


def _guard_verdict(
    lines: Sequence[Line], general: Line | None, swept: Mapping[str, SweepResult], method: str
) -> list[str]:
    """The guarded method's remaining gain and forgetting, against the guarded control and the base."""
    primary, name = primary_of(lines), guarded_name(method)
    if method not in swept or primary is None or general is None:
        return []
    others = [other for other in (guarded_name(SAME_BATCH), BASE) if other in models_of(lines)]
    gain, change = (_changes_against(line, name, others) for line in (primary, general))
    alpha = f"{swept[method].chosen.alpha:g}"
    return [f"Guarded (alpha {alpha}) on this seed: {primary['primary']} {gain}; general abilities {change}."]


def _changes_against(line: Line, method: str, others: Sequence[str]) -> str:
    return ", ".join(f"{points_of(difference(line, method, other), line)} against {other}" for other in others)


def meanings(models: Sequence[str], facts: Mapping[str, Any], swept: Mapping[str, SweepResult]) -> dict[str, str]:
    """Meanings of the base, the controls and the guarded models by name, completed by those in `facts`."""
    known = {name: MEANINGS[name].format(method=facts["method"]) for name in models if name in MEANINGS}
    known |= {name: text for name, text in facts.get("meanings", {}).items() if name in models}
    return known | {
        guarded_name(name): f"interpolated between base and {name}, at alpha {sweep.chosen.alpha:g}"
        for name, sweep in swept.items()
    }


def _closing(folder: Path, facts: Mapping[str, Any]) -> dict[str, str]:
    paths = [str(folder / name) for name in (REPORT_FILE, PAGE_FILE, FIGURE) if (folder / name).is_file()]
    trained = str(folder / METHOD_FOLDER)
    models = {BASE: facts["models"][BASE]["path"], facts["method"]: trained}
    return {"report": ", ".join(paths), "model": trained, "next": evaluate_command(models)}


def evaluate_command(models: Mapping[str, str]) -> str:
    """The command that scores models, given as paths by name, on benchmarks."""
    named = [f"{name}={path}" for name, path in models.items()]
    return shlex.join(["hfcomp", "evaluate", *named, "--suite", "compositional"])


@dataclass(frozen=True)
class Comparison:
    """A difference that answers one of the questions."""

    question: str  # `NEGATIVES`, `ADDED`, `WITH_HUMAN` or `FORGETTING`
    model: str
    reference: str
    line: Line  # the primary endpoint, or general abilities

    @property
    def change(self) -> Estimate | None:
        return difference(self.line, self.model, self.reference)

    @property
    def word(self) -> str:
        return WORDS[direction(self.change)] + self._below_chance

    @property
    def clause(self) -> str:
        return CLAUSES[direction(self.change)].format(self.reference) + self._below_chance

    @property
    def _below_chance(self) -> str:
        # With chance at 50, a model that gains from 20 to 30 is still wrong more often than right.
        sign, chance = direction(self.change), number(self.line.get("chance"))
        below = sign == 1 and self.question != FORGETTING and number(self.line["models"][self.model]["value"]) < chance
        return ", but both are below chance" if below else ""


def comparisons(lines: Sequence[Line], general: Line | None) -> list[Comparison]:
    """The differences that answer the questions, if a run has the models for them.

    In `lines`, the base is the first model and the method is the last.
    """
    models, primary = models_of(lines), primary_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    method, wanted = models[-1], []
    if primary is not None:
        wanted.append((NEGATIVES, SAME_BATCH, PLAIN, primary))
        for question, suffix in ((ADDED, ""), (WITH_HUMAN, f"-{HUMAN}")):
            # The comparison with the static margin shows what the ratings add. The comparison with InfoNCE on the same
            # batch shows what the objective adds to its negatives. Without that control, plain shows what both add to
            # the positives.
            controls = [f"{STATIC_MARGIN}{suffix}", SAME_BATCH if SAME_BATCH in models else PLAIN]
            wanted += [(question, f"{method}{suffix}", other, primary) for other in controls]
    if general is not None:
        wanted += [(FORGETTING, method, other, general) for other in (SAME_BATCH, BASE)]
    return [
        Comparison(question, model, reference, line)
        for question, model, reference, line in wanted
        if {model, reference} <= {*models} and model != reference
    ]


def answers(
    lines: Sequence[Line], general: Line | None = None, published: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The primary endpoint and the answers to the questions, each one or a few lines in a terminal.

    `published` contains published differences between models, each with `model`, `reference`, `value` and `place`; all
    other differences come from `comparisons`.
    """
    models = models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    by_question: dict[str, list[Comparison]] = {NEGATIVES: [], ADDED: [], WITH_HUMAN: [], FORGETTING: []}
    for comparison in comparisons(lines, general):
        by_question[comparison.question].append(comparison)
    sentences = [_endpoint_sentence(lines)]
    if by_question[NEGATIVES]:
        sentences.append(f"What did the negatives contribute? {_join_comparisons(by_question[NEGATIVES])}.")
    if primary_of(lines) is not None:
        sentences.append(_method_sentence(by_question[ADDED], models) + _paper_values(by_question[ADDED], published))
    if by_question[WITH_HUMAN]:
        sentences.append(f"And with human ratings? {_join_comparisons(by_question[WITH_HUMAN])}.")
    return [*sentences, _forgetting_sentence(lines, by_question[FORGETTING], models)]


def _endpoint_sentence(lines: Sequence[Line]) -> str:
    """The number of seeds, the primary endpoint, and the number of its parts that cannot show a difference."""
    # At the floor or the ceiling, both models score alike, whatever they have learned.
    seeds, primary = num_seeds(lines), primary_of(lines)
    where = "On this seed" if seeds == 1 else f"Over {seeds} seeds"
    if primary is None:
        return f"{where}: no primary endpoint was scored."
    parts = parts_of(primary, lines)
    edges = [{edge_of(line) for line in part} for part in parts]
    at = {name: sum(edge == {name} for edge in edges) for name in (FLOOR, CEILING)}
    stuck = " and ".join(
        f"{count} {'is' if count == 1 else 'are'} at the {name}" for name, count in at.items() if count
    )
    if len(parts) == 1:
        stuck = next((f"at the {name}" for name, count in at.items() if count), "not at the floor or ceiling")
    of = f"of its {len(parts)} parts, " if len(parts) > 1 else ""
    return f"{where}. The primary endpoint is {primary['primary']} ({of}{stuck or 'none is at the floor or ceiling'})."


def _method_sentence(added: Sequence[Comparison], models: Sequence[str]) -> str:
    method = models[-1]
    if SAME_BATCH not in models:
        lacking = f"Without a {SAME_BATCH} control, the report cannot show what {method} adds to the same batch."
        return f"What did {method} contribute? {_join_comparisons(added)}. {lacking}" if added else lacking
    what = "the margin" if STATIC_MARGIN in models else method
    return f"What did {what} add? {_join_comparisons(added)}."


def _join_comparisons(answering: Sequence[Comparison]) -> str:
    clauses = [f"{each.clause}: {points_of(each.change, each.line)}{_p_value_note(each)}" for each in answering]
    text = "; ".join(clauses)
    return text[:1].upper() + text[1:]


def _p_value_note(comparison: Comparison) -> str:
    # Only the planned comparison has a p-value here. The other comparisons were not fixed in advance; readers judge
    # them by their intervals.
    planned = comparison.question in (ADDED, WITH_HUMAN) and comparison.reference == SAME_BATCH
    known = [f"p {p_value((comparison.change or {}).get('p'))}"] if planned else []
    known += [] if has_interval(comparison.change) else ["no interval"]
    return f" ({', '.join(known)})" if known else ""


def _paper_values(added: Sequence[Comparison], published: Sequence[Mapping[str, Any]]) -> str:
    pairs = [(comparison.model, comparison.reference) for comparison in added]
    known = [effect for effect in published if (effect["model"], effect["reference"]) in pairs]
    if not known:
        return ""
    parts = [f"{100 * effect['value']:+.2f} against {effect['reference']}" for effect in known]
    table = known[0]["place"].rpartition(", ")[2]
    return f" Published values: {', '.join(parts)} ({table})."


def _forgetting_sentence(lines: Sequence[Line], forgetting: Sequence[Comparison], models: Sequence[str]) -> str:
    # The mean can hide a line that falls, so falling lines are counted too.
    method, abilities = models[-1], subsets_of(select_aspect(lines, "general"))
    question = f"How did {method} change general abilities?"
    if not abilities:
        return f"{question} Unknown, because no general ability was scored."
    falls = []
    for other in (name for name in (SAME_BATCH, BASE) if name in models[:-1]):
        signs = [direction(difference(line, method, other)) for line in abilities]
        untested = signs.count(None)
        count, untested_note = signs.count(-1), f" ({untested} not tested)" if untested else ""
        falls.append(
            f"{count or 'none'} {'fall' if count > 1 else 'falls'} significantly below {other}{untested_note}"
        )
    fall = f"Of {count_text(len(abilities), 'line')}, {' and '.join(falls)}."
    return f"{question} {_join_comparisons(forgetting)}. {fall}" if forgetting else f"{question} {fall}"


def questions_panel(lines: Sequence[Line], general: Line | None) -> Points:
    """The answers as a panel of a figure: one row per difference, with its numbers and its word."""
    shown = comparisons(lines, general)
    rows = [
        (f"{each.question}: {each.model} minus {each.reference}", {each.model: each.change}, None) for each in shown
    ]
    notes = [f"{with_interval(each.change, unit_of_line(each.line), '+')}, {each.word}" for each in shown]
    names = list(dict.fromkeys(each.model for each in shown))
    primary = [f"gain on {each.line['primary']}" for each in shown if each.question != FORGETTING][:1]
    cost = [f"change in general abilities ({name_of(each.line)})" for each in shown if each.question == FORGETTING][:1]
    title = ", ".join([*primary, *cost])
    title = title[:1].upper() + title[1:]
    return Points(title, GAIN_AXIS, rows, names, differences=True, notes=notes)


def lines_that_fall(lines: Sequence[Line]) -> list[str]:
    """The lines of general abilities that fall significantly."""
    models, abilities = models_of(lines), subsets_of(select_aspect(lines, "general"))
    if len(models) < 2 or models[0] != BASE:
        return []
    method, control = models[-1], SAME_BATCH if SAME_BATCH in models[:-1] else ""
    # Lines that fall more than the control's come first. The method causes these falls; the others may fall with any
    # training.
    beyond_control, against_base = f"falls more than {control}", f"falls only against {BASE}"
    falling: dict[str, list[str]] = {beyond_control: [], against_base: []}
    for line in abilities:
        beyond = control and direction(difference(line, method, control)) == -1
        if beyond or direction(difference(line, method, BASE)) == -1:
            others = [name for name in (control, BASE) if name]
            changes = ", ".join(
                f"{points_of(difference(line, method, other), line)} against {other}" for other in others
            )
            falling[beyond_control if beyond else against_base].append(f"{name_of(line)} {changes}")
    return [f"{kind}: {text}" for kind, texts in falling.items() for text in texts]
