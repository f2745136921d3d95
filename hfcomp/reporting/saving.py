"""Writes a report as files: `report.md` with its figures and `report.html`, next to the JSON of the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hfcomp.reporting.figures import Figure, draw
from hfcomp.reporting.format import visible
from hfcomp.reporting.pages.items import ItemBrowser
from hfcomp.reporting.pages.report import report_page
from hfcomp.reporting.report import Part, Picture, Report, Section, Table
from hfcomp.reporting.terminal import render_terminal
from hfcomp.statistics.results import write_results
from hfcomp.writing import write_bytes, write_text

REPORT_FILE = "report.md"
PAGE_FILE = "report.html"


def publish(
    report: Callable[..., Report],
    contents: Mapping[str, Any],
    path: Path,
    *,
    shown: bool = True,
    page: bool = True,
    items: ItemBrowser | None = None,
) -> None:
    """Writes a JSON file and its report next to it; if `shown`, also prints a brief report in the terminal.

    `report(brief=False)` builds the written report, `report(brief=True)` the printed one. `page` and `items` are
    arguments of `save_report`.
    """
    # Write the JSON first: if drawing is interrupted, a report can be built from the JSON, but not vice versa.
    write_results(path, contents)
    save_report(report(brief=False), path.parent, page=page, items=items)
    if shown:
        render_terminal(report(brief=True))


def save_report(
    report: Report,
    folder: Path,
    log: Callable[[str], None] = print,
    *,
    page: bool = True,
    items: ItemBrowser | None = None,
) -> None:
    """Writes `report.md`, `report.html`, figures and pictures, each atomically; creates the folder.

    Without matplotlib (the extra `plots`), figures are not drawn and `log` receives a line about it. Earlier versions
    of this report's files are removed if they are not written again: figures and pictures that are empty or cannot be
    drawn, and the page if `page` is False.
    """
    # Write pictures before the texts that show them, so nobody opens a report with broken links. Remove what is not
    # written again; otherwise a new report would be next to old figures.
    written: dict[str, bytes] = {}
    for image in report.images():
        try:
            content = image.content if isinstance(image, Picture) else draw(image) if image.nonempty_panels() else b""
        except ImportError:
            log(f"{image.name} was not drawn because matplotlib is missing: pip install 'hfcomp[plots]'")
            content = b""
        if not content:
            (folder / image.name).unlink(missing_ok=True)
            continue
        write_bytes(folder / image.name, content)
        written[image.name] = content
    write_text(folder / REPORT_FILE, render_markdown(report, written))
    if page:
        write_text(folder / PAGE_FILE, report_page(report, written, items))
    else:
        (folder / PAGE_FILE).unlink(missing_ok=True)


def render_markdown(report: Report, images: Collection[str] = ()) -> str:
    """Renders a report as Markdown, without its closing lines, with links to the figures and pictures in `images`."""
    parts = [f"# {escape_markdown(report.title)}", escape_markdown(report.caveat)]
    parts += [f"**{escape_markdown(sentence)}**" for sentence in report.verdict]
    parts += map(escape_markdown, report.legend)
    for section in report.nonempty_sections():
        parts += section_blocks(section, images)
    return "\n\n".join(part for part in parts if part) + "\n"


def section_blocks(section: Section, images: Collection[str] = (), *, level: int = 2) -> list[str]:
    """Returns a section's title, as a heading of this level, and its parts as Markdown; [] if it is empty."""
    blocks = [text for part in section.nonempty_parts() for text in _render_part(part, images, level + 1)]
    return [*([f"{'#' * level} {escape_markdown(section.title)}"] if section.title else []), *blocks] if blocks else []


def _render_part(part: Part, images: Collection[str], level: int) -> Iterator[str]:
    if isinstance(part, Figure | Picture):
        if part.name in images:
            yield f"![{escape_markdown(part.title)}]({part.name})"
        return
    if part.title:
        yield f"{'#' * level} {escape_markdown(part.title)}"
    yield "\n".join(
        markdown_table(part) if isinstance(part, Table) else [f"- {escape_markdown(text)}" for text in part.texts]
    )


def markdown_table(table: Table) -> list[str]:
    """Returns the lines of a Markdown table; its texts may contain any characters."""
    alignment = ["---" if index < table.labels else "---:" for index in range(len(table.header))]
    header, *rows = [[escape_markdown(cell) for cell in cells] for cells in (table.header, *table.rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, alignment, *rows)]


def escape_markdown(text: str) -> str:
    """Escapes a text for Markdown. Names come from datasets and must not end a line or cell, or form HTML or links."""
    # Use entities, because not every renderer reads backslashes inside a table. A "<" before a number or a space
    # means "less than" and stays.
    line = visible(" ".join(text.split())).replace("|", "&#124;").replace("](", "&#93;(")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)
