"""The frame of a page: one file with its own style, script and data, which loads nothing and sends nothing.

Texts of data sets and models get into a page through templates, which escape every value that is not `Markup`, or as
JSON that the page's script puts in as text. The page's policy allows its own style and
script, by their hashes, and images in the page, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from hfcomp.reporting.format import visible
from hfcomp.reporting.pages.markup import difference_html, table_html, text_html

FOLDER = Path(__file__).parent
STYLE = FOLDER / "page.css"
"""What pages have in common."""
LIST_STYLE, LIST_SCRIPT = FOLDER / "list.css", FOLDER / "list.js"
"""A list of items that is filtered, sorted, and drawn as one scrolls: pictures, texts and scores of each."""


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
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "body": body}
    parts["data"] = "\n".join(_data(name, value) for name, value in data.items())
    return fill(FOLDER / "page.html", title=title, **{name: Markup(part) for name, part in parts.items()})


def fill(path: Path, **values: Any) -> Markup:
    """HTML of a template, in which every text is escaped as `text_html` does it.

    Filters for what is not a text between tags: `table` of a report, `difference` of two captions, and `attribute`.

    Args:
        path: of the template, in the language of jinja.
        values: by their names in the template.
    """
    return Markup(_template(path).render(values))


@cache
def _template(path: Path) -> jinja2.Template:
    # StrictUndefined: a name that the template does not get is an error and not an empty text
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_escaped
    )
    environment.filters |= {
        "table": lambda table: Markup(table_html(table)),
        "difference": lambda after, before: Markup(difference_html(before, after)),
        "attribute": lambda text: Markup(escape(visible(text))),
    }
    return environment.from_string(path.read_text("utf-8"))


def _escaped(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(text_html(str(value)))


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
