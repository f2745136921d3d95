"""How far a project is: for the terminal and the page."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from hfcomp.annotation.agreement_report import agreement_report
from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import STATES, Entry
from hfcomp.generation.inpaintcoco.agreement import annotation_statistics
from hfcomp.reporting.report import Report, Section, Table

NEWEST = 20
"""Decisions that are listed."""
LONGEST_TEXT = 60
"""Characters of a reason."""


def progress_report(decisions: Decisions) -> Report:
    """Items by concept and state, agreement, people, and the newest decisions."""
    rows = [("all", decisions.counts()), *((one, decisions.counts(concept=one)) for one in decisions.concepts())]
    items = Table(
        "",
        ("Concept", *STATES, "total"),
        [(name, *(f"{one[state]:,}" for state in STATES), f"{sum(one.values()):,}") for name, one in rows],
    )
    entries = list(decisions.log())
    log = Table(
        "",
        ("Time", "Person", "Decision", "Item", "Content"),
        [_row(one) for one in reversed(entries[-NEWEST:])],
        labels=5,
    )
    report = agreement_report(annotation_statistics(entries))
    sections = [Section("Items", [items]), *report.sections, Section("Newest decisions", [log])]
    return replace(report, sections=sections)


def _row(entry: Entry) -> tuple[str, ...]:
    time = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d %H:%M")
    text = next((str(entry.content[name]) for name in ("reason", "caption", "quality") if name in entry.content), "")
    shown = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    return time, entry.person, entry.action, entry.item, shown
