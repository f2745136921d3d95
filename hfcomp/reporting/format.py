"""Numbers as text: values, differences, intervals and p, `-` for what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hfcomp.metrics.units import PERCENT, Unit

Estimate = Mapping[str, Any]
"""A number: `value`, and what is known of `low`, `high`, `p`, `q`, `p_holm`, `smallest`, `lowest` and `highest`."""

UNKNOWN = "-"
# Where there is no interval, a difference counts with a p below that.
SURE = 0.05


def number(value: float | None) -> float:
    """NaN for what a file holds as null."""
    return math.nan if value is None else float(value)


def unsigned(value: float | None, unit: Unit = PERCENT) -> str:
    """`94.0` for 0.94 in percent."""
    return _text(value, unit, "")


def signed(value: float | None, unit: Unit = PERCENT) -> str:
    """`+72.2` for 0.722 in percent."""
    return _text(value, unit, "+")


def _text(value: float | None, unit: Unit, sign: str) -> str:
    known = number(value)
    if math.isnan(known):
        return UNKNOWN
    return f"{round(unit.factor * known, unit.decimals) + 0.0:{sign}.{unit.decimals}f}"  # no "-0.0"


def has_interval(estimate: Estimate | None) -> bool:
    """Whether both bounds are known."""
    return estimate is not None and not any(math.isnan(number(estimate.get(bound))) for bound in ("low", "high"))


def interval(change: Estimate | None, unit: Unit = PERCENT) -> str:
    """`[+68.0, +76.0]` of a difference."""
    if change is None or not has_interval(change):
        return UNKNOWN
    return f"[{signed(change['low'], unit)}, {signed(change['high'], unit)}]"


def with_interval(estimate: Estimate | None, unit: Unit = PERCENT) -> str:
    """`94.0 [92.1, 95.9]`, or over seeds `94.0 (93.0 to 95.2)`, as far as it is known."""
    known = estimate or {}
    text = unsigned(known.get("value"), unit)
    if "lowest" in known:
        return f"{text} ({unsigned(known['lowest'], unit)} to {unsigned(known['highest'], unit)})"
    if has_interval(known):
        return f"{text} [{unsigned(known['low'], unit)}, {unsigned(known['high'], unit)}]"
    return text


def points(change: Estimate | None, unit: Unit = PERCENT) -> str:
    """`+72.2 [+68.0, +76.0]`, a difference with its interval where there is one."""
    text = signed((change or {}).get("value"), unit)
    return f"{text} {interval(change, unit)}" if has_interval(change) else text


def p_value(p: float | None) -> str:
    """`0.012` or `<0.001`."""
    known = number(p)
    return UNKNOWN if math.isnan(known) else "<0.001" if known < 0.001 else f"{known:.3f}"


def change_cells(change: Estimate | None, unit: Unit = PERCENT) -> list[str]:
    """A difference, its interval, its p and the adjusted one (Holm's on the primary endpoint, else q)."""
    known = change or {}
    tests = [p_value(known.get("p")), p_value(known.get("p_holm", known.get("q")))]
    return [signed(known.get("value"), unit), interval(change, unit), *tests]


def direction(change: Estimate | None) -> int | None:
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


def unsure(change: Estimate | None, unit: Unit = PERCENT) -> str:
    """`+72.2 `, a difference with `~` for the blank where it does not count, or that is not known."""
    return signed((change or {}).get("value"), unit) + (" " if direction(change) else "~")
