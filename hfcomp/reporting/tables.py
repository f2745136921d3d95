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
    grouped,
    has_ties,
    labelled,
    models_of,
    name_of,
    unit_of_line,
    with_note,
)
from hfcomp.reporting.report import Table

MORE = "more in results.json"
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
        brief: whether values are those of `brief_values`.
    """
    stars = f" {STAR}" if brief and len(models_of(lines)) > MOST_INTERVALS else ""
    known = any("tie_rate" in (one or {}) for line in lines for one in line["models"].values())
    ties = f"Ties are {TIE_RULES[tie]}." if has_ties(lines) or not known else NO_TIES
    return READING.format(intervals=intervals, adjusted=adjusted, ties=ties) + stars


def brief_values(lines: Sequence[Line]) -> list[Table]:
    """A table for each benchmark and metric, of many subsets the averages alone; intervals where few models are."""
    tables = []
    for title, shown in blocks(few_of(lines)):
        own = [line for _, line in shown]
        kinds = {(line["benchmark"], line["metric"]) for line in own}
        hidden = sum((line["benchmark"], line["metric"]) in kinds for line in lines) - len(own)
        about = [title, "percent" if all_percent(own) else "", counts(own), f"{hidden:,} {MORE}" if hidden else ""]
        tables.append(_values(", ".join(filter(None, about)), shown))
    return tables


def _values(title: str, labelled_lines: Sequence[tuple[str, Line]]) -> Table:
    lines = [line for _, line in labelled_lines]
    models = models_of(lines)
    columns: dict[str, list[str]] = {"": [labelled(line, label) for label, line in labelled_lines]}
    if any(line.get("chance") is not None for line in lines):
        columns["chance"] = [_fact(line, "chance") for line in lines]
    if len({line.get("items") for line in lines}) > 1:
        columns["items"] = [_fact(line, "items") for line in lines]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    few = len(models) <= MOST_INTERVALS
    for row, line in zip(rows, lines, strict=True):
        row += _with_intervals(line) if few else _starred(line)
    return Table(title, [*columns, *models], rows, models=len(models))


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


def full_values(lines: Sequence[Line], title: str = "") -> Table:
    """Every line of every model with its interval; counts and chance where some line has them."""
    models, rows = models_of(lines), [line for part in grouped(lines, "benchmark", "metric") for line in part]
    known = [key for key in ("items", "images", "chance") if any(line.get(key) is not None for line in rows)]
    cells = [[*_names(line), *(_fact(line, key) for key in known), *_with_intervals(line)] for line in rows]
    return Table(title, ["benchmark", "subset", "metric", *known, *models], cells, labels=3, models=len(models))


def _fact(line: Line, key: str) -> str:
    return unsigned(line[key], unit_of_line(line)) if key == "chance" else f"{line[key]:,}"


def _with_intervals(line: Line) -> list[str]:
    return [with_interval(estimate, unit_of_line(line)) for estimate in line["models"].values()]


def _names(line: Line) -> list[str]:
    return [line["benchmark"], labelled(line, line["subset"]), with_note(line["metric"], line)]


def differences(lines: Sequence[tuple[Line, Pairs]], title: str = "", *, brief: bool = False) -> list[Table]:
    """A row for each line and pair of models: difference, interval, p, adjusted p and what the set could detect.

    Args:
        lines: each with the models and references of which it is shown, as far as it has them.
        title: stands before what the table says of the models.
        brief: whether a line is named in one column, and in its first row only. Pairs of models with long names then
            have a table each.
    """
    every = list(dict.fromkeys(pair for _, pairs in lines for pair in pairs))
    if brief and min(len(every), len(lines)) > 1 and max(len(name) for pair in every for name in pair) > LONGEST_NAME:
        of_pair = {pair: [(line, [pair]) for line, pairs in lines if pair in pairs] for pair in every}
        return [table for own in of_pair.values() for table in differences(own, title, brief=True)]
    sides = [side for side in (0, 1) if len({pair[side] for pair in every}) > 1]
    shared, labels = distinct_labels([line for line, _ in lines])
    short = [[label] if len(lines) > 1 or not sides else [] for label in labels]
    rows = []
    for (line, pairs), label in zip(lines, short, strict=True):
        names = label if brief else _names(line)
        for pair in pairs:
            change, unit = difference(line, *pair), unit_of_line(line)
            if change is not None:
                cells = [*change_cells(change, unit), unsigned(change.get("smallest"), unit)]
                rows.append([*names, *(pair[side] for side in sides), *cells])
                names = [""] * len(names) if brief else names
    header = [""] * len(short[0] if short else []) if brief else ["benchmark", "subset", "metric"]
    header += [("model", "minus")[side] for side in sides]
    named = len(header)
    what = "points" if all_percent(line for line, _ in lines) else "change"
    header += [what, "95 % interval", "p", "adj. p", "detectable"]
    if all(row[-1] == UNKNOWN for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    about = [title, _about(every, sides), shared if brief else ""]
    return [Table(": ".join(filter(None, about)), header, rows, labels=named)]


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


def gain_beside_forgetting(title: str, lines: Mapping[str, Line | None], reference: str) -> Table:
    """A row for each model: the value of each line, and its difference to the reference with interval.

    Args:
        title: of the table.
        lines: by heading; `None` is left out.
        reference: the model that the others are compared to.
    """
    there = {name: line for name, line in lines.items() if line is not None}
    models = models_of(list(there.values()))
    header = ["model"] + [text for name in there for text in (name, f"minus {reference}")]
    rows = []
    for model in models:
        row = [model]
        for line in there.values():
            unit, change = unit_of_line(line), difference(line, model, reference)
            row.append(with_interval({**line["models"][model], "low": None}, unit))
            row.append("" if model == reference else points(change, unit))
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
