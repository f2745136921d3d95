"""What the lines of results say when they are read together: the headline, averages, and sentences of judgement.

A line is one benchmark, subset and metric with the share of every model, as `hfcomp.evaluation.results` makes it. The
models are in the order of columns: `base`, the controls, and the method last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Line = dict[str, Any]
Share = dict[str, float]

BASE = "base"
SAME_BATCH = "same-batch"
MEANINGS = {
    "plain": "InfoNCE on the positives alone, for as many steps as {method}",
    SAME_BATCH: "InfoNCE on {method}'s own batch, negatives included: no margin, no extra term",
    "shuffled": "{method} with the negatives of other rows",
    "equal-images": "plain with a larger batch, so that it encodes as many images as {method}",
}
# The strictest metric stands for composition where any benchmark has it.
HEADLINE_METRIC = "group"


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


def count_of(lines: Sequence[Line], kind: str | None = None) -> str:
    """`6 group lines`: their number with their kind, by default their metric where it is one, else composition."""
    metrics = {line["metric"] for line in lines}
    kind = kind or (metrics.pop() if len(metrics) == 1 else "composition")
    return f"{len(lines)} {kind} line{'s' if len(lines) > 1 else ''}"


def percent(value: float | None) -> str:
    """`94.0` for 0.94, `-` for what is not known."""
    value = number(value)
    return "-" if math.isnan(value) else f"{_rounded(value):.1f}"


def signed(value: float | None) -> str:
    """`+72.2` for 0.722, `-` for what is not known."""
    value = number(value)
    return "-" if math.isnan(value) else f"{_rounded(value):+.1f}"


def points(share: Share | None) -> str:
    """`+72.2 [+68.0, +76.0]`, a difference with its interval where there is one."""
    if share is None:
        return "-"
    bounds = number(share["low"]), number(share["high"])
    interval = "" if any(map(math.isnan, bounds)) else f" [{signed(bounds[0])}, {signed(bounds[1])}]"
    return signed(share["value"]) + interval


def _rounded(share: float) -> float:
    return round(100 * share, 1) + 0.0  # no "-0.0"
