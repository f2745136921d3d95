"""What the lines of results say when they are read together: the headline, averages, and sentences of judgement.

A line is one benchmark, subset and metric with the share of every model, as `hfcomp.evaluation.results` makes it. The
models are in the order of columns: `base`, the controls, and the method last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Line = dict[str, Any]
Share = dict[str, float]

BASE = "base"
SAME_BATCH = "same-batch"
MEANINGS = {
    "plain": "InfoNCE on the positives alone, for as many steps as {method}",
    SAME_BATCH: "InfoNCE on {method}'s own batch, negatives included: no margin, no extra term",
    "shuffled": "{method} with the negatives of other rows",
    "random-spans": "{method} with runs of a caption's words in place of its phrases, as many and as long",
    "equal-images": "plain with a larger batch, so that it encodes as many images as {method}",
}
# The strictest metric stands for composition where any benchmark has it.
HEADLINE_METRIC = "group"
SHORT_METRICS = {
    "caption choice": "choice",
    "text-to-image recall@1": "text to image R@1",
    "image-to-text recall@1": "image to text R@1",
}


def models_of(lines: Sequence[Line]) -> list[str]:
    """The models in the order of columns."""
    return list(lines[0]["models"]) if lines else []


def of_aspect(lines: Sequence[Line], aspect: str) -> list[Line]:
    """The lines of `composition` or of `general` abilities."""
    return [line for line in lines if line["aspect"] == aspect]


def by_benchmark(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines of each benchmark, in the order of first appearance."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line["benchmark"], []).append(line)
    return found


def headline(lines: Sequence[Line]) -> list[Line]:
    """The `group` lines of composition, and all lines of composition where no benchmark has such."""
    composition = of_aspect(lines, "composition")
    return [line for line in composition if line["metric"] == HEADLINE_METRIC] or composition


def number(value: float | None) -> float:
    """NaN for what a file holds as null."""
    return float("nan") if value is None else float(value)


def difference(line: Line, model: str, reference: str) -> Share | None:
    """Model minus reference; without interval where the results only hold the two shares, none for a model absent."""
    known = line.get("differences", {}).get(model, {}).get(reference)
    if known is not None or not {model, reference} <= line["models"].keys():
        return known
    gap = number(line["models"][model]["value"]) - number(line["models"][reference]["value"])
    return {"value": gap, "low": float("nan"), "high": float("nan")}


def average(shares: Sequence[Share | None]) -> Share | None:
    """The plain mean of shares or differences, with its interval.

    The lines are taken as independent, which they are where subsets do not share images: each side of the interval is
    the root of the sum of squares of the lines' own, divided by their number.

    Returns:
        None when there is no share, or one of them is missing.
    """
    known = [share for share in shares if share is not None]
    if not known or len(known) < len(shares):
        return None
    count = len(known)
    value = sum(number(share["value"]) for share in known) / count
    below = math.hypot(*(number(share["value"]) - number(share["low"]) for share in known)) / count
    above = math.hypot(*(number(share["high"]) - number(share["value"]) for share in known)) / count
    return {"value": value, "low": value - below, "high": value + above}


def average_of(lines: Sequence[Line], model: str, reference: str | None = None) -> Share | None:
    """The average share of a model over lines, or its average difference to a reference."""
    if reference is None:
        return average([line["models"].get(model) for line in lines])
    return average([difference(line, model, reference) for line in lines])


def judgement(lines: Sequence[Line]) -> list[str]:
    """What a reader must not miss: whether the objective adds to its batch, and what was forgotten."""
    models = models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    method = models[-1]
    return [sentence for sentence in (_against_same_batch(lines, method), _forgotten(lines, method)) if sentence]


def _against_same_batch(lines: Sequence[Line], method: str) -> str | None:
    chosen = headline(lines)
    gain = average_of(chosen, method, SAME_BATCH) if chosen else None
    if not chosen or method == SAME_BATCH:
        return None
    if gain is None:
        return f"There is no {SAME_BATCH} control here, so what {method} adds to its own batch is not shown."
    low, high = number(gain["low"]), number(gain["high"])
    if low > 0:
        verdict = f"{method} beats {SAME_BATCH} here"
    elif high < 0:
        verdict = f"{method} does not beat {SAME_BATCH} here, it is below it"
    else:
        verdict = f"{method} does not beat {SAME_BATCH} here"
    return f"{verdict}: {points(gain)} points on {'the average of ' if len(chosen) > 1 else ''}{count_of(chosen)}."


def _forgotten(lines: Sequence[Line], method: str) -> str | None:
    fallen = []
    for line in of_aspect(lines, "general"):
        change = difference(line, method, BASE)
        if change is not None and number(change["high"]) < 0:
            fallen.append(f"{name_of(line)} {points(change)}")
    return f"{method} forgets, against base in points: {'; '.join(fallen)}." if fallen else None


def name_of(line: Line) -> str:
    """Benchmark, subset unless it is all, and metric."""
    parts = [line["benchmark"], "" if line["subset"] == "all" else line["subset"], line["metric"]]
    return " ".join(part for part in parts if part)


def short_metric(metric: str) -> str:
    """A metric's name where there is little room."""
    return SHORT_METRICS.get(metric, metric)


