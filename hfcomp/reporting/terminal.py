"""A report in the terminal: 80 columns, numbers never broken, names broken where they must be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from hfcomp.reporting.report import Lines, Report, Table

WIDTH = 80
HEADING = 10
"""Letters that a heading may have in a line even where the numbers below it have fewer."""
TALLEST = 4
"""Lines that the name of a model may have in a heading."""
FEW = 2
"""Up to this many models stay columns, however long their names are."""
SHORTEST_LABEL = 12
GAP = 2


def render_terminal(report: Report, console: Console | None = None, *, folder: Path | None = None) -> None:
    """Prints a report, in 80 columns whether or not the terminal has more.

    The verdict stands last, before where the files lie: it is what is seen when a run has ended.

    Args:
        report: what is printed.
        console: by default standard output.
        folder: where the report's files lie, which is said where the report does not.
    """
    console = console or Console(width=max(WIDTH, Console().width))
    say = _Printer(console)
    say(f"\n{report.title}", "bold")
    say(report.caveat, "bold")
    for section in report.shown():
        say(f"\n{section.title}" if section.title else "", "bold")
        for index, part in enumerate(section.shown()):
            if isinstance(part, Table | Lines):
                say(f"\n{part.title}" if index and part.title else part.title)
            if isinstance(part, Table):
                print_table(part, console)
            elif isinstance(part, Lines):
                for text in part.texts:
                    (say.whole if part.whole else say)(text)
    for index, paragraph in enumerate(report.legend):
        say(paragraph if index else f"\n{paragraph}")
    for index, sentence in enumerate(report.verdict):
        say(sentence if index else f"\n{sentence}", "bold")
    closing = report.closing or ({"written to": str(folder)} if folder else {})
    if closing and not report.verdict:
        console.print()
    for word, text in closing.items():
        say.whole(f"{word}: {text}")


class _Printer:
    """Prints what is not empty, as text without markup."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, text: str, style: str = "") -> None:
        if text:
            self.console.print(Text(text, style=style), width=min(WIDTH, self.console.width))

    def whole(self, text: str) -> None:
        """What is to be copied is not broken over lines."""
        self.console.print(Text(text), soft_wrap=True)


def print_table(table: Table, console: Console) -> None:
    """Prints a table without its title, as several where it is too wide."""
    for index, part in enumerate(_fitted(table)):
        if index:
            console.print(Text("\n(continued)"))
        console.print(_rich_table(part))


def _fitted(table: Table) -> Iterator[Table]:
    """Tables that fit: the same one, models as rows where they do not fit as columns, or the columns in parts."""
    if _least_width(table) <= WIDTH and (table.models <= FEW or not _has_long_models(table)):
        yield table
        return
    table = _transposed(table) if table.models else table
    start, first = min(table.labels, len(table.header) - 1), True
    while start < len(table.header) or first:
        end = start + 1
        while end < len(table.header) and _least_width(_columns(table, start, end + 1)) <= WIDTH:
            end += 1
        yield _columns(table, start, end)
        start, first = end, False


def _columns(table: Table, start: int, end: int) -> Table:
    labels = min(table.labels, len(table.header) - 1)
    header, *rows = ([*row[:labels], *row[start:end]] for row in (table.header, *table.rows))
    return replace(table, header=header, rows=rows, models=0, labels=max(labels, min(table.labels, len(header))))


def _transposed(table: Table) -> Table:
    """A row for each model, and for each column before them; the labels of rows become the heading."""
    headings = [" ".join(cell for cell in row[: table.labels] if cell) for row in table.rows]
    names = table.header[table.labels :]
    rows = [[name, *(row[table.labels + index] for row in table.rows)] for index, name in enumerate(names)]
    return Table(table.title, ["model", *headings], rows)


def _has_long_models(table: Table) -> bool:
    names = table.header[-table.models :]
    widths = [max(HEADING, *map(len, column)) for column in zip(*table.rows, strict=True)][-table.models :]
    return any(
        len(wrapped) > TALLEST or max(map(len, _pieces(name))) > width
        for name, width in zip(names, widths, strict=True)
        for wrapped in [wrap(name, width)]
    )


def _least_width(table: Table) -> int:
    return sum(_least_widths(table)) + GAP * (len(table.header) - 1)


def _least_widths(table: Table) -> list[int]:
    found = []
    for index, column in enumerate(zip(table.header, *table.rows, strict=True)):
        heading, *cells = column
        if index < table.labels:
            found.append(min(SHORTEST_LABEL, max(map(len, column))))
        else:
            numbers = max(map(len, cells), default=0)
            found.append(max(numbers, *map(len, wrap(heading, max(numbers, HEADING)))))
    return found


def _rich_table(table: Table) -> RichTable:
    """Labels share the room that numbers leave, each as wide as it wants where there is enough for all."""
    widths, columns = _least_widths(table), list(zip(table.header, *table.rows, strict=True))
    wanted = [max(max(map(len, column)), 1) for column in columns]
    room = WIDTH - sum(widths) - GAP * (len(widths) - 1)
    for place, index in enumerate(sorted(range(table.labels), key=lambda index: wanted[index])):
        more = max(0, min(wanted[index] - widths[index], room // (table.labels - place)))
        widths[index] += more
        room -= more
    found = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for index, (name, width) in enumerate(zip(table.header, widths, strict=True)):
        heading = Text("\n".join(wrap(name, max(width, 1))))
        found.add_column(
            heading, justify="left" if index < table.labels else "right", vertical="top", no_wrap=True, min_width=width
        )
    above = ""
    for row in table.rows:
        again = table.labels > 1 and row[0] == above  # a name stands once
        above, cells = row[0], ["", *row[1:]] if again else row
        wrapped = [wrap(cell, width) for cell, width in zip(cells[: table.labels], widths, strict=False)]
        found.add_row(*(Text("\n".join(lines)) for lines in wrapped), *map(Text, cells[table.labels :]))
    return found


def wrap(text: str, width: int) -> list[str]:
    """A name in lines of a width, broken behind blanks, hyphens, underscores and slashes, and only then in words."""
    lines = [""]
    for piece in _pieces(text):
        while len(piece.rstrip()) > width:  # a word that is longer than a line
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
