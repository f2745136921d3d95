"""The tables of an audit for the terminal, and its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from hfcomp.analysis.audit.audit import Audit
from hfcomp.analysis.audit.checks import CHECKS, Check, Example, Limit
from hfcomp.data.images import decode_image
from hfcomp.reporting.format import UNKNOWN, with_interval
from hfcomp.reporting.pages.page import Thumbnail, fill, render_page, thumbnail
from hfcomp.reporting.report import Lines, Report, Section, Table

LEGEND = (
    "Percent, with image-clustered bootstrap intervals (95%) where pairs of a caption and a negative are counted. "
    "Where there is a number by chance, pairs are decided: 1 where the caption scores higher, a half for a tie. The "
    "number by chance is what the same scores give where captions and negatives of an image change places at random, "
    "on average and at most in 95% of draws: 50 on average for a likelihood, more for the better of a rule or probe "
    "and its reverse, and more again for blind, the best of all rules. Chance says nothing of the other shares."
)


def audit_report(audit: Audit, name: str, limits: Sequence[Limit]) -> Report:
    verdict = [f"failed: {reason}" for reason in audit.failures(limits)]
    unmade = [f"{check.name}: {check.reason}" for check in audit.checks.values() if check.value is None]
    sections = [Section("", [summary_table(audit, limits)]), Section("Not checked", [Lines(unmade)])]
    return Report(f"Audit of {name}", size(audit), verdict, sections, [LEGEND], audit.notes)


def size(audit: Audit) -> str:
    data = audit.data
    images = f"{len(data.first_rows):,} images" if data.first_rows else "no images"
    return f"{len(data):,} rows, {len(data.texts):,} captions, {len(data.pairs):,} negatives, {images}."


def summary_table(audit: Audit, limits: Sequence[Limit], *, words: bool = False) -> Table:
    """A row for each check that was made."""
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


SIDE = 160
"""Pixels of the longer side of a picture."""
_FILES = Path(__file__).parent


def audit_page(audit: Audit, name: str, limits: Sequence[Limit]) -> str:
    """The text of the page, the same for the same findings."""
    checks = [
        (check, _number(check), CHECKS[check.name], [(one, list(_pictures(audit, one))) for one in check.examples])
        for check in audit.checks.values()
        # A check that has only its number is complete in the summary.
        if check.reason or check.tables or check.examples
    ]
    body = fill(
        _FILES / "report.html",
        audit=audit,
        size=size(audit),
        failures=audit.failures(limits),
        summary=summary_table(audit, limits, words=True),
        legend=LEGEND,
        checks=checks,
    )
    return render_page(f"Audit of {name}", body, styles=[_FILES / "report.css"], scripts=[], data={})


def _number(check: Check) -> str:
    return f"{percent(check)} % of {check.of:,}" if check.value is not None else "not checked"


def _pictures(audit: Audit, example: Example) -> Iterator[tuple[str, Thumbnail | str]]:
    """Where each image of an example is, and its picture or why it cannot be read."""
    for row in [example.row, *([] if example.other_row is None else [example.other_row])]:
        for column in example.images:
            where, cell = f"column '{column}', row {row}", audit.data.images[column][row]
            try:
                # A benchmark may score a part of an image. The page shows what was scored.
                image = decode_image(getattr(cell, "cell", cell), where=where)
                yield where, thumbnail(image.crop(cell.box) if hasattr(cell, "box") else image, SIDE)
            except (ValueError, OSError) as error:
                yield where, str(error)
