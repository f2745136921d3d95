"""A page: one file with its own style, script, pictures and data, which loads nothing and sends nothing.

Texts of datasets and models get into a page through templates, which escape every value that is not `Markup` as
`text_html` does, or as JSON that the page's script puts in as text. The page's policy allows its own style and script,
by their hashes, and images in the page, and nothing else.
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
"""What pages have in common."""
LIST_STYLE, LIST_SCRIPT = FOLDER / "list.css", FOLDER / "list.js"
"""A list of items that is filtered, sorted, and drawn as one scrolls: pictures, texts and scores of each."""
_TAGS = {"removed": "del", "added": "ins"}
QUALITY = 75
"""Of JPEG."""
TINT = (255, 64, 32)
TINT_ALPHA = 38
"""Of a mask's area, 0 to 255: faint, since an edit may be a change of color."""


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
        title: Title of the page and its first heading.
        body: HTML below it, in which every text is escaped already.
        styles: CSS files, after those that all pages have.
        scripts: JavaScript files, which run in this order as one script when the page is loaded.
        data: JSON values by the id of the element that holds them; `readData` of `list.js`, or `JSON.parse` of its
            text, gives one to the script.
    """
    style = "\n".join(path.read_text("utf-8") for path in (STYLE, *styles))
    script = "\n".join(path.read_text("utf-8") for path in scripts)
    # The second line of defense after escaping: a browser runs no script and loads no address that this does not name,
    # whatever a caption has smuggled into the page.
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
    """
    return Markup(_template(path).render(values))


@cache
def _template(path: Path) -> jinja2.Template:
    # StrictUndefined: a name that the template does not get is an error, not an empty text. Autoescape alone would
    # leave control characters and the direction of texts, which `finalize` handles first. It returns Markup, so
    # nothing is escaped twice.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_escaped
    )
    environment.filters |= {
        "table": lambda table, kind="": Markup(table_html(table, kind=kind)),
        "difference": lambda after, before: Markup(difference_html(before, after)),
        "attribute": lambda text: Markup(escape(visible(text))),
    }
    return environment.from_string(path.read_text("utf-8"))


def _escaped(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(text_html(str(value)))


def _data(name: str, value: Any) -> str:
    # A browser ends a script at "</script", even inside a string: no "<" is left, whatever a text says. A NaN is not
    # JSON and would stop the page's script.
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


class Thumbnail(NamedTuple):
    """A picture of a page: a URI with its bytes inside, and its size in pixels."""

    uri: str
    width: int
    height: int


Cell = Thumbnail | str | None
"""A picture, or why there is none, or None where an item has no image."""


class Thumbnails:
    """The distinct pictures of a page, which are added to `distinct`: items of one photograph share its bytes."""

    def __init__(self, distinct: list[Thumbnail]) -> None:
        self.distinct = distinct
        self._numbers: dict[str, int] = {}

    def number(self, cell: Cell) -> int | str | None:
        """The number of a picture among the distinct ones; what is none stays as it is."""
        if not isinstance(cell, Thumbnail):
            return cell
        if cell.uri not in self._numbers:
            self._numbers[cell.uri] = len(self.distinct)
            self.distinct.append(cell)
        return self._numbers[cell.uri]


def thumbnail(image: Image.Image, side: int) -> Thumbnail:
    """A picture whose longer side has at most `side` pixels; a smaller image keeps its size.

    It is a JPEG, or a PNG where the image kept its size and that is shorter, as of a drawing.
    """
    # `Image.thumbnail` works in place.
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    kinds = ("JPEG", "PNG") if small.size == image.size else ("JPEG",)
    content, kind = min(((_encoded(small, kind), kind) for kind in kinds), key=lambda one: len(one[0]))
    return _with_uri(content, kind, small)


def mask_overlay(mask: Image.Image, size: tuple[int, int]) -> Thumbnail:
    """A picture to lay over another: tinted where the mask is lighter than middle gray, with a line around it.

    Args:
        mask: Mask of any mode and size.
        size: Width and height of the picture below it in pixels.
    """
    area = mask.convert("L").resize(size, Image.Resampling.NEAREST).point(lambda value: 255 * (value > 127))
    outline = ImageChops.subtract(area.filter(ImageFilter.MaxFilter(3)), area)
    alpha = ImageChops.add(area.point(lambda value: TINT_ALPHA * (value > 0)), outline)
    picture = Image.new("RGBA", size, (*TINT, 0))
    picture.putalpha(alpha)
    # The values are nothing, tint and line: a palette holds them in a much shorter PNG.
    few = picture.quantize(4)
    return _with_uri(_encoded(few, "PNG"), "PNG", few)


def _encoded(image: Image.Image, kind: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, quality=QUALITY, optimize=True)
    return stream.getvalue()


def _with_uri(content: bytes, kind: str, image: Image.Image) -> Thumbnail:
    return Thumbnail(f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode()}", *image.size)
