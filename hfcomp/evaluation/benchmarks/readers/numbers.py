"""Captions that count, with another number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset

WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}

NO_NUMBER = "caption without its number"


def other_numbers(text: str, number: int) -> list[str]:
    """A caption with each other number from two to ten in place of its own.

    The first mention as a word is replaced, else the first in digits, by one in the same form: digits, lower case,
    capitalised or capitals.

    Args:
        text: the caption.
        number: that it counts, 2 to 10.

    Returns:
        Eight captions in the order of their numbers; none for a caption that does not mention its number.

    Raises:
        ValueError: for a number outside 2 to 10.
    """
    if number not in WORDS:
        raise ValueError(f"number: found {number!r} for the caption {text[:60]!r}, expected 2 to 10.")
    found = re.search(rf"\b{WORDS[number]}\b", text, re.IGNORECASE) or re.search(rf"\b{number}\b", text)
    if found is None:
        return []
    return [
        text[: found.start()] + _written(other, found[0]) + text[found.end() :] for other in WORDS if other != number
    ]


def _written(number: int, like: str) -> str:
    if like.isdigit():
        return str(number)
    if like.isupper():
        return WORDS[number].upper()
    return WORDS[number].capitalize() if like[0].isupper() else WORDS[number]


def with_other_numbers(rows: Dataset) -> Dataset:
    """Rows with eight captions that count otherwise; the subset is the number."""
    found = [other_numbers(text or "", number) for text, number in zip(rows["caption"], rows["subset"], strict=True)]
    reasons = ["" if texts or not text else NO_NUMBER for texts, text in zip(found, rows["caption"], strict=True)]
    rows = rows.add_column("left_out", reasons)
    return rows.add_column("negative_captions", found)
