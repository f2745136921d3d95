"""The tables of an evaluation of one or several models: which lines stand for a benchmark, and how they are shown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase

from hfcomp.experiments.comparison import (
    HEADLINE_METRIC,
    Line,
    by_benchmark,
    change_cells,
    difference,
    is_average,
    models_of,
    named_with_unit,
    of_aspect,
    percent,
    unit_of,
    unsure,
    with_interval,
    with_p,
)
from hfcomp.experiments.sheets import TERMINAL_WIDTH, Sheet, heading

# Of a metric with more subsets than that, the terminal shows the averages; where there are none, the first ones.
MOST_SUBSETS = 12
# Up to this many models have room for intervals in the terminal.
MOST_INTERVALS = 2
# More models than that get tables of their own.
MOST_COLUMNS = 6
# Letters that labels, chance and numbers of items take at least; models share the rest.
LABELS = 38
SHORTEST_LABEL = 12
ASPECTS = {"composition": "composition", "general": "general abilities"}
MORE = "more: results.json"

Block = tuple[str, list[tuple[str, Line]]]
"""A title and its labelled lines."""


def headings(models: Sequence[str]) -> dict[str, str]:
    """The models' headings in the terminal: names broken over lines, or letters where their words are too long."""
    columns = min(len(models), MOST_COLUMNS)
    width = (TERMINAL_WIDTH - LABELS) // max(columns, 1) - 2
    if len(models) <= MOST_INTERVALS:
        width = max(width, len("100.0 [100.0, 100.0]"))
    words = [part for name in models for part in re.split(r"(?<=[-\s])", name)]
    if max(map(len, words), default=0) <= width:
        return {name: heading(name, width) for name in models}
    return {name: _letters(index) for index, name in enumerate(models)}


def _letters(index: int) -> str:
    """A to Z, then AA and so on."""
    before = _letters(index // len(ascii_uppercase) - 1) if index >= len(ascii_uppercase) else ""
    return before + ascii_uppercase[index % len(ascii_uppercase)]


def standing(lines: Sequence[Line]) -> list[Line]:
    """The lines that stand for a benchmark's metrics: the averages, else the lines, of many the first ones."""
    kept: list[Line] = []
    for part in _by_metric(lines):
        kept += [line for line in part if is_average(line)] or part[:MOST_SUBSETS]
    return kept


def foremost(lines: Sequence[Line]) -> list[Line]:
    """Of `standing`, the first average of each benchmark, or its lines; the strictest metric where there is one."""
    kept: list[Line] = []
    for part in by_benchmark(standing(lines)).values():
        chosen = [line for line in part if line["metric"] == HEADLINE_METRIC] or part
        kept += [line for line in chosen if is_average(line)][:1] or chosen
    return kept


def shown(lines: Sequence[Line]) -> tuple[list[Line], dict[tuple[str, str], int]]:
    """The lines that the terminal shows, and how many more there are of a benchmark and metric."""
    kept: list[Line] = []
    hidden: dict[tuple[str, str], int] = {}
    for part in _by_metric(lines):
        subsets = [line for line in part if not is_average(line)]
        own = standing(part) if len(subsets) > MOST_SUBSETS else part
        kept += own
        if len(own) < len(part):
            hidden[part[0]["benchmark"], part[0]["metric"]] = len(part) - len(own)
    return kept, hidden


def _by_metric(lines: Sequence[Line]) -> list[list[Line]]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["benchmark"], line["metric"]), []).append(line)
    return [sorted(part, key=lambda line: not is_average(line)) for part in found.values()]


def _blocks(lines: Sequence[Line]) -> Iterator[Block]:
    """Per benchmark one block, or one per metric where metrics have several lines; a single line has no title."""
    for benchmark, part in by_benchmark(lines).items():
        metrics = _by_metric(part)
        if len(part) == 1:
            yield "", [(_label(part[0], benchmark), part[0])]
        elif all(len(own) == 1 for own in metrics):
            yield benchmark, [(_label(line), line) for line in part]
        else:
            for own in metrics:
                title = f"{benchmark}: {named_with_unit(own[0]['metric'])}"
                yield title, [(line["subset"], line) for line in own]


def _label(line: Line, *before: str) -> str:
    subset = [] if line["subset"] == "all" else [line["subset"]]
    return " ".join([*before, *subset, named_with_unit(line["metric"])])


def short_tables(lines: Sequence[Line], names: Mapping[str, str], reference: str | None) -> list[Sheet]:
    """The tables of the terminal, without those that would be empty.

    Args:
        lines: as `hfcomp.evaluation.results` makes them.
        names: headings of the models.
        reference: the model that the others are compared to.
    """
    sheets = [_gain_beside_forgetting(lines, names, reference)]
    for aspect, title in ASPECTS.items():
        models = models_of(lines)
        for start in range(0, len(models), MOST_COLUMNS):
            chosen = {name: names[name] for name in models[start : start + MOST_COLUMNS]}
            sheets.append(_values(title, of_aspect(lines, aspect), chosen, with_bounds=len(models) <= MOST_INTERVALS))
    sheets.append(_minus(lines, names, reference))
    return [_indented(sheet) for sheet in sheets if sheet.rows]


def _indented(sheet: Sheet) -> Sheet:
    """First labels that are too long for their column, broken so that they stay below their first word."""
    columns = list(zip(sheet.header, *sheet.rows, strict=True))[1:]
    others = sum(2 + max(len(line) for cell in column for line in cell.split("\n")) for column in columns)
    width = max(TERMINAL_WIDTH - others, SHORTEST_LABEL)
    rows = []
    for label, *cells in sheet.rows:
        indent = " " * (len(label) - len(label.lstrip()))
        broken = textwrap.wrap(label.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}  ")
        rows.append(["\n".join(broken), *cells])
    return replace(sheet, rows=rows)


