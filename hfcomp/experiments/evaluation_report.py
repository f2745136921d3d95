"""What an evaluation shows and leaves behind: tables in the terminal, `report.md`, `results.json`, items, a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.text import Text

from hfcomp.evaluation import results as files
from hfcomp.evaluation.statistics import Outcomes, missing_averages, summarize
from hfcomp.experiments.comparison import Line, has_ties
from hfcomp.experiments.evaluation_figure import draw_evaluation
from hfcomp.experiments.evaluation_tables import MOST_INTERVALS, full_tables, headings, short_tables, standing
from hfcomp.experiments.sheets import (
    NO_TIES,
    TERMINAL_WIDTH,
    TIES,
    Sheet,
    escaped,
    markdown_table,
    terminal_table,
    ties,
)
from hfcomp.writing import write_text

if TYPE_CHECKING:
    from hfcomp.evaluation.statistics.measures import Averages

REPORT_FILE = "report.md"
FIGURE_FILE = "figure.png"
FIGURE_TEXT = "every benchmark and model with 95 % intervals, chance dotted"
COMMIT_DIGITS = 12
LEGEND = (
    "Intervals of 95 % draw whole images of a benchmark, with all their items; averages are computed anew in each "
    "draw. Differences are in points, paired by item, with p from a sign-flip test over images; of the differences "
    "with q below 0.05, about 5 % are false (Benjamini and Hochberg, over all of this report). Detectable: the "
    "difference that the set would find in 80 % of the cases. Metrics that are no share of right items say so behind "
    "their name."
)


@dataclass(frozen=True)
class EvaluationReport:
    """What is known of an evaluation, ready to be shown and written.

    Attributes:
        lines: as `summarize` makes them.
        models: name to facts (`path`, `weights`, `revision`, ...), in the order of columns.
        reference: the model that the others are compared to.
        tie: what a tie counted.
        benchmarks: name to `title`, `version`, `data`, `items` and `left_out`, see `hfcomp.evaluation.results`.
        skipped: `benchmark`, `reason` and `way_out` of each that was asked for and not scored.
        missing: of `missing_averages`.
        notes: what a reader of the numbers has to know.
        seconds: model to benchmark to seconds.
        items_hash: of the outcomes.
        versions: what the numbers were made with; by default of this process.
        config: the command and its date, where they are known.
    """

    lines: list[Line]
    models: Mapping[str, Mapping[str, Any]]
    reference: str | None = None
    tie: str = "wrong"
    benchmarks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, str]] = ()
    missing: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    items_hash: str | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def evaluation_report(
    items: Outcomes | pd.DataFrame,
    *,
    models: Mapping[str, Mapping[str, Any]],
    averages: Averages,
    reference: str | None = None,
    subject: Sequence[str] | None = None,
    tie: str = "wrong",
    **facts: Any,
) -> EvaluationReport:
    """Summarizes outcomes.

    Args:
        items: as `summarize` takes them.
        models: name to facts.
        averages: by title of the benchmark, as `summarize` takes them.
        reference: the model that the others are compared to; by default the first, none where it is alone.
        subject: the models that are compared to it; by default all others.
        tie: what a tie counts.
        **facts: the other fields of `EvaluationReport`.

    Raises:
        ValueError: as `summarize`.
    """
    names = list(models)
    if reference is None and len(names) > 1:
        reference = names[0]
    references = [] if reference is None else [reference]
    subject = [name for name in (names if subject is None else subject) if name != reference]
    lines: list[Line] = []
    if len(items):
        lines = summarize(items, models=names, references=references, subject=subject, averages=averages, tie=tie)
    missing = missing_averages(items, averages) if len(items) else []
    known = {"missing": missing, "items_hash": Outcomes.of(items).digest if len(items) else None, **facts}
    return EvaluationReport(lines, models, reference, tie, **known)


def print_evaluation(report: EvaluationReport, folder: Path | None = None, console: Console | None = None) -> None:
    """The tables in the terminal, in 80 columns, whether or not it has colours.

    Args:
        report: what is shown.
        folder: where the files lie.
        console: by default standard output.
    """
    console = console or Console(width=max(TERMINAL_WIDTH, Console().width))
    names = headings(list(report.models))

    def say(text: str, style: str = "", *, whole: bool = False) -> None:
        console.print(Text(text, style=style), soft_wrap=whole)

    for name, letters in names.items():
        if "".join(letters.split()) != "".join(name.split()):
            say(f"{letters}: {name}", whole=True)
    tied = ties(standing(report.lines), names, short=True, rule=report.tie)
    for sheet in (*short_tables(report.lines, names, report.reference), *([tied] if tied.rows else [])):
        say(f"\n{sheet.title}", "bold")
        console.print(terminal_table(sheet))
    console.print()
    if report.lines:
        say(_legend(report))
        if len(report.models) > MOST_INTERVALS:
            say("The intervals of the models' own values are in report.md.")
    for title, texts in _remarks(report):
        say(f"\n{title}", "bold")
        for text in texts:
            say(text, whole=True)  # what is to be copied must not be broken over lines
    if folder is not None:
        say(f"written to {folder}", whole=True)


def _legend(report: EvaluationReport) -> str:
    """What the numbers are, and how ties count."""
    said = f"Ties are {TIES[report.tie]}." if has_ties(report.lines) else NO_TIES
    return f"{LEGEND} {said}"


def _remarks(report: EvaluationReport) -> Iterator[tuple[str, list[str]]]:
    """What is not a number of a benchmark, in lines of text."""
    if report.skipped:
        rows = []
        for one in report.skipped:
            rows += [f"{one['benchmark']}: {one['reason']}", f"  -> {one['way_out']}"]
        yield "skipped benchmarks", rows
    if report.missing:
        yield "missing averages: not all of their subsets are there (report.md names them)", _missing(report.missing)
    if report.notes:
        yield "notes", list(report.notes)
    if report.seconds:
        totals = {name: sum(part.values()) for name, part in report.seconds.items()}
        yield "seconds", [f"{name}: {total:,.1f}" for name, total in totals.items()]


def _missing(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each benchmark, whatever its metrics."""
    found: dict[str, list[str]] = {}
    for one in entries:
        found.setdefault(one["benchmark"], []).append(one["average"])
    return [f"{benchmark}: {', '.join(dict.fromkeys(names))}" for benchmark, names in found.items()]


