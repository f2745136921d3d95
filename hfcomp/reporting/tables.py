"""Tables of lines of results: values, differences, gain beside forgetting, ties, costs; and how they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hfcomp.reporting.format import UNKNOWN, Estimate, change_cells, points, unsigned, unsure, with_interval
from hfcomp.reporting.lines import (
    Line,
    all_percent,
    blocks,
    counts,
    difference,
    distinct_labels,
    few_of,
    has_ties,
    labelled,
    models_of,
    name_of,
    unit_of_line,
)
from hfcomp.reporting.report import Table

MORE = "more in report.md"
STAR = "* marks the highest value of a line, if above chance; intervals of all values are in report.md."
TIE_RULES = {"wrong": "counted as wrong", "half": "counted as half right", "win": "counted as right"}
NO_TIES = "No ties: no model scored a right and a wrong candidate alike."
IMAGES = (
    "Brackets are image-clustered bootstrap intervals (95 %); averages are resampled over all their lines at once. "
    "p is from a sign-flip test over images."
)
READING = (
    "Accuracy, recall and other fractions are in percent, other metrics in the unit behind their name. {intervals} "
    "Differences are in points, paired by item; ~ marks those whose interval holds 0. {adjusted} Detectable: the "
    "difference that the set would find in 80 % of the cases. {ties}"
)
ADJUSTED = "adj. p is adjusted for the number of differences (q of Benjamini and Hochberg)."
# Up to this many models have room for intervals in the terminal.
MOST_INTERVALS = 2
# Longer names of models are in the titles of tables of differences.
LONGEST_NAME = 16

Pairs = Sequence[tuple[str, str]]
"""Models, each with its reference."""


def legend(
    lines: Sequence[Line],
    *,
    intervals: str = IMAGES,
    adjusted: str = ADJUSTED,
    tie: str = "wrong",
    brief: bool = False,
) -> str:
    """How the numbers are read.

    Args:
        lines: whose ties are told of.
        intervals: what brackets and p are.
        adjusted: how p is adjusted.
        tie: what a tie counts, one of `TIE_RULES`.
        brief: whether values are those of `values` in brief.
    """
    stars = f" {STAR}" if brief and len(models_of(lines)) > MOST_INTERVALS else ""
    known = any("tie_rate" in (one or {}) for line in lines for one in line["models"].values())
    ties = f"Ties are {TIE_RULES[tie]}." if has_ties(lines) or not known else NO_TIES
    return READING.format(intervals=intervals, adjusted=adjusted, ties=ties) + stars


def values(lines: Sequence[Line], *, brief: bool = False) -> list[Table]:
    """A table for each benchmark and metric that has several lines, and one for those that are alone.

    Args:
        lines: of all models.
        brief: of many subsets the averages alone, and intervals where few models are.
    """
    found = []
    for title, labelled_lines in blocks(few_of(lines) if brief else lines):
        own = [line for _, line in labelled_lines]
        kinds = {(line["benchmark"], line["metric"]) for line in own}
        hidden = sum((line["benchmark"], line["metric"]) in kinds for line in lines) - len(own)
        about = [title, "percent" if all_percent(own) else "", counts(own), f"{hidden:,} {MORE}" if hidden else ""]
        columns: dict[str, list[str]] = {"": [labelled(line, label) for label, line in labelled_lines]}
        if any(line.get("chance") is not None for line in own):
            columns["chance"] = [unsigned(line["chance"], unit_of_line(line)) for line in own]
        for key in ("items",) if brief else ("items", "images"):
            if len({line.get(key) for line in own}) > 1:
                columns[key] = [f"{line[key]:,}" for line in own]
        models = models_of(own)
        cells = _starred if brief and len(models) > MOST_INTERVALS else _with_intervals
        rows = [[*names, *cells(line)] for *names, line in zip(*columns.values(), own, strict=True)]
        found.append(Table(", ".join(filter(None, about)), [*columns, *models], rows, models=len(models)))
    return found


def _starred(line: Line) -> list[str]:
    """The values of a line, with a star behind the highest unless all are equal, or it is not above chance."""
    estimates, chance, unit = list(line["models"].values()), line.get("chance"), unit_of_line(line)
    cells = [unsigned((one or {}).get("value"), unit) for one in estimates]
    known = [float(cell) for cell in cells if cell != "-"]
    least = -1.0 if chance is None else chance
    best = len(set(known)) > 1 and max(known)
    stars = [
        cell != "-" and best is not False and float(cell) == best and one["value"] > least
        for cell, one in zip(cells, estimates, strict=True)
    ]
    return [f"{cell}{'*' if star else ' '}" for cell, star in zip(cells, stars, strict=True)]


def _with_intervals(line: Line) -> list[str]:
    return [with_interval(estimate, unit_of_line(line)) for estimate in line["models"].values()]


def differences(lines: Sequence[tuple[Line, Pairs]]) -> list[Table]:
    """A row for each line and pair of models: difference, interval, p, adjusted p and what the set could detect.

    Pairs of models with long names have a table each, whose title they are.

    Args:
        lines: each with the models and references of which it is shown, as far as it has them.
    """
    lines = [(line, pairs) for line, pairs in lines if pairs]
    every = list(dict.fromkeys(pair for _, pairs in lines for pair in pairs))
    if min(len(every), len(lines)) > 1 and max(len(name) for pair in every for name in pair) > LONGEST_NAME:
        of_pair = {pair: [(line, [pair]) for line, pairs in lines if pair in pairs] for pair in every}
        return [table for own in of_pair.values() for table in differences(own)]
    sides = [side for side in (0, 1) if len({pair[side] for pair in every}) > 1]
    shared, labels = distinct_labels([line for line, _ in lines])
    named = len(lines) > 1 or not sides
    rows = []
    for (line, pairs), label in zip(lines, labels, strict=True):
        for pair in pairs:
            change, unit = difference(line, *pair), unit_of_line(line)
            if change is not None:
                cells = [*change_cells(change, unit), unsigned(change.get("smallest"), unit)]
                rows.append([*[label] * named, *(pair[side] for side in sides), *cells])
    what = "points" if all_percent(line for line, _ in lines) else "change"
    models = [("model", "minus")[side] for side in sides]
    header = [*[""] * named, *models, what, "95 % interval", "p", "adj. p", "detectable"]
    if all(row[-1] == UNKNOWN for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return [Table(": ".join(filter(None, (_about(every, sides), shared))), header, rows, labels=named + len(sides))]


def _about(pairs: Pairs, sides: Sequence[int]) -> str:
    """What is subtracted from what, where it is the same in all rows."""
    if not pairs or len(sides) > 1:
        return ""
    model, reference = pairs[0]
    return {(): f"{model} minus {reference}", (0,): f"minus {reference}", (1,): f"{model} minus each"}[tuple(sides)]


def changes(title: str, lines: Sequence[Line], models: Sequence[str], reference: str) -> Table:
    """A row for each line, a column for each model: its difference to the reference, `~` where it does not count."""
    shared, labels = distinct_labels(lines)
    rows = [
        [label, *(unsure(difference(line, name, reference), unit_of_line(line)) for name in models)]
        for line, label in zip(lines, labels, strict=True)
        if models
    ]
    return Table(f"{title}: {shared}" if shared else title, ["", *models], rows, models=len(models))


def gain_beside_forgetting(title: str, lines: Mapping[str, Line | None], reference: str | None) -> Table:
    """A row for each model: the value of each line, and its difference to the reference with interval.

    Args:
        title: of the table.
        lines: by heading; `None` is left out.
        reference: the model that the others are compared to, if there is one.
    """
    there = {name: line for name, line in lines.items() if line is not None}
    models = models_of(list(there.values()))
    header = ["model"] + [text for name in there for text in (name, *([f"minus {reference}"] if reference else ()))]
    rows = []
    for model in models:
        row = [model]
        for line in there.values():
            unit = unit_of_line(line)
            row.append(with_interval({**line["models"][model], "low": None}, unit))
            if reference:
                row.append("" if model == reference else points(difference(line, model, reference), unit))
        rows.append(row)
    return Table(title, header, rows)


def ties(lines: Sequence[Line], *, rule: str = "wrong") -> Table:
    """The lines on which any model tied: percent of items, and where it is known their number."""
    tied = [line for line in lines if has_ties([line])]
    rows = [[name_of(line), *map(_tie_cell, line["models"].values())] for line in tied]
    models = models_of(lines)
    return Table(f"{TIE_RULES[rule]}, percent of items (number)", ["benchmark", *models], rows, models=len(models))


def _tie_cell(estimate: Estimate | None) -> str:
    known = estimate or {}
    count = f" ({known['ties']:,})" if known.get("ties") else ""
    return unsigned(known.get("tie_rate")) + count


def costs(stages: Sequence[Mapping[str, Any]]) -> Table:
    """What training runs cost, as far as it is known of all of them.

    Args:
        stages: with `name`, and `steps`, `images`, `texts`, `seconds`, `images_per_second`, `peak_memory_gib` with
            `peak_memory_of`, `loss`, `truncated_text_share`.
    """
    columns = {
        "run": "{name}",
        "steps": "{steps:,.0f}",
        "images": "{images:,.0f}",
        "texts": "{texts:,.0f}",
        "seconds": "{seconds:,.1f}",
        "images/s": "{images_per_second:,.1f}",
        "peak memory": "{peak_memory_gib:.2f} GiB, {peak_memory_of}",
        "last loss": "{loss:.4f}",
        "texts truncated": "{truncated_text_share:.2%}",
    }
    known = set.intersection(*map(set, stages)) if stages else set()
    kept = {name: form for name, form in columns.items() if set(re.findall(r"{(\w+)", form)) <= known}
    return Table("", list(kept), [[form.format(**stage) for form in kept.values()] for stage in stages])


def facts_table(entries: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each model; only facts that some model has get a column."""
    keys = list(dict.fromkeys(key for facts in entries.values() for key, value in facts.items() if value is not None))
    rows = [
        [name, *("" if facts.get(key) is None else str(facts[key]) for key in keys)] for name, facts in entries.items()
    ]
    return Table("", ["model", *keys], rows, labels=1 + len(keys))


def made_table(*parts: Mapping[str, Any]) -> Table:
    """How something was made: names and values, as far as they are set; without secrets."""
    known = {name: value for part in parts for name, value in part.items() if value is not None}
    rows = [[name, str(value)] for name, value in known.items() if "token" not in name]
    return Table("", ["what", "value"], rows, labels=2)
