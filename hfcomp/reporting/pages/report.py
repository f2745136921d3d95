"""A report as a single page: sortable tables, embedded figures and, if given, an item browser."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from markupsafe import Markup

from hfcomp.reporting.figures import Figure
from hfcomp.reporting.pages.items import ItemBrowser, items_html
from hfcomp.reporting.pages.page import FOLDER, LIST_SCRIPT, LIST_STYLE, fill, render_page
from hfcomp.reporting.report import Part, Picture, Report, Section

ITEMS = "items"
"""Id of the item section."""


def report_page(report: Report, images: Mapping[str, bytes], items: ItemBrowser | None = None) -> str:
    """Renders the page of a report; the same arguments give the same text.

    Args:
        report: Report to render, without its closing lines, which are meant for the terminal.
        images: PNGs of the report's figures and pictures, by name; missing ones are left out.
        items: Items to browse, in a separate section.
    """
    parts = [(section.title, _shown_parts(section, images)) for section in report.nonempty_sections()]
    sections = [(f"s{place}", title, own) for place, (title, own) in enumerate(parts) if own]
    if items is not None:
        sections.append((ITEMS, "Items", [items_html(items)]))
    # Figures are embedded, because the file is often mailed or moved without its folder.
    encoded = {name: base64.b64encode(content).decode() for name, content in images.items()}
    body = fill(
        FOLDER / "report.html",
        report=report,
        contents=[(place, title) for place, title, _ in sections if title],
        sections=sections,
        images={name: Markup(f"data:image/png;base64,{content}") for name, content in encoded.items()},
    )
    shown = items is not None and bool(items.items)
    return render_page(
        report.title,
        body,
        styles=[LIST_STYLE, FOLDER / "report.css", FOLDER / "items.css"],
        scripts=[LIST_SCRIPT, FOLDER / "tables.js", *([FOLDER / "items.js"] if shown else [])],
        data=items.data() if items is not None and shown else {},
    )


def _shown_parts(section: Section, images: Mapping[str, bytes]) -> list[Part | str]:
    # Without matplotlib, a figure has no PNG. A section that contains only figures is then left out of the page.
    return [
        part for part in section.nonempty_parts() if not isinstance(part, Figure | Picture) or images.get(part.name)
    ]