def has_ties(lines: Sequence[Line]) -> bool:
    """Whether any model tied on any item."""
    return any(share["ties"] for line in lines for share in line["models"].values())


def count_of(lines: Sequence[Line], kind: str | None = None) -> str:
    """`6 group lines`: their number with their kind, by default their metric where it is one, else composition."""
    metrics = {line["metric"] for line in lines}
    kind = kind or (metrics.pop() if len(metrics) == 1 else "composition")
    return f"{len(lines)} {kind} line{'s' if len(lines) > 1 else ''}"


@dataclass(frozen=True)
class Unit:
    """How the numbers of a metric are shown.

    Attributes:
        factor: a value is multiplied by it.
        decimals: shown.
        note: behind the metric's name where its numbers are no percentages of right items.
    """

    factor: float
    decimals: int
    note: str = ""


PERCENT = Unit(100, 1)
# Metrics that are no share of right items, by what their names hold.
OTHER_UNITS = {
    "average precision": Unit(100, 1, "x 100, no share"),
    "map": Unit(100, 1, "x 100, no share"),
    "reciprocal rank": Unit(1, 3, "0 to 1, no share"),
    "mrr": Unit(1, 3, "0 to 1, no share"),
    "kendall": Unit(1, 3, "-1 to 1, no share"),
    "tau": Unit(1, 3, "-1 to 1, no share"),
    "correlation": Unit(1, 3, "-1 to 1, no share"),
}


def unit_of(metric: str) -> Unit:
    """Percent, but for the metrics that are no share of right items."""
    words = f" {' '.join(re.findall(r'[a-z]+', metric.lower()))} "
    return next((unit for name, unit in OTHER_UNITS.items() if f" {name} " in words), PERCENT)


def named_with_unit(metric: str) -> str:
    """`mAP (x 100, no share)`; a share goes by its name alone."""
    note = unit_of(metric).note
    return f"{metric} ({note})" if note else metric


def percent(value: float | None, unit: Unit = PERCENT) -> str:
    """`94.0` for 0.94, `-` for what is not known; another unit for metrics that are no shares."""
    value = number(value)
    return "-" if math.isnan(value) else f"{_rounded(value, unit):.{unit.decimals}f}"


def signed(value: float | None, unit: Unit = PERCENT) -> str:
    """`+72.2` for 0.722, `-` for what is not known."""
    value = number(value)
    return "-" if math.isnan(value) else f"{_rounded(value, unit):+.{unit.decimals}f}"


def has_interval(share: Share | None) -> bool:
    """Whether both bounds are known."""
    return share is not None and not any(math.isnan(number(share[bound])) for bound in ("low", "high"))


def interval(share: Share | None, unit: Unit = PERCENT) -> str:
    """`[+68.0, +76.0]` of a difference, `-` where there is none."""
    if share is None or not has_interval(share):
        return "-"
    return f"[{signed(share['low'], unit)}, {signed(share['high'], unit)}]"


def points(share: Share | None, unit: Unit = PERCENT) -> str:
    """`+72.2 [+68.0, +76.0]`, a difference with its interval where there is one."""
    if share is None:
        return "-"
    return signed(share["value"], unit) + (f" {interval(share, unit)}" if has_interval(share) else "")


def with_interval(share: Share, unit: Unit = PERCENT) -> str:
    """`94.0 [92.1, 95.9]`, a share with its interval where there is one."""
    bounds = f" [{percent(share['low'], unit)}, {percent(share['high'], unit)}]" if has_interval(share) else ""
    return percent(share["value"], unit) + bounds


def p_value(share: Share | None) -> str:
    """`0.012`, `<0.001`, or `-` where there is none."""
    value = number((share or {}).get("p"))
    if math.isnan(value):
        return "-"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def with_p(change: Share | None, unit: Unit = PERCENT) -> str:
    """`+72.2 [+68.0, +76.0], p <0.001`, as far as it is known."""
    p = p_value(change)
    return points(change, unit) + ("" if p == "-" else f", p {p}")


def is_sure(change: Share | None) -> bool:
    """Whether the interval of a difference is known and does not hold 0."""
    return change is not None and (number(change["low"]) > 0 or number(change["high"]) < 0)


def unsure(change: Share | None, unit: Unit = PERCENT) -> str:
    """`+72.2 `, a difference with `~` for the blank where its interval holds 0, or there is none."""
    return signed(change and change["value"], unit) + (" " if is_sure(change) else "~")


def change_cells(change: Share | None, unit: Unit = PERCENT) -> list[str]:
    """A difference, its interval and its p, each for a column of its own."""
    return [signed(change and change["value"], unit), interval(change, unit), p_value(change)]


def _rounded(share: float, unit: Unit) -> float:
    return round(unit.factor * share, unit.decimals) + 0.0  # no "-0.0"
