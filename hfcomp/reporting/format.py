"""Numbers as text (values, differences, intervals and p, `-` for what is not known), and texts without controls."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hfcomp.metrics.units import PERCENT, Unit

Estimate = Mapping[str, Any]
"""A number: `value`, and what is known of `low`, `high`, `p`, `q`, `p_holm`, `smallest`, `lowest` and `highest`."""
UNKNOWN = "-"
SIGNIFICANT = 0.05
"""Where there is no interval, a difference is significant with a p below that."""
# Control characters except for tab and line feed, such as the escape sequences of a terminal, and those that turn the
# direction of what follows them (the embeddings, overrides and isolates of Unicode's UAX 9).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""A text of data or a model with its control characters written out, such as `\x1b` and `\u202e`."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def number(value: float | None) -> float:
    """NaN for what a file holds as null."""
    return math.nan if value is None else float(value)


def counted(count: int, noun: str) -> str:
    """`1 row`, `1,165 rows`: a number with what is counted, whose plural ends in -s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def decimal(value: float | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """`94.0` for 0.94 in percent; with the sign "+", of a difference, `+94.0`."""
    known = number(value)
    if math.isnan(known):
        return UNKNOWN
    # Adding 0.0 turns -0.0, which is what a small negative number rounds to, into 0.0.
    return f"{round(unit.factor * known, unit.decimals) + 0.0:{sign}.{unit.decimals}f}"


def has_interval(estimate: Estimate | None) -> bool:
    return estimate is not None and not any(math.isnan(number(estimate.get(bound))) for bound in ("low", "high"))


def interval(estimate: Estimate | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """`[92.1, 95.9]`."""
    if estimate is None or not has_interval(estimate):
        return UNKNOWN
    return f"[{decimal(estimate['low'], unit, sign)}, {decimal(estimate['high'], unit, sign)}]"


def with_interval(estimate: Estimate | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """`94.0 [92.1, 95.9]`, or over seeds `94.0 (93.0 to 95.2)`, as far as it is known."""
    known = estimate or {}
    text = decimal(known.get("value"), unit, sign)
    if "lowest" in known:
        return f"{text} ({decimal(known['lowest'], unit, sign)} to {decimal(known['highest'], unit, sign)})"
    return f"{text} {interval(known, unit, sign)}" if has_interval(known) else text


def p_value(p: float | None) -> str:
    """`0.012` or `<0.001`."""
    known = number(p)
    return UNKNOWN if math.isnan(known) else "<0.001" if known < 0.001 else f"{known:.3f}"


def direction(change: Estimate | None) -> int | None:
    """1 or -1 for a significant difference, 0 for another one, `None` where that is not known.

    Significant is one whose interval leaves 0 out, and where there is no interval, one whose p is below 0.05.
    """
    if change is None:
        return None
    # If a difference has both, they agree (`ImageBootstrap.macro_difference`), so the interval that readers see
    # decides. A difference over two seeds has neither.
    if has_interval(change):
        return int(number(change["low"]) > 0) - int(number(change["high"]) < 0)
    p, value = number(change.get("p")), number(change["value"])
    if math.isnan(p):
        return None
    return int(math.copysign(1, value)) if p < SIGNIFICANT else 0
