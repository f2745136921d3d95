"""A report as Markdown, for `report.md` and for cards."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from hfcomp.reporting.figures import Figure
from hfcomp.reporting.report import Lines, Part, Picture, Report, Table


def render_markdown(report: Report, images: Collection[str] = ()) -> str:
    """A report as the text of a file.

    Args:
        report: what is rendered; its closing words are of the terminal.
        images: the files that lie beside it; figures and pictures of other names are left out.
    """
    parts = [f"# {escaped(report.title)}", escaped(report.caveat)]
    parts += [f"**{escaped(sentence)}**" for sentence in report.verdict]
    parts += map(escaped, report.legend)
    for section in report.shown():
        found = [text for part in section.shown() for text in _part(part, images)]
        if found:
            parts += [f"## {escaped(section.title)}" if section.title else "", *found]
    return "\n\n".join(part for part in parts if part) + "\n"


def _part(part: Part, images: Collection[str]) -> Iterator[str]:
    if isinstance(part, Figure | Picture):
        if part.name in images:
            yield f"![{escaped(part.title)}]({part.name})"
        return
    if part.title:
        yield f"### {escaped(part.title)}"
    yield "\n".join(markdown_table(part) if isinstance(part, Table) else _bullets(part))


def _bullets(lines: Lines) -> list[str]:
    return [f"- {escaped(text)}" for text in lines.texts]


def markdown_table(table: Table) -> list[str]:
    """The lines of a table, whatever its texts hold."""
    alignment = ["---" if index < table.labels else "---:" for index in range(len(table.header))]
    header, *rows = [[escaped(cell) for cell in cells] for cells in (table.header, *table.rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, alignment, *rows)]


def escaped(text: str) -> str:
    """A text for Markdown. Names come from data sets: they may neither end a cell or a line nor be read as HTML."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.split()).replace("|", "&#124;"))
