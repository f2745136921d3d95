"""A report as one page: tables that sort, the figures inside it, and items to look at where there are some."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from html import escape

from hfcomp.reporting.figures import Figure
from hfcomp.reporting.pages.items import ItemBrowser, items_html
from hfcomp.reporting.pages.page import FOLDER, LIST_SCRIPT, LIST_STYLE, render_page, table_html, text_html
from hfcomp.reporting.report import Part, Picture, Report, Section, Table

ITEMS = "items"
"""The id of the section of items."""


def report_page(report: Report, images: Mapping[str, bytes], items: ItemBrowser | None = None) -> str:
    """The text of the page, the same for the same arguments.

    Args:
        report: what it shows, but for the closing words.
        images: PNGs of the report's figures and pictures, by name; one that is missing is left out.
        items: to look at, in a section of their own.
    """
    sections = [(section, _section(section, images)) for section in report.shown()]
    titled = [(f"s{place}", section.title, body) for place, (section, body) in enumerate(sections) if body]
    if items is not None:
        titled.append((ITEMS, "Items", items_html(items)))
    body = [
        *_head(report),
        _contents([(place, title) for place, title, _ in titled if title]),
        *(_titled(place, title, body) for place, title, body in titled),
    ]
    shown = items is not None and bool(items.items)
    return render_page(
        report.title,
        "\n".join(body),
        styles=[LIST_STYLE, FOLDER / "report.css", FOLDER / "items.css"],
        scripts=[LIST_SCRIPT, FOLDER / "tables.js", *([FOLDER / "items.js"] if shown else [])],
        data=items.data() if items is not None and shown else {},
    )


def _head(report: Report) -> Iterator[str]:
    """What stands above the sections."""
    if report.caveat:
        yield f'<p class="caveat">{text_html(report.caveat)}</p>'
    yield from (f'<p class="verdict">{text_html(sentence)}</p>' for sentence in report.verdict)
    if report.legend:
        paragraphs = "".join(f"<p>{text_html(text)}</p>" for text in report.legend)
        yield f"<details><summary>How to read the numbers</summary>{paragraphs}</details>"


def _contents(titled: Iterable[tuple[str, str]]) -> str:
    links = "".join(f'<li><a href="#{place}">{text_html(title)}</a></li>' for place, title in titled)
    return f'<ul class="parts">{links}</ul>' if links else ""


def _titled(place: str, title: str, body: str) -> str:
    heading = f'<h2 id="{place}">{text_html(title)}</h2>\n' if title else ""
    return f"<section>\n{heading}{body}\n</section>"


def _section(section: Section, images: Mapping[str, bytes]) -> str:
    return "\n".join(text for part in section.shown() for text in _part(part, images))


def _part(part: Part, images: Mapping[str, bytes]) -> Iterator[str]:
    if isinstance(part, Table):
        yield f'<div class="wide">{table_html(part, kind="sorted")}</div>'
    elif isinstance(part, Figure | Picture):
        if images.get(part.name):
            content = base64.b64encode(images[part.name]).decode()
            source = f'src="data:image/png;base64,{content}" alt="{escape(part.title)}"'
            yield f'<figure class="drawing"><img {source}></figure>'
    else:
        title = f'<p class="lines-title">{text_html(part.title)}</p>' if part.title else ""
        yield f'{title}<ul class="lines">{"".join(f"<li>{text_html(text)}</li>" for text in part.texts)}</ul>'
