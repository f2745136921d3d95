"""Pieces of HTML. Every text goes through `text_html`: captions, names and errors come from data and models."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.format import visible
from hfcomp.reporting.report import Table

_TAGS = {"removed": "del", "added": "ins"}


def text_html(text: str) -> str:
    """A text as HTML: escaped, its control characters written out, and of a direction of its own.

    A text of another direction, or one that turns it, so turns no word around it. ASCII needs no element for that.
    """
    shown = escape(visible(text))
    return shown if text.isascii() else f"<bdi>{shown}</bdi>"


def table_html(table: Table, *, kind: str = "") -> str:
    """A table of a report, of the class `kind`; its cells have the class `name` or `number`."""

    def row(cells: Iterable[str], kind: str) -> str:
        shown = (
            f'<{kind} class="{"name" if index < table.labels else "number"}">{text_html(str(cell))}</{kind}>'
            for index, cell in enumerate(cells)
        )
        return f"<tr>{''.join(shown)}</tr>"

    title = f"<caption>{text_html(table.title)}</caption>" if table.title else ""
    body = "".join(row(cells, "td") for cells in table.rows)
    own = f' class="{escape(kind)}"' if kind else ""
    return f"<table{own}>{title}<thead>{row(table.header, 'th')}</thead><tbody>{body}</tbody></table>"


def difference_html(before: str, after: str) -> str:
    """The second text with its new words marked, and the words that are gone struck through."""
    parts = []
    for kind, text in word_changes(before, after):
        tag = _TAGS.get(kind)
        parts.append(f"<{tag}>{text_html(text)}</{tag}>" if tag else text_html(text))
    return " ".join(parts)
