"""Renders an audit as terminal tables and as an HTML page."""

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
    "Numbers are percentages. Shares of caption/negative pairs have image-clustered bootstrap intervals (95%). "
    'Checks with an entry in "by chance" count decided pairs: 1 if the caption scores higher, one half for a tie. "By '
    'chance" is the result that the same scores would give if captions and negatives were swapped at random, image by '
    "image: the mean, and the value that 95% of the draws do not exceed. The mean is 50 for a likelihood, higher for "
    "a rule or probe, because the better of it and its reverse counts, and higher still for blind, the best of all "
    "rules. The other shares have no chance level."
)


def audit_report(audit: Audit, name: str, limits: Sequence[Limit]) -> Report:
    verdict = [f"failed: {reason}" for reason in audit.failures(limits)]
    skipped = [f"{check.name}: {check.reason}" for check in audit.checks.values() if check.value is None]
    sections = [Section("", [summary_table(audit, limits)]), Section("Not checked", [Lines(skipped)])]
    return Report(f"Audit of {name}", size(audit), verdict, sections, [LEGEND], audit.notes)


def size(audit: Audit) -> str:
    data = audit.data
    images = f"{len(data.first_rows):,} images" if data.first_rows else "no images"
    return f"{len(data):,} rows, {len(data.texts):,} captions, {len(data.pairs):,} negatives, {images}."


def summary_table(audit: Audit, limits: Sequence[Limit], *, describe: bool = False) -> Table:
    """Returns a table with one row per completed check."""
    limit_texts = {limit.name: f"{limit.most:g}" for limit in limits}
    rows = []
    for check in audit.checks.values():
        if check.value is None:
            continue
        limit = limit_texts.get(check.name, "") + _verdict(check.name, limits, audit)
        description = [CHECKS[check.name]] if describe else []
        rows.append(
            [
                check.name,
                *description,
                format_percent(check),
                format_chance(check),
                f"{check.of:,}",
                *([limit] if limits else []),
            ]
        )
    header = ["check", *(["what"] if describe else []), "percent", "by chance", "of", *(["limit"] if limits else [])]
    return Table("", header, rows, labels=1 + describe)


def _verdict(name: str, limits: Sequence[Limit], audit: Audit) -> str:
    limits_of_check = [limit for limit in limits if limit.name == name]
    if any(limit.reason(audit.checks) for limit in limits_of_check):
        return " failed"
    return " within chance" if any(limit.within_chance(audit.checks) for limit in limits_of_check) else ""


def format_chance(check: Check) -> str:
    """Formats the chance level, such as `52.4, at most 55.1`. Empty for a share that has none."""
    return "" if isnan(check.chance) else f"{check.chance:.1f}, at most {check.chance_high:.1f}"


def format_percent(check: Check) -> str:
    """Formats a percentage with its interval, such as `56.4 [55.1, 57.7]`."""
    if check.value is None:
        return UNKNOWN
    return with_interval({"value": check.value / 100, "low": check.low / 100, "high": check.high / 100})


SIDE = 160
"""Longer side of an image on the page, in pixels."""
_FILES = Path(__file__).parent


def audit_page(audit: Audit, name: str, limits: Sequence[Limit]) -> str:
    """Returns the HTML of the page, which is the same for the same findings."""
    checks = [
        (
            check,
            _number(check),
            CHECKS[check.name],
            [(example, list(_pictures(audit, example))) for example in check.examples],
        )
        for check in audit.checks.values()
        # The summary already shows a check that has nothing but its number.
        if check.reason or check.tables or check.examples
    ]
    body = fill(
        _FILES / "report.html",
        audit=audit,
        size=size(audit),
        failures=audit.failures(limits),
        summary=summary_table(audit, limits, describe=True),
        legend=LEGEND,
        checks=checks,
    )
    return render_page(f"Audit of {name}", body, styles=[_FILES / "report.css"], scripts=[], data={})


def _number(check: Check) -> str:
    return f"{format_percent(check)}% of {check.of:,}" if check.value is not None else "not checked"


def _pictures(audit: Audit, example: Example) -> Iterator[tuple[str, Thumbnail | str]]:
    """Yields the place of each image of an example, with a thumbnail or the reason why it cannot be read."""
    for row in [example.row, *([] if example.other_row is None else [example.other_row])]:
        for column in example.images:
            where, cell = f"column '{column}', row {row}", audit.data.images[column][row]
            try:
                # A benchmark may score only part of an image. The page shows that part.
                image = decode_image(getattr(cell, "cell", cell), where=where)
                yield where, thumbnail(image.crop(cell.box) if hasattr(cell, "box") else image, SIDE)
            except (ValueError, OSError) as error:
                yield where, str(error)
