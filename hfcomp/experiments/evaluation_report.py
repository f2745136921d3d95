"""What an evaluation shows and leaves behind: tables in the terminal, `report.md`, `results.json`, items, a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console

from hfcomp.evaluation import results as files
from hfcomp.evaluation.statistics import Outcomes, missing_averages, summarize
from hfcomp.reporting import tables
from hfcomp.reporting.lines import Line
from hfcomp.reporting.report import Lines, Report, Section, Table, titled
from hfcomp.reporting.saving import save_report
from hfcomp.reporting.sections import figure_of_lines, sections_of_lines
from hfcomp.reporting.terminal import render_terminal

if TYPE_CHECKING:
    from hfcomp.evaluation.statistics.measures import Averages

COMMIT_DIGITS = 12
MOST_NAMED = 4  # models in a title
SYNTHETIC = "Synthetic: benchmarks of the sandbox are drawn by hfcomp."


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


def evaluation_as_report(evaluation: EvaluationReport, *, brief: bool) -> Report:
    """The report of an evaluation.

    Args:
        evaluation: what is known.
        brief: of many subsets the averages alone, without what only `report.md` has.
    """
    lines, reference, models = evaluation.lines, evaluation.reference, list(evaluation.models)
    caveat = SYNTHETIC if any(line["benchmark"].split()[0] == "sandbox" for line in lines) else ""
    names = ", ".join(models) if len(models) <= MOST_NAMED else f"{len(models)} models"
    figure = figure_of_lines("figure.png", titled(f"Composition and general abilities of {names}", caveat), lines)
    compared = [name for name in models if any(reference in line["differences"].get(name, {}) for line in lines)]
    pairs = [(name, str(reference)) for name in compared]
    shown = sections_of_lines(lines, lambda line: pairs, reference=reference, tie=evaluation.tie, brief=brief)
    how = [tables.legend(lines, tie=evaluation.tie, brief=brief)] if lines else []
    sections = [Section("", [figure]), *shown, *_facts(evaluation, brief=brief)]
    return Report(names, caveat, (), sections, how, evaluation.notes)


def _facts(evaluation: EvaluationReport, *, brief: bool) -> Iterator[Section]:
    """What is not a number of a benchmark."""
    totals = [[name, f"{sum(part.values()):,.1f}"] for name, part in evaluation.seconds.items()]
    yield Section("Cost", [Table("", ["model", "seconds"], totals) if brief else _seconds(evaluation.seconds)])
    skipped = [f"{one['benchmark']}: {one['reason']} {one['way_out']}" for one in evaluation.skipped]
    missing = [
        f"{one['benchmark']}, {one['metric']}: {one['average']}"
        + ("" if brief else f", needs {', '.join(one['absent'])}")
        for one in evaluation.missing
    ]
    read = [] if brief else _data(evaluation.benchmarks)
    yield Section(
        "Data",
        [*read, Lines(skipped, "skipped benchmarks", whole=True), Lines(missing, "averages without all subsets")],
    )
    if not brief:
        yield Section("Models", [tables.facts_table(evaluation.models)])
        yield Section("How it was made", [tables.made_table(evaluation.config, evaluation.versions)])


def _data(benchmarks: Mapping[str, Mapping[str, Any]]) -> Iterator[Table]:
    read, left_out = [], []
    for name, facts in benchmarks.items():
        title, data = facts.get("title") or name, facts.get("data")
        cells = [f"{facts['items']:,}" if "items" in facts else "", str(facts.get("version") or "")]
        read.append([title, "; ".join(_places(data)) if data else "", *cells])
        left_out += [[title, reason, f"{count:,}"] for reason, count in (facts.get("left_out") or {}).items()]
    yield Table("", ["benchmark", "read", "rows scored", "version of the benchmark"], read, labels=2)
    yield Table("rows left out", ["benchmark", "reason", "rows"], left_out, labels=2)


def _places(data: Mapping[str, Any]) -> Iterator[str]:
    commit = data.get("commit")
    yield f"{data['place']} at {commit[:COMMIT_DIGITS]}" if commit else str(data["place"])
    for pool in data.get("pools") or ():
        yield from (f"images of {place}" for place in _places(pool))


def _seconds(seconds: Mapping[str, Mapping[str, float]]) -> Table:
    benchmarks = list(dict.fromkeys(name for part in seconds.values() for name in part))
    rows = [
        [name, *(f"{part[name]:,.1f}" if name in part else "" for part in seconds.values())] for name in benchmarks
    ]
    return Table("seconds", ["benchmark", *seconds], rows, models=len(seconds))


def print_evaluation(report: EvaluationReport, folder: Path | None = None, console: Console | None = None) -> None:
    """The tables in the terminal, in 80 columns, whether or not it has colours.

    Args:
        report: what is shown.
        folder: where the files lie.
        console: by default standard output.
    """
    render_terminal(evaluation_as_report(report, brief=True), console, folder=folder)


def write_evaluation(folder: Path, items: Outcomes | pd.DataFrame, report: EvaluationReport) -> None:
    """Writes `items.parquet`, and what `write_report` writes.

    Args:
        folder: made where it is missing.
        items: outcomes of all models per item, ties wrong.
        report: of the same items.
    """
    folder.mkdir(parents=True, exist_ok=True)
    Outcomes.of(items).write(folder / files.ITEMS_FILE)
    write_report(folder, report)


def write_report(folder: Path, report: EvaluationReport) -> None:
    """Writes `results.json`, `report.md` and where matplotlib is installed `figure.png`, each whole or not at all.

    Args:
        folder: made where it is missing.
        report: what is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report = replace(report, versions=report.versions or files.versions())
    files.write_results(folder / files.RESULTS_FILE, evaluation_to_json(report))
    save_report(evaluation_as_report(report, brief=False), folder)


def evaluation_to_json(report: EvaluationReport) -> dict[str, Any]:
    """The keys of `results.json`, see `hfcomp.evaluation.results`."""
    return {
        "versions": report.versions,
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
