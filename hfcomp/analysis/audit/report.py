"""The tables of an audit, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from hfcomp.analysis.audit.audit import Audit
from hfcomp.analysis.audit.checks import CHECKS, Check
from hfcomp.analysis.audit.limits import Limit
from hfcomp.reporting.format import UNKNOWN, with_interval
from hfcomp.reporting.report import Lines, Report, Section, Table

LEGEND = (
    "Percent, with image-clustered bootstrap intervals (95 %) where pairs of a caption and a negative are counted. "
    "Where there is a number by chance, pairs are decided: 1 where the caption scores higher, a half for a tie. The "
    "number by chance is what the same scores give where captions and negatives of an image change places at random, "
    "on average and at most in 95 % of draws: 50 on average for a likelihood, more for the better of a rule or probe "
    "and its reverse, and more again for blind, the best of all rules. Chance says nothing of the other shares."
)


def audit_report(audit: Audit, name: str, limits: Sequence[Limit]) -> Report:
    """What the terminal shows; `name` is that of the set."""
    verdict = [f"failed: {reason}" for reason in audit.failures(limits)]
    unmade = [f"{check.name}: {check.reason}" for check in audit.checks.values() if check.value is None]
    sections = [Section("", [summary_table(audit, limits)]), Section("Not checked", [Lines(unmade)])]
    return Report(f"Audit of {name}", size(audit), verdict, sections, [LEGEND], audit.notes)


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
    rows = []
    for check in audit.checks.values():
        if check.value is None:
            continue
        limit = most.get(check.name, "") + _verdict(check.name, limits, audit)
        about = [CHECKS[check.name]] if words else []
        rows.append(
            [check.name, *about, percent(check), by_chance(check), f"{check.of:,}", *([limit] if limits else [])]
        )
    header = ["check", *(["what"] if words else []), "percent", "by chance", "of", *(["limit"] if limits else [])]
    return Table("", header, rows, labels=1 + words)


def _verdict(name: str, limits: Sequence[Limit], audit: Audit) -> str:
    own = [limit for limit in limits if limit.name == name]
    if any(limit.reason(audit.checks) for limit in own):
        return " failed"
    return " within chance" if any(limit.within_chance(audit.checks) for limit in own) else ""


def by_chance(check: Check) -> str:
    """`52.4, at most 55.1`; nothing for a share that chance says nothing of."""
    return "" if isnan(check.chance) else f"{check.chance:.1f}, at most {check.chance_high:.1f}"


def percent(check: Check) -> str:
    """`56.4 [55.1, 57.7]`."""
    if check.value is None:
        return UNKNOWN
    return with_interval({"value": check.value / 100, "low": check.low / 100, "high": check.high / 100})
