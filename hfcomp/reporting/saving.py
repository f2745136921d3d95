"""A report as Markdown, and as files: `report.md` with its figures, `report.html`, beside the JSON of its result."""

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
    """Writes a JSON file, then its report beside it, and if `shown` prints what of it fits a terminal.

    `report` makes the report, with `brief` for the terminal or whole; `page` and `items` are those of `save_report`.
    """
    # The JSON first: if drawing fails or is interrupted, a report can be made from it again, but not the reverse.
    write_results(path, contents)
    save_report(report(brief=False), path.parent, page=page, items=items)
    if shown:
        render_terminal(report(brief=True))


def save_report(
    report: Report,
    folder: Path,
    say: Callable[[str], None] = print,
    *,
    page: bool = True,
    items: ItemBrowser | None = None,
) -> None:
    """Writes `report.md`, `report.html`, figures and pictures, each whole or not at all; the folder is made.

    Without matplotlib (the extra `plots`) figures are not drawn, of which `say` receives a line; those of an earlier
    run are removed, as are figures and pictures that would be empty, and the page where none is asked for.
    """
    # Pictures before the texts that show them: whoever opens the report meanwhile finds no broken link. What this run
    # does not write is removed, or a new report would stand next to old figures.
    there: dict[str, bytes] = {}
    for image in report.images():
        try:
            content = image.content if isinstance(image, Picture) else draw(image) if image.filled() else b""
        except ImportError:
            say(f"{image.name} is not drawn: pip install 'hfcomp[plots]'")
            content = b""
        if not content:
            (folder / image.name).unlink(missing_ok=True)
            continue
        write_bytes(folder / image.name, content)
        there[image.name] = content
    write_text(folder / REPORT_FILE, render_markdown(report, there))
    if page:
        write_text(folder / PAGE_FILE, report_page(report, there, items))
    else:
        (folder / PAGE_FILE).unlink(missing_ok=True)


def render_markdown(report: Report, images: Collection[str] = ()) -> str:
    """A report without its closing words as the text of a file, with the figures and pictures that are beside it."""
    parts = [f"# {escaped(report.title)}", escaped(report.caveat)]
    parts += [f"**{escaped(sentence)}**" for sentence in report.verdict]
    parts += map(escaped, report.legend)
    for section in report.shown():
        parts += section_blocks(section, images)
    return "\n\n".join(part for part in parts if part) + "\n"


def section_blocks(section: Section, images: Collection[str] = (), *, level: int = 2) -> list[str]:
    """The title of a section, as a heading of that level, and its parts as blocks of Markdown; none if it is empty."""
    found = [text for part in section.shown() for text in _part(part, images, level + 1)]
    return [*([f"{'#' * level} {escaped(section.title)}"] if section.title else []), *found] if found else []


def _part(part: Part, images: Collection[str], level: int) -> Iterator[str]:
    if isinstance(part, Figure | Picture):
        if part.name in images:
            yield f"![{escaped(part.title)}]({part.name})"
        return
    if part.title:
        yield f"{'#' * level} {escaped(part.title)}"
    yield "\n".join(markdown_table(part) if isinstance(part, Table) else [f"- {escaped(text)}" for text in part.texts])


def markdown_table(table: Table) -> list[str]:
    """The lines of a table, whatever its texts hold."""
    alignment = ["---" if index < table.labels else "---:" for index in range(len(table.header))]
    header, *rows = [[escaped(cell) for cell in cells] for cells in (table.header, *table.rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, alignment, *rows)]


def escaped(text: str) -> str:
    """A text for Markdown. Names come from datasets: they may neither end a cell or a line, be HTML, nor link."""
    # Entities instead of backslashes, which not every renderer reads inside a table. A "<" before a number or a blank
    # is "less than" and stays.
    line = visible(" ".join(text.split())).replace("|", "&#124;").replace("](", "&#93;(")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)
