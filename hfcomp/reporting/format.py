"""Formats numbers as text (values, differences, intervals, p; `-` for unknown) and writes out control characters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hfcomp.metrics.units import PERCENT, Unit

Estimate = Mapping[str, Any]
"""A number: `value`, and if known `low`, `high`, `p`, `q`, `p_holm`, `smallest`, `lowest` and `highest`."""
UNKNOWN = "-"
SIGNIFICANT = 0.05
"""Largest p of a significant difference that has no interval (exclusive)."""
# Control characters except for tab and line feed, such as terminal escape sequences, and characters that change the
# direction of the following text (the embeddings, overrides and isolates of Unicode's UAX 9).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Writes out the control characters of a text from data or a model, for example as `\x1b` or `\u202e`."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def number(value: float | None) -> float:
    """Converts a value to float; null in a file becomes NaN."""
    return math.nan if value is None else float(value)


def count_text(count: int, noun: str) -> str:
    """Formats a count with its noun, such as `1 row` or `1,165 rows`; the plural must end in -s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def decimal(value: float | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """Formats 0.94 in percent as `94.0`; with `sign="+"`, for differences, as `+94.0`."""
    known = number(value)
    if math.isnan(known):
        return UNKNOWN
    # Adding 0.0 turns -0.0, the result of rounding a small negative number, into 0.0.
    return f"{round(unit.factor * known, unit.decimals) + 0.0:{sign}.{unit.decimals}f}"


def has_interval(estimate: Estimate | None) -> bool:
    return estimate is not None and not any(math.isnan(number(estimate.get(bound))) for bound in ("low", "high"))


def interval(estimate: Estimate | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """Formats an interval as `[92.1, 95.9]`."""
    if estimate is None or not has_interval(estimate):
        return UNKNOWN
    return f"[{decimal(estimate['low'], unit, sign)}, {decimal(estimate['high'], unit, sign)}]"


def with_interval(estimate: Estimate | None, unit: Unit = PERCENT, sign: str = "") -> str:
    """Formats a value as `94.0 [92.1, 95.9]`, or over seeds `94.0 (93.0 to 95.2)`, without unknown parts."""
    known = estimate or {}
    text = decimal(known.get("value"), unit, sign)
    if "lowest" in known:
        return f"{text} ({decimal(known['lowest'], unit, sign)} to {decimal(known['highest'], unit, sign)})"
    return f"{text} {interval(known, unit, sign)}" if has_interval(known) else text


def p_value(p: float | None) -> str:
    """Formats a p-value as `0.012` or `<0.001`."""
    known = number(p)
    return UNKNOWN if math.isnan(known) else "<0.001" if known < 0.001 else f"{known:.3f}"


def direction(change: Estimate | None) -> int | None:
    """Returns 1 or -1 for a significant difference, 0 for one that is not significant, `None` if unknown.

    A difference is significant if its interval excludes 0 or, without an interval, if its p is below 0.05.
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
