"""What the lines of results say when they are read together: the headline, and sentences of judgement.

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
# Where there is no interval, a difference counts with a p below that.
SURE = 0.05
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


def is_average(line: Line) -> bool:
    """Whether a line is a mean over subsets."""
    return bool(line.get("average"))


def subsets_of(lines: Sequence[Line]) -> list[Line]:
    """The lines that are no averages."""
    return [line for line in lines if not is_average(line)]


def primary_of(lines: Sequence[Line]) -> Line | None:
    """The line that the verdict is about."""
    return next((line for line in lines if line.get("primary")), None)


def headline(lines: Sequence[Line]) -> list[Line]:
    """The `group` lines of composition, and all lines of composition where no benchmark has such; no averages."""
    composition = subsets_of(of_aspect(lines, "composition"))
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


def judgement(lines: Sequence[Line]) -> list[str]:
    """What a reader must not miss: whether the objective adds to its batch, and what was forgotten."""
    models = models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    method = models[-1]
    return [sentence for sentence in (_against_same_batch(lines, method), _forgotten(lines, method)) if sentence]


def _against_same_batch(lines: Sequence[Line], method: str) -> str | None:
    primary = primary_of(lines)
    if primary is None or method == SAME_BATCH:
        return None
    gain = difference(primary, method, SAME_BATCH)
    if gain is None:
        return f"There is no {SAME_BATCH} control here, so what {method} adds to its own batch is not shown."
    sign, unit = direction(gain), unit_of_line(primary)
    if sign is None:
        verdict = f"Whether {method} beats {SAME_BATCH} is not known here"
    elif sign > 0 and is_below_chance(primary, method):
        verdict = f"{method} is above {SAME_BATCH} here, but both are below chance"
    elif sign > 0:
        verdict = f"{method} beats {SAME_BATCH} here"
    else:
        verdict = f"{method} does not beat {SAME_BATCH} here" + (", it is below it" if sign < 0 else "")
    shown = points(gain, unit) + (" points" if unit == PERCENT else f" ({unit.note})")
    test = f"p {p_value(gain)}" + ("" if has_interval(gain) else ", no interval")
    return f"{verdict}: {shown} on {primary['primary']} (primary endpoint, {test})."


def is_below_chance(line: Line, model: str) -> bool:
    """Whether a model scores less than a random scorer, as far as that is known."""
    return number(line["models"][model]["value"]) < number(line["chance"])


def _forgotten(lines: Sequence[Line], method: str) -> str | None:
    fallen = []
    for line in subsets_of(of_aspect(lines, "general")):
        change = difference(line, method, BASE)
        if direction(change) == -1:
            fallen.append(with_note(f"{name_of(line)} {points(change, unit_of_line(line))}", line))
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
UNLIKE = Unit(100, 1, "x 100, of unlike metrics")
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


def unit_of_line(line: Line) -> Unit:
    """The unit of a line; of a mean over lines of several metrics the one that all have."""
    units = {unit_of(key[2]) for key in line.get("lines", ())} or {unit_of(line["metric"])}
    return units.pop() if len(units) == 1 else UNLIKE


def with_note(text: str, line: Line) -> str:
    """A text with the unit of a line behind it, where that is not percent."""
    note = unit_of_line(line).note
    return f"{text} ({note})" if note else text


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


def adjusted(change: Share | None) -> str:
    """The p that is corrected for the number of differences: by Holm on the primary endpoint, else q; `-` for none."""
    known = change or {}
    return p_value({"p": known.get("p_holm", known.get("q"))})


def with_p(change: Share | None, unit: Unit = PERCENT) -> str:
    """`+72.2 [+68.0, +76.0], p <0.001, q 0.004`, as far as it is known."""
    known = {"p": p_value(change), "q": p_value({"p": (change or {}).get("q")})}
    known["Holm"] = p_value({"p": (change or {}).get("p_holm")})
    return points(change, unit) + "".join(f", {name} {value}" for name, value in known.items() if value != "-")


def direction(change: Share | None) -> int | None:
    """1 or -1 for a difference that counts, 0 for one that does not, `None` where that is not known.

    It counts where its interval leaves 0 out, and where there is no interval, where its p is below 0.05.
    """
    if change is None:
        return None
    if has_interval(change):
        return int(number(change["low"]) > 0) - int(number(change["high"]) < 0)
    p, value = number(change.get("p")), number(change["value"])
    if math.isnan(p):
        return None
    return int(math.copysign(1, value)) if p < SURE else 0


def unsure(change: Share | None, unit: Unit = PERCENT) -> str:
    """`+72.2 `, a difference with `~` for the blank where it does not count, or that is not known."""
    return signed(change and change["value"], unit) + (" " if direction(change) else "~")


def change_cells(change: Share | None, unit: Unit = PERCENT) -> list[str]:
    """A difference, its interval, its p and the corrected one, each for a column of its own."""
    return [signed(change and change["value"], unit), interval(change, unit), p_value(change), adjusted(change)]


def _rounded(share: float, unit: Unit) -> float:
    return round(unit.factor * share, unit.decimals) + 0.0  # no "-0.0"
