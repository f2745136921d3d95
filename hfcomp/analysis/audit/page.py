"""The page of an audit: one HTML file with its tables and examples, which needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from hfcomp.analysis.audit.audit import Audit
from hfcomp.analysis.audit.checks import CHECKS, Check, Example
from hfcomp.analysis.audit.limits import Limit
from hfcomp.analysis.audit.report import LEGEND, percent, size, summary_table
from hfcomp.data.images import decode_image
from hfcomp.reporting.pages.page import difference_html, render_page, table_html, text_html, thumbnail

SIDE = 160
"""Pixels of the longer side of a picture."""
_STYLE = Path(__file__).with_name("audit.css")


def audit_page(audit: Audit, name: str, limits: Sequence[Limit]) -> str:
    """The text of the page, the same for the same findings.

    Args:
        audit: what was found.
        name: of the set.
        limits: of CI.
    """
    failures = "".join(f"<li>{text_html(reason)}</li>" for reason in audit.failures(limits))
    notes = "".join(f"<li>{text_html(note)}</li>" for note in audit.notes)
    parts = [
        f'<p class="about">{text_html(size(audit))}</p>',
        f'<ul class="failed">{failures}</ul>' if failures else "",
        f'<ul class="notes">{notes}</ul>' if notes else "",
        f'<div class="wide">{table_html(summary_table(audit, limits, words=True))}</div>',
        f'<p class="about">{text_html(LEGEND)}</p>',
        *(_section(audit, check) for check in audit.checks.values() if _has_more(check)),
    ]
    return render_page(f"Audit of {name}", "\n".join(parts), styles=[_STYLE], scripts=[], data={})


def _has_more(check: Check) -> bool:
    """Whether there is more to show than the number."""
    return bool(check.reason or check.tables or check.examples)


def _section(audit: Audit, check: Check) -> str:
    number = f"{percent(check)} % of {check.of:,}" if check.value is not None else "not checked"
    parts = [
        f'<section id="{check.name}"><h2>{check.name} <small>{text_html(number)}</small></h2>',
        f"<p>{text_html(CHECKS[check.name])}.</p>",
        f'<p class="reason">{text_html(check.reason)}</p>' if check.reason else "",
        *(f'<div class="wide">{table_html(table)}</div>' for table in check.tables),
        f'<ul class="examples">{"".join(_example(audit, one) for one in check.examples)}</ul>'
        if check.examples
        else "",
    ]
    return "\n".join([*filter(None, parts), "</section>"])


def _example(audit: Audit, example: Example) -> str:
    rows = [example.row, *([] if example.other_row is None else [example.other_row])]
    pictures = "".join(_picture(audit, column, row) for row in rows for column in example.images)
    texts = f"<q>{text_html(example.text)}</q>" if example.text else ""
    if example.other:
        texts += f"<q>{difference_html(example.text, example.other)}</q>"
    note = f"<small>{text_html(example.note or f'row {example.row}')}</small>"
    return f"<li>{pictures}<div>{texts}{note}</div></li>"


def _picture(audit: Audit, column: str, row: int) -> str:
    where = f"column '{column}', row {row}"
    cell = audit.data.images[column][row]
    try:
        image = decode_image(getattr(cell, "cell", cell), where=where)
        made = thumbnail(image.crop(cell.box) if hasattr(cell, "box") else image, SIDE)
    except (ValueError, OSError) as error:
        return f'<span class="absent">{text_html(str(error))}</span>'
    size = f'width="{made.width}" height="{made.height}"'
    return f'<img src="{made.uri}" {size} alt="{escape(where)}">'
