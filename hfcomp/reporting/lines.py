"""Lines of results: names, grouping, and the lines that represent others.

A line is one benchmark, subset and metric with the value of every model, as created by `summarize`. It is a mapping
with `benchmark`, `subset`, `metric`, `aspect` (`composition` or `general`), `chance`, `items`, `images`, `models`
(name to estimate) and `differences` (name to reference to estimate). Means over subsets have `average`; the primary
endpoint has `primary`, its name. A line may have the `unit` of its numbers; otherwise the unit of its metric applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hfcomp.metrics.units import HEADLINE_METRIC, MIXED, PERCENT, Unit, metric_unit

Line = dict[str, Any]
KEYS = ("benchmark", "subset", "metric")
ASPECTS = {"composition": "Composition", "general": "General abilities"}
MOST_SUBSETS = 12
"""Maximum number of subsets per metric; beyond it, averages represent them or, without averages, the first ones."""


def models_of(lines: Sequence[Line]) -> list[str]:
    """Returns the models in the order of the columns."""
    return list(lines[0]["models"]) if lines else []


def num_seeds(lines: Iterable[Line]) -> int:
    """Returns the number of seeds that the models were trained with; 1 if values come from a single seed."""
    estimates = (estimate for line in lines for estimate in line["models"].values())
    return max((len((estimate or {}).get("seeds", [0])) for estimate in estimates), default=1)


def parts_of(line: Line, lines: Sequence[Line]) -> list[list[Line]]:
    """Returns the lines that a mean consists of, a list per part; for any other line, the line itself."""
    known = {tuple(subset[key] for key in KEYS): subset for subset in lines if not subset.get("average")}
    groups = [[tuple(key)] for key in line.get("lines", ())]
    if not groups:
        benchmark, metric = line["benchmark"], line["metric"]
        groups = [[(benchmark, subset, metric) for subset in group] for group in line.get("groups") or ()]
    parts = [[known[key] for key in group if key in known] for group in groups]
    return [part for part in parts if part] or [[line]]


def select_aspect(lines: Iterable[Line], aspect: str) -> list[Line]:
    """Selects the lines of an aspect, `composition` or `general`."""
    return [line for line in lines if line["aspect"] == aspect]


def subsets_of(lines: Iterable[Line]) -> list[Line]:
    """Returns the lines that are not averages."""
    return [line for line in lines if not line.get("average")]


def primary_of(lines: Iterable[Line]) -> Line | None:
    """Returns the line that a verdict is about."""
    return next((line for line in lines if line.get("primary")), None)


def general_of(lines: Iterable[Line], average: Line | None) -> Line | None:
    """Returns the mean of general abilities, named by its number of lines; a single line represents itself."""
    abilities = subsets_of(select_aspect(lines, "general"))
    if average is None or len(abilities) < 2:
        return abilities[0] if len(abilities) == 1 else None
    return {**average, "benchmark": "", "subset": f"average of {len(abilities)} lines", "metric": ""}


def group_lines(lines: Iterable[Line], *keys: str) -> list[list[Line]]:
    """Groups lines by these keys, in the order of first appearance, with averages first in each group."""
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        groups.setdefault(tuple(line[key] for key in keys), []).append(line)
    return [sorted(part, key=lambda line: not line.get("average")) for part in groups.values()]


def strictest(lines: Sequence[Line]) -> list[Line]:
    """Returns only `group` lines and the primary endpoint of benchmarks with `group` lines; all lines of others."""
    headed = {line["benchmark"] for line in lines if line["metric"] == HEADLINE_METRIC}
    return [
        line
        for line in lines
        if line["metric"] == HEADLINE_METRIC or line["benchmark"] not in headed or line.get("primary")
    ]


def standing(lines: Sequence[Line], most: int = 0) -> list[Line]:
    """Replaces the subsets of a metric by its averages, or by the first subsets, if there are more than `most`."""
    kept: list[Line] = []
    for part in group_lines(lines, "benchmark", "metric"):
        averages = [line for line in part if line.get("average")]
        kept += part if len(part) - len(averages) <= most else averages or part[:MOST_SUBSETS]
    return kept


def foremost(lines: Sequence[Line]) -> list[Line]:
    """Returns the first average of each benchmark's strictest metric, or the lines that represent it."""
    kept: list[Line] = []
    for part in group_lines(strictest(standing(lines)), "benchmark"):
        kept += [line for line in part if line.get("average")][:1] or part
    return kept