def evaluation_markdown(report: EvaluationReport, *, figure: bool = False) -> str:
    """`report.md`: every line with every interval, and what the numbers were made from.

    Args:
        report: what is shown.
        figure: whether `figure.png` lies beside it.
    """
    parts = [f"# {escaped(', '.join(report.models))}", ""]
    parts += [_legend(report), ""] if report.lines else []
    if figure:
        parts += [f"![{FIGURE_TEXT}]({FIGURE_FILE})", ""]
    for sheet in _all_sheets(report):
        if sheet.rows:
            parts += [f"## {escaped(sheet.title[0].upper() + sheet.title[1:])}", "", *markdown_table(sheet), ""]
    if report.notes:
        parts += ["## Notes", "", *(f"- {escaped(note)}" for note in report.notes), ""]
    return "\n".join(parts)


def _all_sheets(report: EvaluationReport) -> Iterator[Sheet]:
    yield from full_tables(report.lines, report.reference)
    yield ties(report.lines, {name: name for name in report.models}, short=False, rule=report.tie)
    skipped = [[one["benchmark"], one["reason"], one["way_out"]] for one in report.skipped]
    yield Sheet("Skipped benchmarks", ["benchmark", "reason", "way to get it"], skipped, labels=3)
    absent = [[one["benchmark"], one["metric"], one["average"], ", ".join(one["absent"])] for one in report.missing]
    yield Sheet("Missing averages", ["benchmark", "metric", "average", "needs the subsets"], absent, labels=4)
    yield _models(report.models)
    yield from _data(report.benchmarks)
    yield _seconds(report.seconds)
    made = [[name, str(value)] for part in (report.config, report.versions) for name, value in part.items()]
    yield Sheet("How it was made", ["what", "value"], made, labels=2)


def _models(models: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Only facts that some model has get a column."""
    keys = list(dict.fromkeys(key for facts in models.values() for key, value in facts.items() if value is not None))
    rows = [
        [name, *("" if facts.get(key) is None else str(facts[key]) for key in keys)] for name, facts in models.items()
    ]
    return Sheet("Models", ["model", *keys], rows, labels=1 + len(keys))


def _data(benchmarks: Mapping[str, Mapping[str, Any]]) -> Iterator[Sheet]:
    read, left_out = [], []
    for name, facts in benchmarks.items():
        title, data = facts.get("title") or name, facts.get("data")
        cells = [f"{facts['items']:,}" if "items" in facts else "", str(facts.get("version") or "")]
        read.append([title, "; ".join(_places(data)) if data else "", *cells])
        left_out += [[title, reason, f"{count:,}"] for reason, count in (facts.get("left_out") or {}).items()]
    yield Sheet("Data", ["benchmark", "read", "rows scored", "version of the benchmark"], read, labels=2)
    yield Sheet("Rows left out", ["benchmark", "reason", "rows"], left_out, labels=2)


def _places(data: Mapping[str, Any]) -> Iterator[str]:
    commit = data.get("commit")
    yield f"{data['place']} at {commit[:COMMIT_DIGITS]}" if commit else str(data["place"])
    for pool in data.get("pools") or ():
        yield from (f"images of {place}" for place in _places(pool))


def _seconds(seconds: Mapping[str, Mapping[str, float]]) -> Sheet:
    benchmarks = list(dict.fromkeys(name for part in seconds.values() for name in part))
    rows = [
        [name, *(f"{part[name]:,.1f}" if name in part else "" for part in seconds.values())] for name in benchmarks
    ]
    return Sheet("Seconds", ["benchmark", *seconds], rows)


def write_evaluation(folder: Path, items: Outcomes | pd.DataFrame, report: EvaluationReport) -> None:
    """Writes `items.parquet`, `figure.png` where matplotlib is installed, and what `write_report` writes.

    Args:
        folder: made where it is missing.
        items: outcomes of all models per item, ties wrong.
        report: of the same items.
    """
    folder.mkdir(parents=True, exist_ok=True)
    Outcomes.of(items).write(folder / files.ITEMS_FILE)
    write_report(folder, report, figure=draw_evaluation(folder / FIGURE_FILE, report.lines))


def write_report(folder: Path, report: EvaluationReport, *, figure: bool = False) -> None:
    """Writes `results.json` and `report.md`, each whole or not at all.

    Args:
        folder: made where it is missing.
        report: what is written.
        figure: whether `figure.png` lies there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    versions = report.versions or files.versions()
    facts = {
        "versions": versions,
        "models": report.models,
        "reference": report.reference,
        "tie_rule": report.tie,
        "data": {"items": report.items_hash},
        "benchmarks": report.benchmarks,
        "skipped": list(report.skipped),
        "missing_averages": list(report.missing),
        "seconds": report.seconds,
        "notes": list(report.notes),
        "config": report.config,
        "results": report.lines,
    }
    files.write_results(folder / files.RESULTS_FILE, facts)
    text = evaluation_markdown(replace(report, versions=versions), figure=figure)
    write_text(folder / REPORT_FILE, text)
