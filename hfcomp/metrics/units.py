"""How the numbers of a metric are shown: most are percentages, some are not."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEADLINE_METRIC = "group"
"""The strictest metric, used as the measure of composition where a benchmark has it."""


@dataclass(frozen=True)
class Unit:
    """How the numbers of a metric are shown.

    Attributes:
        factor: a value is multiplied by it.
        decimals: shown.
        note: behind the metric's name where its numbers are not percentages.
    """

    factor: float
    decimals: int
    note: str = ""


PERCENT = Unit(100, 1)
MIXED = Unit(100, 1, "x 100, several metrics")
# Metrics whose numbers are not percentages, by words in their names.
OTHER_UNITS = {
    "average precision": Unit(100, 1, "x 100"),
    "map": Unit(100, 1, "x 100"),
    "brittleness": Unit(100, 1, "%, lower is better"),
    "reciprocal rank": Unit(1, 3, "0 to 1"),
    "mrr": Unit(1, 3, "0 to 1"),
    "kendall": Unit(1, 3, "-1 to 1"),
    "tau": Unit(1, 3, "-1 to 1"),
    "correlation": Unit(1, 3, "-1 to 1"),
}

LOWER_IS_BETTER = frozenset({"brittleness"})
"""Metrics of which the highest value is not the best."""


def unit_of(metric: str) -> Unit:
    """Percent, except for the metrics in `OTHER_UNITS`."""
    words = f" {' '.join(re.findall(r'[a-z]+', metric.lower()))} "
    return next((unit for name, unit in OTHER_UNITS.items() if f" {name} " in words), PERCENT)


def named_with_unit(metric: str) -> str:
    """`mAP (x 100)`; a percentage goes by its name alone."""
    note = unit_of(metric).note
    return f"{metric} ({note})" if note else metric