def has_ties(lines: Iterable[Line]) -> bool:
    """Whether any model tied on any item."""
    return any((estimate or {}).get("tie_rate") for line in lines for estimate in line["models"].values())


def unit_of_line(line: Line) -> Unit:
    """Returns the unit of a line; for a mean over several metrics, their common unit or `MIXED`."""
    if "unit" in line:
        given: Unit = line["unit"]
        return given
    units = {metric_unit(key[2]) for key in line.get("lines", ())} or {metric_unit(line["metric"])}
    return units.pop() if len(units) == 1 else MIXED


def with_note(text: str, line: Line) -> str:
    """Returns a text followed by the unit of a line, unless the unit is percent."""
    note = unit_of_line(line).note
    return f"{text} ({note})" if note else text


def all_percent(lines: Iterable[Line]) -> bool:
    """Whether all numbers are percentages, which makes differences points."""
    return all(unit_of_line(line) == PERCENT for line in lines)


def name_of(line: Line) -> str:
    """Returns the name of a line: benchmark, subset (unless it is `all`) and metric."""
    return " ".join(line[key] for key in KEYS if line[key] and (key, line[key]) != ("subset", "all"))


def blocks(lines: Sequence[Line]) -> list[list[Line]]:
    """Groups lines into tables: by benchmark, or by metric if a metric has several lines; single lines come last."""
    single: list[Line] = []
    several: list[list[Line]] = []
    for part in group_lines(lines, "benchmark"):
        metrics = group_lines(part, "metric")
        if len(part) == 1:
            single += part
        else:
            several += [part] if all(len(own) == 1 for own in metrics) else metrics
    return [*several, single] if single else several


def counts(lines: Sequence[Line]) -> str:
    """Formats counts as `400 items from 380 images` or `100 to 400 items from ...`; empty if unknown.

    An average counts only if its subsets are not among the lines.
    """
    spans = []
    whole = {line["benchmark"] for line in subsets_of(lines)}
    chosen = [line for line in lines if not line.get("average") or line["benchmark"] not in whole]
    for key in ("items", "images"):
        known = sorted({line[key] for line in chosen if line.get(key) is not None})
        if known:
            span = f"{known[0]:,}" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,}"
            spans.append(f"{span} {key.removesuffix('s') if known == [1] else key}")
    return " from ".join(spans)


def distinct_labels(lines: Sequence[Line], *, notes: bool = True) -> tuple[str, list[str]]:
    """Splits the lines' names into a common part and a label per line; a single line keeps its name.

    With `notes`, the texts include the unit of numbers that are not percentages and mark the primary endpoint.
    """
    differing = [key for key in KEYS if len({line[key] for line in lines}) > 1] or KEYS
    same = {key: lines[0][key] for key in KEYS if key not in differing}
    rest = name_of({**dict.fromkeys(KEYS, ""), **same, "benchmark": ""})
    shared = ": ".join(filter(None, (same.get("benchmark"), rest)))
    labels = [name_of({**line, **dict.fromkeys(same, "")}) or line["metric"] for line in lines]
    if notes and "metric" in same:
        shared = with_note(shared, lines[0])
    elif notes:
        labels = list(map(with_note, labels, lines))
    if notes:
        labels = [label + " (primary)" * bool(line.get("primary")) for label, line in zip(labels, lines, strict=True)]
    return shared, labels
