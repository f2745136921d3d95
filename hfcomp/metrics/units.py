"""Display units of metrics: most are percentages, some are not."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEADLINE_METRIC = "group"
"""The strictest metric, used as the measure of composition if a benchmark has it."""


@dataclass(frozen=True)
class Unit:
    """Display format of a metric's numbers.

    Attributes:
        factor: Factor to multiply values by.
        decimals: Number of decimals.
        note: Note after the metric's name if its numbers are not percentages.
    """

    factor: float
    decimals: int
    note: str = ""


PERCENT = Unit(100, 1)
MIXED = Unit(100, 1, "x 100, several metrics")
# Units of metrics that are not shown as plain percentages, by words in the metric's name.
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
"""Metrics for which a lower value is better."""


def metric_unit(metric: str) -> Unit:
    """Returns the unit in `OTHER_UNITS` whose words occur in the metric's name, otherwise `PERCENT`."""
    words = f" {' '.join(re.findall(r'[a-z]+', metric.lower()))} "
    return next((unit for name, unit in OTHER_UNITS.items() if f" {name} " in words), PERCENT)


def name_with_unit(metric: str) -> str:
    """Returns the metric's name, for example `mAP (x 100)`. A percentage has no note."""
    note = metric_unit(metric).note
    return f"{metric} ({note})" if note else metric
