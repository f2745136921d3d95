"""The frame of a page: one file with its own style, script and data, which loads nothing and sends nothing.

Texts of data sets and models get into a page escaped, or as JSON that the page's script puts in as text. The page's
policy allows its own style and script, by their hashes, and images in the page, and nothing else. Every text goes
through `text_html`: captions, names and errors come from data and models.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.format import visible
from hfcomp.reporting.report import Table

FOLDER = Path(__file__).parent
STYLE = FOLDER / "page.css"
"""What pages have in common."""
LIST_STYLE, LIST_SCRIPT = FOLDER / "list.css", FOLDER / "list.js"
"""A list of items that is filtered, sorted, and drawn as one scrolls: pictures, texts and scores of each."""
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


def render_page(
    title: str, body: str, *, styles: Sequence[Path], scripts: Sequence[Path], data: Mapping[str, Any]
) -> str:
    """The text of a page, the same for the same arguments.

    Args:
        title: of the page, and its first heading.
        body: HTML below it, in which every text is escaped already.
        styles: files of CSS, after those that all pages have.
        scripts: files of JavaScript, which run in this order as one script when the page is there.
        data: JSON values by the id of the element that holds them; `readData` of `list.js`, or `JSON.parse` of its
            text, gives one to the script.
    """
    style = "\n".join(path.read_text("utf-8") for path in (STYLE, *styles))
    script = "\n".join(path.read_text("utf-8") for path in scripts)
    return Template((FOLDER / "page.html").read_text("utf-8")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        title=escape(visible(title)),
        heading=text_html(title),
        style=style,
        body=body,
        data="\n".join(_data(name, value) for name, value in data.items()),
        script=script,
    )


def _data(name: str, value: Any) -> str:
    # no "</script" in it, whatever a text says
    text = json.dumps(_visible(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def _visible(value: Any) -> Any:
    """A JSON value with the control characters of its texts written out."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(one) for key, one in value.items()}
    return [*map(_visible, value)] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
