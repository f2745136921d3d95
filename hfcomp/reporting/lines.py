"""Lines of results: how they are named and grouped, and which stand for the others.

A line is one benchmark, subset and metric with the value of every model, as `summarize` makes it: a mapping with
`benchmark`, `subset`, `metric`, `aspect` (`composition` or `general`), `chance`, `items`, `images`, `models` (name to
estimate) and `differences` (name to reference to estimate); means over subsets have `average`, the primary endpoint
`primary`, its name. A line may bring the `unit` of its numbers; others have that of their metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hfcomp.metrics.units import HEADLINE_METRIC, MIXED, PERCENT, Unit, unit_of
from hfcomp.reporting.format import Estimate, number, points

Line = dict[str, Any]
Block = tuple[str, list[tuple[str, Line]]]
"""A title and its labelled lines."""

ASPECTS = {"composition": "Composition", "general": "General abilities"}
# Of a metric with more subsets than that, the averages stand for them; where there are none, the first ones.
MOST_SUBSETS = 12


def models_of(lines: Sequence[Line]) -> list[str]:
    """The models in the order of columns."""
    return list(lines[0]["models"]) if lines else []


def of_aspect(lines: Iterable[Line], aspect: str) -> list[Line]:
    """The lines of `composition` or of `general` abilities."""
    return [line for line in lines if line["aspect"] == aspect]


def is_average(line: Line) -> bool:
    """Whether a line is a mean over subsets."""
    return bool(line.get("average"))


def subsets_of(lines: Iterable[Line]) -> list[Line]:
    """The lines that are no averages."""
    return [line for line in lines if not is_average(line)]


def primary_of(lines: Iterable[Line]) -> Line | None:
    """The line that a verdict is about."""
    return next((line for line in lines if line.get("primary")), None)


def general_of(lines: Iterable[Line], average: Line | None) -> Line | None:
    """The mean of general abilities; a single line stands for itself."""
    only = subsets_of(of_aspect(lines, "general"))
    return (average if len(only) > 1 else only[0]) if only else None


def about_general(lines: Iterable[Line]) -> str:
    """What `general_of` is of."""
    only = subsets_of(of_aspect(lines, "general"))
    return f"average of {len(only)} lines" if len(only) > 1 else name_of(only[0])


def headline(lines: Sequence[Line]) -> list[Line]:
    """Of composition the `group` lines with their averages, where any benchmark has such; else all lines."""
    composition = of_aspect(lines, "composition")
    return [line for line in composition if line["metric"] == HEADLINE_METRIC] or composition


def grouped(lines: Iterable[Line], *keys: str) -> list[list[Line]]:
    """Lines that have these keys in common, averages first, in the order of first appearance."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(line[key] for key in keys), []).append(line)
    return [sorted(part, key=lambda line: not is_average(line)) for part in found.values()]


def standing(lines: Sequence[Line]) -> list[Line]:
    """The lines that stand for a benchmark's metrics: the averages, else the lines, of many the first ones."""
    kept: list[Line] = []
    for part in grouped(lines, "benchmark", "metric"):
        kept += [line for line in part if is_average(line)] or part[:MOST_SUBSETS]
    return kept


def few_of(lines: Sequence[Line]) -> list[Line]:
    """All lines, but of a metric with many subsets those that stand for it."""
    parts = grouped(lines, "benchmark", "metric")
    return [line for part in parts for line in (standing(part) if len(subsets_of(part)) > MOST_SUBSETS else part)]


def foremost(lines: Sequence[Line]) -> list[Line]:
    """Of `standing`, the first average of each benchmark, or its lines; the strictest metric where there is one."""
    kept: list[Line] = []
    for part in grouped(standing(lines), "benchmark"):
        chosen = [line for line in part if line["metric"] == HEADLINE_METRIC] or part
        kept += [line for line in chosen if is_average(line)][:1] or chosen
    return kept


def difference(line: Line, model: str, reference: str) -> Estimate | None:
    """Model minus reference; without interval where the line has the two values only, none for a model absent."""
    known: Estimate | None = line.get("differences", {}).get(model, {}).get(reference)
    if known is not None or not {model, reference} <= line["models"].keys():
        return known
    return {"value": number(line["models"][model]["value"]) - number(line["models"][reference]["value"])}


def points_of(change: Estimate | None, line: Line) -> str:
    """A difference with its interval and its unit, for a sentence."""
    unit = unit_of_line(line)
    return points(change, unit) + (" points" if unit == PERCENT else f" ({unit.note})")


def has_ties(lines: Iterable[Line]) -> bool:
    """Whether any model tied on any item."""
    return any((estimate or {}).get("tie_rate") for line in lines for estimate in line["models"].values())


def unit_of_line(line: Line) -> Unit:
    """The unit of a line; of a mean over lines of several metrics the one that all have."""
    if "unit" in line:
        given: Unit = line["unit"]
        return given
    units = {unit_of(key[2]) for key in line.get("lines", ())} or {unit_of(line["metric"])}
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
    parts = [line["benchmark"], "" if line["subset"] == "all" else line["subset"], line["metric"]]
    return " ".join(part for part in parts if part)


def labelled(line: Line, text: str) -> str:
    """A label with what says that the line is the primary endpoint."""
    return f"{text} (primary)" if line.get("primary") else text


def blocks(lines: Sequence[Line]) -> Iterator[Block]:
    """A block for each benchmark and metric that has several lines; lines that are alone have one without a title."""
    alone: list[tuple[str, Line]] = []
    several: list[Block] = []
    for part in grouped(lines, "benchmark"):
        metrics, benchmark = grouped(part, "metric"), part[0]["benchmark"]
        if len(part) == 1:
            alone.append((with_note(name_of(part[0]), part[0]), part[0]))
        elif all(len(own) == 1 for own in metrics):
            kept = [with_note(name_of({**line, "benchmark": ""}), line) for line in part]
            several.append((benchmark, list(zip(kept, part, strict=True))))
        else:
            for own in metrics:
                title = with_note(f"{benchmark}: {own[0]['metric']}", own[0])
                several.append((title, [(line["subset"], line) for line in own]))
    yield from several
    if alone:
        yield "", alone


def counts(lines: Sequence[Line]) -> str:
    """`400 items of 380 images`, `100 to 400 items of ...`; empty where that is not known.

    An average counts where its subsets are not among the lines.
    """
    found = []
    whole = {line["benchmark"] for line in subsets_of(lines)}
    chosen = [line for line in lines if not is_average(line) or line["benchmark"] not in whole]
    for key in ("items", "images"):
        known = sorted({line[key] for line in chosen if line.get(key) is not None})
        if known:
            span = f"{known[0]:,}" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,}"
            found.append(f"{span} {key.removesuffix('s') if known == [1] else key}")
    return " of ".join(found)


def distinct_labels(lines: Sequence[Line], *, note: bool = True) -> tuple[str, list[str]]:
    """What all lines have in common, and what tells each from the others.

    Args:
        lines: in any order.
        note: whether labels say the unit of numbers that are not percentages, and which line is primary.
    """
    differing = [key for key in ("benchmark", "subset", "metric") if len({line[key] for line in lines}) > 1]
    shared = [lines[0][key] for key in ("benchmark", "subset", "metric") if lines and key not in differing]
    labels = []
    for line in lines:
        parts = [line[key] for key in differing if (key, line[key]) != ("subset", "all")] or [line["metric"]]
        label = " ".join(part for part in parts if part)
        labels.append(labelled(line, with_note(label, line)) if note else label)
    return ", ".join(part for part in shared if part not in ("", "all")), labels
