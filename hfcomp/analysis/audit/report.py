"""The tables of an audit, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from hfcomp.analysis.audit.audit import Audit
from hfcomp.analysis.audit.checks import CHECKS, Check
from hfcomp.analysis.audit.limits import Limit
from hfcomp.reporting.format import UNKNOWN, with_interval
from hfcomp.reporting.report import Lines, Report, Section, Table

LEGEND = (
    "Percent, with image-clustered bootstrap intervals (95 %) where pairs of a caption and a negative are counted. "
    "A pair is decided correctly where the caption scores strictly higher; chance is 50, and ties are undecided."
)


def audit_report(audit: Audit, name: str, limits: Sequence[Limit]) -> Report:
    """What the terminal shows; `name` is that of the set."""
    verdict = [f"failed: {reason}" for reason in audit.failures(limits)]
    unmade = [f"{check.name}: {check.reason}" for check in audit.checks.values() if check.value is None]
    sections = [Section("", [summary_table(audit, limits)]), Section("Not checked", [Lines(unmade)])]
    return Report(f"Audit of {name}", size(audit), verdict, sections, [LEGEND], audit.data.notes)


def size(audit: Audit) -> str:
    """How much there is, in words."""
    data = audit.data
    images = f"{len(data.first_rows):,} images" if data.first_rows else "no images"
    return f"{len(data):,} rows, {len(data.texts):,} captions, {len(data.pairs):,} negatives, {images}."


def summary_table(audit: Audit, limits: Sequence[Limit], *, words: bool = False) -> Table:
    """A row for each check that was made.

    Args:
        audit: what was found.
        limits: of CI.
        words: whether rows say what their number is of.
    """
    most = {limit.name: f"{limit.most:g}" for limit in limits}
    failed = {limit.name for limit in limits if limit.reason(audit.checks)}
    rows = []
    for check in audit.checks.values():
        if check.value is None:
            continue
        limit = most.get(check.name, "") + (" failed" if check.name in failed else "")
        about = [CHECKS[check.name]] if words else []
        rows.append([check.name, *about, percent(check), f"{check.of:,}", *([limit] if limits else [])])
    header = ["check", *(["what"] if words else []), "percent", "of", *(["limit"] if limits else [])]
    return Table("", header, rows, labels=1 + words)


def percent(check: Check) -> str:
    """`56.4 [55.1, 57.7]`."""
    if check.value is None:
        return UNKNOWN
    return with_interval({"value": check.value / 100, "low": check.low / 100, "high": check.high / 100})
