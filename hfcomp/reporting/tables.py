"""Builds sections, tables and the figure of a report from lines of results (values, differences, forgetting)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hfcomp.metrics.units import LOWER_IS_BETTER
from hfcomp.reporting.figures import Figure, Points, Style
from hfcomp.reporting.format import UNKNOWN, Estimate, decimal, direction, interval, p_value, with_interval
from hfcomp.reporting.line_values import difference, with_edge
from hfcomp.reporting.lines import (
    ASPECTS,
    MOST_SUBSETS,
    Line,
    all_percent,
    blocks,
    counts,
    distinct_labels,
    foremost,
    has_ties,
    models_of,
    name_of,
    num_seeds,
    parts_of,
    primary_of,
    select_aspect,
    standing,
    unit_of_line,
    with_note,
)
from hfcomp.reporting.report import Part, Section, Table

MORE = "more in report.md"
STAR = "* marks the highest value of a line, if above chance; intervals of all values are in report.md."
TIE_RULES = {"wrong": "counted as wrong", "half": "counted as half right", "win": "counted as right"}
NO_TIES = "There are no ties: no model gave a right and a wrong candidate the same score."
IMAGES = (
    "Brackets are image-clustered bootstrap intervals (95%); for an average, all its lines are resampled jointly. "
    "p comes from a sign-flip test over images."
)
SEVERAL_SEEDS = (
    "Intervals (95%) and p cover other images and other seeds: a t-interval over the means of the {seeds} seeds with "
    "the variance of images added, at least as wide as the image-clustered bootstrap interval. Values are means over "
    "seeds; parentheses, if any, show the lowest and the highest seed. Differences are also paired by seed."
)
READING = (
    "Accuracy, recall and other fractions are in percent; for other metrics, the unit follows the name. {intervals} "
    "Differences are in points, paired by item; ~ marks differences whose interval includes 0. {adjusted}{more} {ties}"
)
DETECTABLE = " Detectable: the smallest true difference that this dataset would detect in 80% of cases."
ADJUSTED = "adj. p is adjusted for the number of differences (q of Benjamini and Hochberg)."
# Up to this number of models, the terminal has room for intervals.
MOST_INTERVALS = 2
# Longer model names appear in the titles of tables of differences.
LONGEST_NAME = 16
# A figure with more rows than this keeps only representative lines, then only the foremost, and draws MOST_ROWS.
MANY_ROWS = 24
MOST_ROWS = 40
VALUES = "percent, 95% intervals (dotted: chance)"
MEANS = "percent, lowest to highest seed; base: 95% interval (dotted: chance)"
CHANGES = "points against {reference}, 95% intervals (left of 0: forgotten)"

Pairs = Sequence[tuple[str, str]]
"""Pairs of a model and its reference."""


def sections_of_lines(
    lines: Sequence[Line],
    pairs: Callable[[Line], Pairs],
    *,
    reference: str | None,
    general: Line | None = None,
    tie: str = "wrong",
    brief: bool = False,
    edges: bool = False,
) -> list[Section]:
    """Returns the sections gain vs. forgetting, composition, general abilities, differences and ties.

    `pairs` returns the model pairs whose differences a line shows. Gain and forgetting are differences from the
    reference; `general`, the mean of general abilities, is shown next to the primary endpoint. In the brief form,
    tables fit in a terminal, and some lines represent others. With `edges`, lines at the floor or ceiling are marked.
    """
    parts = {words: select_aspect(lines, aspect) for aspect, words in ASPECTS.items()}
    composition, abilities = parts.values()
    compared = [
        name for name in models_of(lines) if any(reference in line["differences"].get(name, {}) for line in abilities)
    ]
    gains = [*foremost(composition), *standing(abilities)] if composition and compared else []
    shown = [standing(part) if brief else part for part in parts.values()]
    minus = [table for part in shown for table in differences([(line, pairs(line)) for line in part])]
    return [
        Section("Gain vs. forgetting", [_gains(lines, general, reference), _changes(gains, compared, reference)]),
        *(Section(words, values(part, brief=brief, edges=edges)) for words, part in parts.items()),
        Section("Differences", minus),
        Section("Ties", [ties(standing(lines, MOST_SUBSETS) if brief else lines, rule=tie)]),
    ]


def merge_sections(parts: Mapping[str, Sequence[Section]]) -> list[Section]:
    """Merges the sections of several reports, given by name; table titles start with the name of their report."""
    return [
        Section(
            same[0].title,
            [_name(part, name) for name, section in zip(parts, same, strict=True) for part in section.parts],
        )
        for same in zip(*parts.values(), strict=True)
    ]


def _name(part: Part, name: str) -> Part:
    return replace(part, title=": ".join(filter(None, (name, part.title)))) if isinstance(part, Table) else part


def legend(
    lines: Sequence[Line], *, adjusted: str = ADJUSTED, tie: str = "wrong", brief: bool = False, seeds: int = 1
) -> str:
    """Explains how to read the numbers: brackets, p, the adjustment of p, and the rule for ties if there are any."""
    stars = f" {STAR}" if brief and len(models_of(lines)) > MOST_INTERVALS else ""
    known = any("tie_rate" in (estimate or {}) for line in lines for estimate in line["models"].values())
    ties = f"Ties are {TIE_RULES[tie]}." if has_ties(lines) or not known else NO_TIES
    seeds = max(seeds, num_seeds(lines))
    intervals = SEVERAL_SEEDS.format(seeds=seeds) if seeds > 1 else IMAGES
    changes = [change for line in lines for own in line.get("differences", {}).values() for change in own.values()]
    more = DETECTABLE if any("smallest" in (change or {}) for change in changes) else ""
    return READING.format(intervals=intervals, adjusted=adjusted, more=more, ties=ties) + stars


def values(lines: Sequence[Line], *, brief: bool = False, edges: bool = False) -> list[Table]:
    """Returns one table for each benchmark and metric with several lines, and one table for single lines.

    In the brief form, averages represent many subsets, and intervals are shown only for few models.
    """
    result: list[Table] = []
    for own in blocks(standing(lines, MOST_SUBSETS) if brief else lines):
        title, labels = distinct_labels(own)
        kinds = {(line["benchmark"], line["metric"]) for line in own}
        hidden = sum((line["benchmark"], line["metric"]) in kinds for line in lines) - len(own)
        about = ["percent" if all_percent(own) else "", counts(own), f"{hidden:,} {MORE}" if hidden else ""]
        title = title or ("Other lines" if result else "All lines")
        columns = {"": list(map(with_edge, labels, own)) if edges else labels}
        if any(line.get("chance") is not None for line in own):
            columns["chance"] = [decimal(line["chance"], unit_of_line(line)) for line in own]
        for key in ("items",) if brief else ("items", "images"):
            if len({line.get(key) for line in own}) > 1:
                columns[key] = [f"{line[key]:,}" for line in own]
        models = models_of(own)
        cells = _with_star if brief and len(models) > MOST_INTERVALS else _with_intervals
        rows = [[*names, *cells(line)] for *names, line in zip(*columns.values(), own, strict=True)]
        title += f" ({'; '.join(filter(None, about))})" if any(about) else ""
        result.append(Table(title, [*columns, *models], rows, models=len(models)))
    return result


def _with_star(line: Line) -> list[str]:
    """Returns a line's values, with a star after the highest unless all are equal or it is not above chance.

    Metrics for which lower is better have no star.
    """
    estimates, chance, unit = list(line["models"].values()), line.get("chance"), unit_of_line(line)
    cells = [decimal((estimate or {}).get("value"), unit) for estimate in estimates]
    known = {float(cell) for cell in cells if cell != UNKNOWN}
    best = max(known) if len(known) > 1 and line["metric"] not in LOWER_IS_BETTER else None
    least = -1.0 if chance is None else chance
    return [
        f"{cell}*" if cell != UNKNOWN and float(cell) == best and estimate["value"] > least else f"{cell} "
        for cell, estimate in zip(cells, estimates, strict=True)
    ]


def _with_intervals(line: Line) -> list[str]:
    return [with_interval(estimate, unit_of_line(line)) for estimate in line["models"].values()]


def differences(lines: Sequence[tuple[Line, Pairs]]) -> list[Table]:
    """Returns rows by line and pair: difference, interval, p, adjusted p, and detectable difference.

    Pairs of models with long names get a table each, with the pair as its title.
    """
    lines = [(line, pairs) for line, pairs in lines if pairs]
    every = list(dict.fromkeys(pair for _, pairs in lines for pair in pairs))
    if min(len(every), len(lines)) > 1 and max(len(name) for pair in every for name in pair) > LONGEST_NAME:
        by_pair = {pair: [(line, [pair]) for line, pairs in lines if pair in pairs] for pair in every}
        return [table for own in by_pair.values() for table in differences(own)]
    if not every:
        return []
    sides = [side for side in (0, 1) if len({pair[side] for pair in every}) > 1]
    shared, labels = distinct_labels([line for line, _ in lines])
    if len(lines) == 1 and sides:  # a single line is the title
        shared, labels = labels[0], []
    rows = []
    for index, (line, pairs) in enumerate(lines):
        for pair in pairs:
            change, unit = difference(line, *pair), unit_of_line(line)
            if change is not None:
                tests = [p_value(change.get("p")), p_value(change.get("p_holm", change.get("q")))]
                cells = [decimal(change.get("value"), unit, "+"), interval(change, unit, "+"), *tests]
                names = [*labels[index : index + 1], *(pair[side] for side in sides)]
                rows.append([*names, *cells, decimal(change.get("smallest"), unit)])
    names = [*[""] * bool(labels), *(("model", "minus")[side] for side in sides)]
    what = "points" if all_percent(line for line, _ in lines) else "change"
    header = [*names, what, "95% interval", "p", "adj. p", "detectable"]
    if all(row[-1] == UNKNOWN for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    model, reference = ("" if 0 in sides else every[0][0]), ("each" if 1 in sides else every[0][1])
    about = f"{model} minus {reference}".strip() if len(sides) < 2 else ""
    return [Table(": ".join(filter(None, (about, shared))), header, rows, labels=len(names))]


def _changes(lines: Sequence[Line], models: Sequence[str], reference: str | None) -> Table:
    """Returns one row per line, one column per model with its difference; `~` if not significant or unknown."""
    shared, labels = distinct_labels(lines)
    rows = []
    for line, label in zip(lines, labels, strict=True):
        changes = [difference(line, name, str(reference)) for name in models]
        texts = [decimal((change or {}).get("value"), unit_of_line(line), "+") for change in changes]
        marks = [" " if direction(change) else "~" for change in changes]
        rows.append([label, *(text + mark for text, mark in zip(texts, marks, strict=True))])
    return Table(": ".join(filter(None, (f"minus {reference}", shared))), ["", *models], rows, models=len(models))


def _gains(lines: Sequence[Line], general: Line | None, reference: str | None) -> Table:
    """Returns one row per model: the primary endpoint and the mean of general abilities, with differences."""
    known = {"primary": primary_of(lines), "general": general}
    chosen = {name: line for name, line in known.items() if line is not None}
    about = [f"{name}: {with_note(line.get('primary') or name_of(line), line)}" for name, line in chosen.items()]
    header = ["model", *(text for name in chosen for text in ([name, f"minus {reference}"] if reference else [name]))]
    rows = []
    for model in models_of(list(chosen.values())):
        row = [model]
        for line in chosen.values():
            unit = unit_of_line(line)
            row.append(with_interval({**line["models"][model], "low": None}, unit))
            if reference:
                change = difference(line, model, reference)
                row.append("" if model == reference else with_interval(change, unit, "+"))
        rows.append(row)
    return Table("; ".join(about), header, rows)


def ties(lines: Sequence[Line], *, rule: str = "wrong") -> Table:
    """Returns the lines on which any model tied: percent of items and, if known, their number."""
    tied = [line for line in lines if has_ties([line])]
    rows = [[name_of(line), *map(_tie_cell, line["models"].values())] for line in tied]
    models = models_of(lines)
    return Table(f"{TIE_RULES[rule]}, percent of items (number)", ["benchmark", *models], rows, models=len(models))


def _tie_cell(estimate: Estimate | None) -> str:
    known = estimate or {}
    return decimal(known.get("tie_rate")) + (f" ({known['ties']:,})" if known.get("ties") else "")


def figure_of_lines(
    name: str,
    title: str,
    lines: Sequence[Line],
    *,
    reference: str | None = None,
    main: str | None = None,
    lead: Points | None = None,
    styles: Mapping[str, Style] | None = None,
) -> Figure:
    """Draws points with intervals for composition and general abilities; if there are many, for representatives.

    The primary endpoint comes first, then its parts if there is room, then the other lines or their representatives.
    With a reference, general abilities are drawn as differences from that model. If there is a main model, it is drawn
    larger, and lines at the floor or ceiling are marked. `lead` is placed above the other panels.
    """
    panels, several = [], num_seeds(lines) > 1
    for aspect, words in ASPECTS.items():
        own = select_aspect(lines, aspect)
        choices = own, standing(own), foremost(own)
        chosen = next((kept for kept in choices if len(kept) <= MANY_ROWS), choices[-1])
        primary = [line for line in own if line.get("primary")]
        parts = [line for mean in primary for part in parts_of(mean, own) for line in part if line is not mean]
        first = [*primary, *(parts if len(chosen) + len(parts) <= MANY_ROWS else [])]
        chosen = [*first, *(line for line in chosen if not any(line is known for known in first))]
        compared = reference if aspect == "general" else None
        names = [model for model in models_of(lines) if model != compared]
        shared, labels = distinct_labels(chosen, notes=False)
        about = [words, shared, counts(chosen)]
        about += [f"first {MOST_ROWS} of {len(chosen)} lines"] if len(chosen) > MOST_ROWS else []
        rows = []
        for label, line in zip(labels, chosen[:MOST_ROWS] if names else [], strict=False):
            estimates = {
                model: difference(line, model, compared) if compared else line["models"].get(model) for model in names
            }
            label = with_edge(label, line) if main else label
            rows.append((label + (" (x 100)" if unit_of_line(line).note else ""), estimates, line["chance"]))
        axis = CHANGES.format(reference=compared) if compared else (MEANS if several else VALUES)
        panels.append(Points(", ".join(filter(None, about)), axis, rows, names, differences=bool(compared)))
    return Figure(name, title, panels, main=main, lead=lead, styles=styles or {})
