"""Pieces of HTML. All texts are escaped: captions, names and errors come from data and models."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.report import Table

_TAGS = {"removed": "del", "added": "ins"}


def table_html(table: Table, *, kind: str = "") -> str:
    """A table of a report, of the class `kind`; its cells have the class `name` or `number`."""

    def row(cells: Iterable[str], kind: str) -> str:
        shown = (
            f'<{kind} class="{"name" if index < table.labels else "number"}">{escape(str(cell))}</{kind}>'
            for index, cell in enumerate(cells)
        )
        return f"<tr>{''.join(shown)}</tr>"

    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    body = "".join(row(cells, "td") for cells in table.rows)
    own = f' class="{escape(kind)}"' if kind else ""
    return f"<table{own}>{title}<thead>{row(table.header, 'th')}</thead><tbody>{body}</tbody></table>"


def difference_html(before: str, after: str) -> str:
    """The second text with its new words marked, and the words that are gone struck through."""
    parts = []
    for kind, text in word_changes(before, after):
        tag = _TAGS.get(kind)
        parts.append(f"<{tag}>{escape(text)}</{tag}>" if tag else escape(text))
    return " ".join(parts)
