"""Prints a report in the terminal: 80 columns, unbroken numbers, and names broken only if necessary."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hfcomp.reporting.format import visible
from hfcomp.reporting.report import Lines, Report, Table

WIDTH = 80
HEADING = 10
"""Letters that a heading may use per line even if the numbers below it are shorter."""
TALLEST = 4
"""Maximum number of lines in a heading."""
SHORTEST_LABEL = 12
GAP = 2


def render_terminal(report: Report, console: Console | None = None, *, folder: Path | None = None) -> None:
    """Prints a report in 80 columns, even if the terminal has more.

    If the report has no closing lines, prints `folder`, the place of its files.
    """
    console = console or Console(width=max(WIDTH, Console().width))
    width = min(WIDTH, console.width)

    def say(text: str, style: str = "") -> None:
        if text.strip():
            console.print(Text(visible(text), style=style), width=width)

    # Users copy paths and commands, and a line break of ours would become part of them.
    def say_whole(text: str) -> None:
        console.print(Text(visible(text)), soft_wrap=True)

    def say_all(paragraphs: Sequence[str], style: str = "") -> None:
        for index, paragraph in enumerate(paragraphs):
            say(paragraph if index else f"\n{paragraph}", style)

    say(f"\n{report.title}", "bold")
    say(report.caveat, "bold")
    for section in report.nonempty_sections():
        say(f"\n{section.title}" if section.title else "", "bold")
        for index, part in enumerate(section.nonempty_parts()):
            if isinstance(part, Table | Lines):
                say(f"\n{part.title}" if index and part.title else part.title)
            if isinstance(part, Table):
                print_table(part, console)
            elif isinstance(part, Lines):
                for text in part.texts:
                    (say_whole if part.whole else say)(text)
    say_all(report.legend)
    closing = report.closing or ({"written to": str(folder)} if folder else {})
    for index, (word, text) in enumerate(closing.items()):
        say_whole(f"{word}: {text}" if index else f"\n{word}: {text}")
    # The verdict comes last, below all tables, where readers see it when a run has ended.
    say_all(report.verdict, "bold")


def print_table(table: Table, console: Console) -> None:
    """Prints a table without its title. Models that do not fit as columns become rows; wide tables are split."""
    if table.models and _least_width(table) > WIDTH:
        headings = [" ".join(cell for cell in row[: table.labels] if cell) for row in table.rows]
        columns = list(zip(table.header, *table.rows, strict=True))[table.labels :]
        table = Table(table.title, ["model", *headings], columns)
    header, *rows = ([*map(visible, cells)] for cells in (table.header, *table.rows))
    table = replace(table, header=header, rows=rows)
    for index, part in enumerate(_parts(table)):
        if index:
            console.print(Text("\n(continued)"))
        console.print(_rich_table(part))


def _parts(table: Table) -> Iterator[Table]:
    """Splits a table into parts, each with the labels and as many other columns as fit."""
    labels = min(table.labels, len(table.header))
    start = end = labels
    while end < len(table.header) or end == labels:
        start, end = end, end + 1
        while end < len(table.header) and _least_width(_columns(table, labels, start, end + 1)) <= WIDTH:
            end += 1
        yield _columns(table, labels, start, end)


def _columns(table: Table, labels: int, start: int, end: int) -> Table:
    header, *rows = ([*row[:labels], *row[start:end]] for row in (table.header, *table.rows))
    return replace(table, header=header, rows=rows)


def _least_widths(table: Table) -> list[int]:
    """Returns minimum column widths that keep numbers unbroken and headings within a few lines."""
    least = []
    for index, (heading, *cells) in enumerate(zip(table.header, *table.rows, strict=True)):
        widest = max(map(len, cells), default=0)
        if index < table.labels:
            width = min(SHORTEST_LABEL, max(widest, len(heading)))
        else:
            # A heading takes at most a few lines, and its longest word stays unbroken up to a third of the terminal.
            room = max(widest, HEADING, min(max(map(len, _pieces(heading))), WIDTH // 3))
            while len(wrap(heading, room)) > TALLEST:
                room += 1
            width = max(widest, *map(len, wrap(heading, room)))
        least.append(width)
    return least


def _least_width(table: Table) -> int:
    return sum(_least_widths(table)) + GAP * (len(table.header) - 1)


def _rich_table(table: Table) -> RichTable:
    """Builds a table whose labels share the room that numbers leave, each as wide as it needs if there is enough."""
    widths = _least_widths(table)
    wanted = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    room = WIDTH - _least_width(table)
    # Starts with the label that needs least, so longer labels share what it leaves of its equal share.
    for place, index in enumerate(sorted(range(table.labels), key=lambda index: wanted[index])):
        more = max(0, min(wanted[index] - widths[index], room // (table.labels - place)))
        widths[index] += more
        room -= more
    rich_table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for index, (name, width) in enumerate(zip(table.header, widths, strict=True)):
        side: Literal["left", "right"] = "left" if index < table.labels else "right"
        heading = Text("\n".join(wrap(name, max(width, 1))))
        rich_table.add_column(heading, justify=side, vertical="top", no_wrap=True, min_width=width)
    above = ""
    for row in table.rows:
        # With several labels, the first one groups rows, and its name is shown only once.
        again = table.labels > 1 and row[0] == above
        above, cells = row[0], ["", *row[1:]] if again else row
        wrapped = [wrap(cell, width) for cell, width in zip(cells[: table.labels], widths, strict=False)]
        rich_table.add_row(*(Text("\n".join(lines)) for lines in wrapped), *map(Text, cells[table.labels :]))
    return rich_table


def wrap(text: str, width: int) -> list[str]:
    """Wraps a name to a width, preferably after spaces, hyphens, underscores and slashes, otherwise inside words."""
    lines = [""]
    for piece in _pieces(text):
        # A word longer than a line starts in the remaining room and is broken anywhere.
        while len(piece.rstrip()) > width:
            room = width - len(lines[-1])
            if room <= 0:
                lines.append("")
                continue
            lines[-1], piece = lines[-1] + piece[:room], piece[room:]
        if len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(text: str) -> list[str]:
    return re.split(r"(?<=[\w.)][-_/])|(?<=\s)", " ".join(text.split())) or [""]
