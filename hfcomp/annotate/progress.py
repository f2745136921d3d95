"""Progress of a project and agreement between its people, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime

from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import STATES, Entry
from hfcomp.factory.inpaintcoco.agreement import (
    DECISIONS,
    KAPPA,
    Agreement,
    AnnotationStatistics,
    Estimate,
    annotation_statistics,
)
from hfcomp.metrics.units import PERCENT, Unit
from hfcomp.reporting.format import UNKNOWN, decimal, with_interval
from hfcomp.reporting.report import Report, Section, Table

# Number of decisions to list.
NEWEST = 20
# Maximum length of a decision's text, in characters.
LONGEST_TEXT = 60


def progress_report(decisions: Decisions) -> Report:
    rows = [("all", decisions.counts()), *((name, decisions.counts(concept=name)) for name in decisions.concepts())]
    items = Table(
        "",
        ("Concept", *STATES, "total"),
        [(name, *(f"{counts[state]:,}" for state in STATES), f"{sum(counts.values()):,}") for name, counts in rows],
    )
    entries = list(decisions.log())
    log = Table(
        "",
        ("Time", "Person", "Decision", "Item", "Content"),
        [_log_row(entry) for entry in reversed(entries[-NEWEST:])],
        labels=5,
    )
    report = agreement_report(annotation_statistics(entries))
    sections = [Section("Items", [items]), *report.sections, Section("Newest decisions", [log])]
    return replace(report, sections=sections)


def _log_row(entry: Entry) -> tuple[str, ...]:
    time = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d %H:%M")
    text = next((str(entry.content[name]) for name in ("reason", "caption", "quality") if name in entry.content), "")
    short = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    return time, entry.person, entry.action, entry.item, short


LEGEND = (
    "Same rating: percentage of accepted edits that annotator and reviewer rated the same without seeing each other's "
    "rating. Kappa: Cohen's kappa of these ratings, 0 for chance agreement and 1 for full agreement; undefined if all "
    "ratings are the same. Brackets: 95% intervals over items. Sent back: share of reviews. The row for all people "
    "excludes automatic edits. Seconds: median time from receiving an item to the decision. Undone decisions are not "
    "counted."
)


def agreement_report(statistics: AnnotationStatistics) -> Report:
    agreement = Table(
        "",
        ("Annotator", "Reviewer", "Accepted", "Same rating", "Kappa", "Sent back"),
        [_agreement_row(pair) for pair in (statistics.overall, *statistics.pairs)],
        labels=2,
    )
    work = Table(
        "",
        ("Person", *(f"{action[0].upper()}{action[1:]}" for action in DECISIONS), "Seconds to submit", "to review"),
        [
            (
                person.person,
                *(f"{person.decisions[action]:,}" for action in DECISIONS),
                _seconds(person.annotating_seconds),
                _seconds(person.reviewing_seconds),
            )
            for person in statistics.people
        ],
    )
    sent_back: dict[str, int] = {}
    for pair in statistics.pairs:
        for reason, number in pair.reasons.items():
            sent_back[reason] = sent_back.get(reason, 0) + number
    reasons = [_reasons("Sent back", sent_back), _reasons("Skipped", statistics.skip_reasons)]
    sections = [Section("Agreement", [agreement]), Section("Reasons", reasons), Section("People", [work])]
    return Report("Annotation", sections=sections, legend=[LEGEND])


def _agreement_row(agreement: Agreement) -> tuple[str, ...]:
    return (
        agreement.annotator or "all people",
        agreement.reviewer or "all people",
        f"{agreement.accepted:,}",
        _estimate_text(agreement.equal, PERCENT),
        "undefined"
        if agreement.accepted and agreement.kappa.value is None
        else _estimate_text(agreement.kappa, KAPPA),
        f"{agreement.sent_back:,} ({decimal(agreement.sent_back_share)} %)" if agreement.sent_back else "0",
    )


def _estimate_text(estimate: Estimate, unit: Unit) -> str:
    return with_interval(asdict(estimate), unit)


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _reasons(title: str, reasons: Mapping[str, int]) -> Table:
    rows = sorted(reasons.items(), key=lambda row: (-row[1], row[0]))
    return Table(title, ("Reason", "Items"), [(reason, f"{number:,}") for reason, number in rows])
