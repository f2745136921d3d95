"""Lines of results: how they are named and grouped, and which stand for the others.

A line is one benchmark, subset and metric with the value of every model, as `summarize` makes it: a mapping with
`benchmark`, `subset`, `metric`, `aspect` (`composition` or `general`), `chance`, `items`, `images`, `models` (name to
estimate) and `differences` (name to reference to estimate); means over subsets have `average`, the primary endpoint
`primary`, its name. A line may bring the `unit` of its numbers; others have that of their metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hfcomp.metrics.units import HEADLINE_METRIC, MIXED, PERCENT, Unit, metric_unit

Line = dict[str, Any]
KEYS = ("benchmark", "subset", "metric")
ASPECTS = {"composition": "Composition", "general": "General abilities"}
MOST_SUBSETS = 12
"""Of a metric with more subsets than that, the averages stand for them; where there are none, the first ones."""


def models_of(lines: Sequence[Line]) -> list[str]:
    """The models in the order of columns."""
    return list(lines[0]["models"]) if lines else []


def num_seeds(lines: Iterable[Line]) -> int:
    """Number of seeds that the models were trained with; 1 if values are of a single one."""
    return max((len((one or {}).get("seeds", [0])) for line in lines for one in line["models"].values()), default=1)


def parts_of(line: Line, lines: Sequence[Line]) -> list[list[Line]]:
    """The lines that a mean is made of, one list for each of its parts; of another line itself."""
    known = {tuple(one[key] for key in KEYS): one for one in lines if not one.get("average")}
    groups = [[tuple(key)] for key in line.get("lines", ())]
    if not groups:
        groups = [[(line["benchmark"], one, line["metric"]) for one in group] for group in line.get("groups") or ()]
    found = [[known[key] for key in group if key in known] for group in groups]
    return [part for part in found if part] or [[line]]


def of_aspect(lines: Iterable[Line], aspect: str) -> list[Line]:
    """The lines of `composition` or of `general` abilities."""
    return [line for line in lines if line["aspect"] == aspect]


def subsets_of(lines: Iterable[Line]) -> list[Line]:
    """The lines that are no averages."""
    return [line for line in lines if not line.get("average")]


def primary_of(lines: Iterable[Line]) -> Line | None:
    """The line that a verdict is about."""
    return next((line for line in lines if line.get("primary")), None)


def general_of(lines: Iterable[Line], average: Line | None) -> Line | None:
    """The mean of general abilities, named by how many lines it is of; a single line stands for itself."""
    abilities = subsets_of(of_aspect(lines, "general"))
    if average is None or len(abilities) < 2:
        return abilities[0] if len(abilities) == 1 else None
    return {**average, "benchmark": "", "subset": f"average of {len(abilities)} lines", "metric": ""}


def grouped(lines: Iterable[Line], *keys: str) -> list[list[Line]]:
    """Lines that have these keys in common, averages first, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(line[key] for key in keys), []).append(line)
    return [sorted(part, key=lambda line: not line.get("average")) for part in found.values()]


def strictest(lines: Sequence[Line]) -> list[Line]:
    """Of a benchmark with `group` lines those and the primary endpoint, of any other all."""
    headed = {line["benchmark"] for line in lines if line["metric"] == HEADLINE_METRIC}
    return [
        line
        for line in lines
        if line["metric"] == HEADLINE_METRIC or line["benchmark"] not in headed or line.get("primary")
    ]


def standing(lines: Sequence[Line], most: int = 0) -> list[Line]:
    """Of each benchmark's metric with more subsets than `most` the averages, else the first of them; of others all."""
    kept: list[Line] = []
    for part in grouped(lines, "benchmark", "metric"):
        averages = [line for line in part if line.get("average")]
        kept += part if len(part) - len(averages) <= most else averages or part[:MOST_SUBSETS]
    return kept


def foremost(lines: Sequence[Line]) -> list[Line]:
    """Of the strictest metric of each benchmark the first average, or the lines that stand for it."""
    kept: list[Line] = []
    for part in grouped(strictest(standing(lines)), "benchmark"):
        kept += [line for line in part if line.get("average")][:1] or part
    return kept


def has_ties(lines: Iterable[Line]) -> bool:
    """Whether any model tied on any item."""
    return any((estimate or {}).get("tie_rate") for line in lines for estimate in line["models"].values())


def unit_of_line(line: Line) -> Unit:
    """The unit of a line; of a mean over lines of several metrics the one that all have."""
    if "unit" in line:
        given: Unit = line["unit"]
        return given
    units = {metric_unit(key[2]) for key in line.get("lines", ())} or {metric_unit(line["metric"])}
    return units.pop() if len(units) == 1 else MIXED


def with_note(text: str, line: Line) -> str:
    """A text with the unit of a line behind it, where that is not percent."""
    note = unit_of_line(line).note
    return f"{text} ({note})" if note else text


def all_percent(lines: Iterable[Line]) -> bool:
    """Whether all numbers are percentages, so that differences are points."""
    return all(unit_of_line(line) == PERCENT for line in lines)


def name_of(line: Line) -> str:
    """Benchmark, subset unless it is all, and metric."""
    return " ".join(line[key] for key in KEYS if line[key] and (key, line[key]) != ("subset", "all"))


def blocks(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines of a table each: of a benchmark, or of its metric where it has several; then those that are alone."""
    alone: list[Line] = []
    several: list[list[Line]] = []
    for part in grouped(lines, "benchmark"):
        metrics = grouped(part, "metric")
        if len(part) == 1:
            alone += part
        else:
            several += [part] if all(len(own) == 1 for own in metrics) else metrics
    return [*several, alone] if alone else several


def counts(lines: Sequence[Line]) -> str:
    """`400 items of 380 images`, `100 to 400 items of ...`; empty where that is not known.

    An average counts where its subsets are not among the lines.
    """
    found = []
    whole = {line["benchmark"] for line in subsets_of(lines)}
    chosen = [line for line in lines if not line.get("average") or line["benchmark"] not in whole]
    for key in ("items", "images"):
        known = sorted({line[key] for line in chosen if line.get(key) is not None})
        if known:
            span = f"{known[0]:,}" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,}"
            found.append(f"{span} {key.removesuffix('s') if known == [1] else key}")
    return " of ".join(found)


def distinct_labels(lines: Sequence[Line], *, notes: bool = True) -> tuple[str, list[str]]:
    """What all lines have in common, and what distinguishes each from the others; a single line has its whole name.

    With `notes` they say the unit of numbers that are not percentages, and which line is the primary endpoint.
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
