"""Values of a line: at its floor or ceiling, of one model against another, and in the order of columns."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hfcomp.metrics.units import LOWER_IS_BETTER, PERCENT
from hfcomp.reporting.format import Estimate, number, with_interval
from hfcomp.reporting.lines import Line, unit_of_line

EDGE = 0.02
"""Largest distance from chance, or from 1, of all models of a line at the floor or at the ceiling."""
FLOOR, CEILING = "floor", "ceiling"


def edge_of(line: Line) -> str:
    """Returns `FLOOR` if no value is more than `EDGE` above chance, `CEILING` if none is more than that below 1.

    Without chance, the floor is at 0. Lines in units other than percent, or for which lower is better, have neither.
    """
    known = [number((value or {}).get("value")) for value in line["models"].values()]
    if not known or unit_of_line(line) != PERCENT or line["metric"] in LOWER_IS_BETTER or any(map(math.isnan, known)):
        return ""
    lowest = max(0.0, number(line.get("chance"))) if line.get("chance") is not None else 0.0
    slack = EDGE + 1e-9  # of binary fractions
    return FLOOR if max(known) <= lowest + slack else CEILING if min(known) >= 1 - slack else ""


def with_edge(label: str, line: Line) -> str:
    """Returns a label, marked if its line is at the floor or the ceiling."""
    edge = edge_of(line)
    return f"{label} ({edge})" if edge else label


def difference(line: Line, model: str, reference: str) -> Estimate | None:
    """Returns model minus reference, even if the line has only the reverse difference.

    Without an interval if the line has only the two values; None if a model is missing.
    """
    known: Estimate | None = line.get("differences", {}).get(model, {}).get(reference)
    if known is not None or not {model, reference} <= line["models"].keys():
        return known
    if reverse := line.get("differences", {}).get(reference, {}).get(model):
        return {**reverse, "value": -reverse["value"], **_negated_bounds(reverse)}
    return {"value": number(line["models"][model]["value"]) - number(line["models"][reference]["value"])}


def _negated_bounds(change: Estimate) -> Estimate:
    low, high = change.get("low"), change.get("high")
    return {} if low is None or high is None else {"low": -high, "high": -low}


def as_last(lines: Iterable[Line], model: str) -> list[Line]:
    """Returns the lines with a model in the last column, where tables and cards expect their main model."""
    # Sorting is stable, so the other models keep their order.
    return [{**line, "models": dict(sorted(line["models"].items(), key=lambda it: it[0] == model))} for line in lines]


def points_of(change: Estimate | None, line: Line) -> str:
    """Formats a difference with its interval and unit, for use in a sentence."""
    unit = unit_of_line(line)
    return with_interval(change, unit, "+") + (" points" if unit == PERCENT else f" ({unit.note})")
