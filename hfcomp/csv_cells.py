"""Texts in CSV files that spreadsheets open: none of them is run as a formula (OWASP, CSV injection)."""

from __future__ import annotations

import re
from typing import Any

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def safe_cell(value: Any) -> Any:
    """A value of a CSV file: an apostrophe stands before a text that begins like a formula, which is not a number.

    A text that begins with apostrophes and goes on like a formula gets one more, so that taking one away from every
    such text gives the originals.
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def plain_cell(text: str) -> str:
    """A text without the apostrophes that it may have before what begins like a formula, to compare texts by."""
    return text.lstrip("'") if text[:1] == "'" and _FORMULA.match(text) else text