def _gain_beside_forgetting(lines: Sequence[Line], names: Mapping[str, str], reference: str | None) -> Sheet:
    """One row a benchmark, in points; without rows where a suite or a second model is missing.

    Means over benchmarks are not shown: they would be of unlike things, and no test is of them.
    """
    parts = {title: foremost(of_aspect(lines, aspect)) for aspect, title in ASPECTS.items()}
    others = [name for name in names if name != reference][:MOST_COLUMNS]
    rows: list[list[str]] = []
    if reference is not None and others and all(parts.values()):
        for title, part in parts.items():
            rows.append([title, *[""] * len(others)])
            for line in part:
                unit = unit_of(line["metric"])
                changes = [unsure(difference(line, name, reference), unit) for name in others]
                rows.append([f"  {_label(line, line['benchmark'])}", *changes])
    header = ["benchmark", *(names[name] for name in others)]
    return Sheet(f"gain beside forgetting: points minus {reference}, ~ where the interval holds 0", header, rows)


def _values(title: str, lines: Sequence[Line], names: Mapping[str, str], *, with_bounds: bool) -> Sheet:
    kept, hidden = shown(lines)
    rows: list[list[str]] = []
    for block, labelled in _blocks(kept):
        if block:
            rows.append([block, *[""] * (2 + len(names))])
        for label, line in labelled:
            unit = unit_of(line["metric"])
            shares = [line["models"][name] for name in names]
            cells = [with_interval(share, unit) if with_bounds else percent(share["value"], unit) for share in shares]
            label = f"  {label}" if block else label
            rows.append([label, percent(line["chance"], unit), f"{line['items']:,}", *cells])
        more = sum(hidden.get(key, 0) for key in {(line["benchmark"], line["metric"]) for _, line in labelled})
        if more:
            rows.append([f"  {more:,} {MORE}", *[""] * (2 + len(names))])
    what = "percent, 95 % intervals" if with_bounds else "percent"
    return Sheet(f"{title}, {what}", ["benchmark", "chance", "items", *names.values()], rows)


def _minus(lines: Sequence[Line], names: Mapping[str, str], reference: str | None) -> Sheet:
    """Every other model minus the reference, on the lines that stand for a benchmark."""
    others = _compared(lines, names, reference)
    several = len(others) > 1
    rows: list[list[str]] = []
    kept = [line for aspect in ASPECTS for line in standing(of_aspect(lines, aspect))]
    for block, labelled in _blocks(kept) if others else ():
        if block:
            rows.append([block, *[""] * (5 + several)])
        for label, line in labelled:
            unit = unit_of(line["metric"])
            label = f"  {label}" if block else label
            for name in others:
                change = difference(line, name, str(reference))
                smallest = percent((change or {}).get("smallest"), unit)
                model = [" ".join(names[name].split())] if several else []
                rows.append([label, *model, *change_cells(change, unit), smallest])
                label = ""
    header = ["benchmark", *(["model"] if several else []), "points", "95 % interval", "p", "q", "detectable"]
    title = f"{others[0]} minus {reference}" if len(others) == 1 else f"minus {reference}"
    return Sheet(title, header, rows, labels=1 + several)


def _compared(lines: Sequence[Line], names: Mapping[str, str], reference: str | None) -> list[str]:
    """The models with a difference to the reference; blind scorers have none."""
    return [name for name in names if any(reference in line["differences"].get(name, {}) for line in lines)]


def full_tables(lines: Sequence[Line], reference: str | None) -> list[Sheet]:
    """The tables of Markdown: every line of every model, with intervals.

    Args:
        lines: as `hfcomp.evaluation.results` makes them.
        reference: the model that the others are compared to.
    """
    names = {name: name for name in models_of(lines)}
    sheets = [_gain_beside_forgetting(lines, names, reference)]
    for aspect, title in ASPECTS.items():
        own = [line for part in _by_metric(of_aspect(lines, aspect)) for line in part]
        sheets += [_all_values(title, own, names), _all_differences(title, own, names, reference)]
    return [sheet for sheet in sheets if sheet.rows]


def _cells(line: Line) -> list[str]:
    return [line["benchmark"], named_with_unit(line["metric"]), line["subset"]]


def _all_values(title: str, lines: Sequence[Line], names: Mapping[str, str]) -> Sheet:
    rows = []
    for line in lines:
        unit = unit_of(line["metric"])
        shares = [with_interval(line["models"][name], unit) for name in names]
        counts = [f"{line['items']:,}", f"{line['images']:,}", percent(line["chance"], unit)]
        rows.append([*_cells(line), *counts, *shares])
    header = ["benchmark", "metric", "subset", "items", "images", "chance", *names]
    return Sheet(f"{title}, percent with 95 % intervals", header, rows, labels=3)


def _all_differences(title: str, lines: Sequence[Line], names: Mapping[str, str], reference: str | None) -> Sheet:
    others = _compared(lines, names, reference)
    rows = []
    for line in lines if others else ():
        unit = unit_of(line["metric"])
        cells = []
        for name in others:
            change = difference(line, name, str(reference))
            cells += [with_p(change, unit), percent((change or {}).get("smallest"), unit)]
        rows.append([*_cells(line), *cells])
    header = ["benchmark", "metric", "subset"]
    for name in others:
        header += [name, "detectable"]
    return Sheet(f"{title}, points minus {reference}", header, rows, labels=3)
