"""A table as rows of text, for the terminal and for Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hfcomp.experiments.comparison import Line, Share, has_ties, percent, short_metric

TERMINAL_WIDTH = 80
HEADING_WIDTH = 9
NO_TIES = "No ties: no model scored a right and a wrong candidate alike."
TIES = {"wrong": "counted as wrong", "half": "counted as half right", "win": "counted as right"}
"""What is said of ties, by the rule."""


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes:
        title: above it.
        header: names of the columns; the terminal breaks lines where they say so.
        rows: texts, as many as columns.
        labels: how many columns from the left are names; the others are numbers.
    """

    title: str
    header: list[str]
    rows: list[list[str]]
    labels: int = 1


def terminal_table(sheet: Sheet) -> Table:
    """Numbers are never broken: where 80 columns are too few, names are."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for index, name in enumerate(sheet.header):
        label = index < sheet.labels
        table.add_column(
            Text(name), justify="left" if label else "right", vertical="top", overflow="fold", no_wrap=not label
        )
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    return table


def heading(name: str, width: int = HEADING_WIDTH) -> str:
    """A name broken over lines at its hyphens and blanks, so that its column is as narrow as its numbers."""
    return "\n".join(textwrap.wrap(name, width)) or name


def markdown_table(sheet: Sheet) -> list[str]:
    """The lines of a table, whatever its texts hold."""
    alignment = ["---" if index < sheet.labels else "---:" for index in range(len(sheet.header))]
    header, *rows = [[escaped(cell) for cell in cells] for cells in (sheet.header, *sheet.rows)]
    return ["| " + " | ".join(cells) + " |" for cells in (header, alignment, *rows)]


def escaped(text: str) -> str:
    """A text for Markdown. Names come from data sets: they may neither end a cell or a line nor be read as HTML."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", " ".join(text.split()).replace("|", "&#124;"))


def ties(lines: Sequence[Line], names: Mapping[str, str], *, short: bool, rule: str = "wrong") -> Sheet:
    """The lines on which any model tied: share of items, and unless it is to be short their number.

    Args:
        lines: as `hfcomp.evaluation.results` makes them.
        names: of the models, to their headings, in the order of columns.
        short: for the terminal.
        rule: what ties count, one of `TIES`.
    """
    rows = []
    for line in lines:
        if has_ties([line]):
            metric = short_metric(line["metric"]) if short else line["metric"]
            cells = [_tie_cell(line["models"][name], short) for name in names]
            rows.append([line["benchmark"], line["subset"], metric, *cells])
    title = f"ties, {TIES[rule]}" + (", percent of items" if short else "")
    return Sheet(title, ["benchmark", "kind", "metric", *names.values()], rows, labels=3)


def _tie_cell(share: Share, short: bool) -> str:
    rate = percent(share["tie_rate"])
    return rate if short else f"{share['ties']:,} ({rate} %)"
