"""Self-contained pages: a single file with its style, script, pictures and data, which loads and sends nothing.

Texts from datasets and models enter a page in two ways: through templates, which escape every value that is not
`Markup` with `text_html`, or as JSON, which the page's script inserts as text. The page's security policy allows only
its own style and script, identified by their hashes, and embedded images.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup
from PIL import Image, ImageChops, ImageFilter

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.format import visible
from hfcomp.reporting.report import Table

FOLDER = Path(__file__).parent
STYLE = FOLDER / "page.css"
"""Style that all pages share."""
LIST_STYLE, LIST_SCRIPT = FOLDER / "list.css", FOLDER / "list.js"
"""Style and script of an item list that is filtered, sorted and drawn on scrolling: pictures, texts and scores."""
_TAGS = {"removed": "del", "added": "ins"}
QUALITY = 75
"""JPEG quality."""
TINT = (255, 64, 32)
TINT_ALPHA = 38
"""Opacity of a mask's area, 0 to 255: faint, because an edit may be a change of color."""


def text_html(text: str) -> str:
    """Escapes a text for HTML, writes out its control characters, and isolates its text direction.

    Isolation keeps a right-to-left text, or a character that changes the direction, from affecting the words around
    it. ASCII text needs no element for this.
    """
    shown = escape(visible(text))
    return shown if text.isascii() else f"<bdi>{shown}</bdi>"


def table_html(table: Table, *, kind: str = "") -> str:
    """Renders a table of a report with the class `kind`; its cells have the class `name` or `number`."""

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
    """Returns the second text with its new words marked and the removed words struck through."""
    parts = []
    for kind, text in word_changes(before, after):
        tag = _TAGS.get(kind)
        parts.append(f"<{tag}>{text_html(text)}</{tag}>" if tag else text_html(text))
    return " ".join(parts)


def render_page(
    title: str, body: str, *, styles: Sequence[Path], scripts: Sequence[Path], data: Mapping[str, Any]
) -> str:
    """Renders a page; the same arguments give the same text.

    Args:
        title: Title of the page and its first heading.
        body: HTML below the heading, in which every text has already been escaped.
        styles: CSS files, applied after the shared style.
        scripts: JavaScript files, which run in this order as one script when the page is loaded.
        data: JSON values by the id of the element that holds them. The script reads a value with `readData` from
            `list.js`, or with `JSON.parse` on the element's text.
    """
    style = "\n".join(path.read_text("utf-8") for path in (STYLE, *styles))
    script = "\n".join(path.read_text("utf-8") for path in scripts)
    # The second line of defense after escaping: a browser runs only the scripts and loads only the addresses that this
    # policy names, whatever a caption has smuggled into the page.
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "body": body}
    parts["data"] = "\n".join(_data(name, value) for name, value in data.items())
    return fill(FOLDER / "page.html", title=title, **{name: Markup(part) for name, part in parts.items()})


def fill(path: Path, **values: Any) -> Markup:
    """Fills a template; every text is escaped with `text_html`.

    Filters handle values that are not texts between tags: `table` for a report's table, `difference` for two captions,
    and `attribute`.
    """
    return Markup(_template(path).render(values))


@cache
def _template(path: Path) -> jinja2.Template:
    # StrictUndefined makes a missing name an error, not an empty text. Autoescape does not handle control characters
    # and text direction, so `finalize` does this first. It returns Markup, so nothing is escaped twice.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_escape
    )
    environment.filters |= {
        "table": lambda table, kind="": Markup(table_html(table, kind=kind)),
        "difference": lambda after, before: Markup(difference_html(before, after)),
        "attribute": lambda text: Markup(escape(visible(text))),
    }
    return environment.from_string(path.read_text("utf-8"))


def _escape(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(text_html(str(value)))


def _data(name: str, value: Any) -> str:
    # A browser ends a script at "</script", even inside a string, so every "<" is replaced. A NaN is not JSON and
    # would stop the page's script.
    text = json.dumps(_visible(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def _visible(value: Any) -> Any:
    """Returns a JSON value with the control characters of its texts written out."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(entry) for key, entry in value.items()}
    return [*map(_visible, value)] if isinstance(value, list | tuple) else value


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


class Thumbnail(NamedTuple):
    """A picture on a page: a data URI and its size in pixels."""

    uri: str
    width: int
    height: int


Cell = Thumbnail | str | None
"""A picture, or the reason why it is missing, or None if an item has no image."""


class Thumbnails:
    """Collects the distinct pictures of a page in `distinct`, so items of one photograph share its bytes."""

    def __init__(self, distinct: list[Thumbnail]) -> None:
        self.distinct = distinct
        self._numbers: dict[str, int] = {}

    def number(self, cell: Cell) -> int | str | None:
        """Returns the number of a picture among the distinct ones; returns anything else unchanged."""
        if not isinstance(cell, Thumbnail):
            return cell
        if cell.uri not in self._numbers:
            self._numbers[cell.uri] = len(self.distinct)
            self.distinct.append(cell)
        return self._numbers[cell.uri]


def thumbnail(image: Image.Image, side: int) -> Thumbnail:
    """Shrinks an image so that its longer side has at most `side` pixels; a smaller image keeps its size.

    Encodes it as JPEG, or as PNG if the image kept its size and the PNG is smaller, for example for a drawing.
    """
    # `Image.thumbnail` works in place.
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    kinds = ("JPEG", "PNG") if small.size == image.size else ("JPEG",)
    content, kind = min(((_encode(small, kind), kind) for kind in kinds), key=lambda encoded: len(encoded[0]))
    return _with_uri(content, kind, small)


def mask_overlay(mask: Image.Image, size: tuple[int, int]) -> Thumbnail:
    """Returns a picture to overlay on another: tinted where the mask is lighter than middle gray, with an outline.

    Args:
        mask: Mask of any mode and size.
        size: Width and height of the picture below, in pixels.
    """
    area = mask.convert("L").resize(size, Image.Resampling.NEAREST).point(lambda value: 255 * (value > 127))
    outline = ImageChops.subtract(area.filter(ImageFilter.MaxFilter(3)), area)
    alpha = ImageChops.add(area.point(lambda value: TINT_ALPHA * (value > 0)), outline)
    picture = Image.new("RGBA", size, (*TINT, 0))
    picture.putalpha(alpha)
    # There are only three values (transparent, tint and outline), so a palette makes the PNG much smaller.
    few = picture.quantize(4)
    return _with_uri(_encode(few, "PNG"), "PNG", few)


def _encode(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, quality=QUALITY, optimize=True)
    return stream.getvalue()


def _with_uri(content: bytes, kind: str, image: Image.Image) -> Thumbnail:
    return Thumbnail(f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}", *image.size)
