"""CountBench (Paiss et al. 2023): a caption that counts two to ten things, and the same with the other numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}

NO_NUMBER = "caption without its number"


def other_numbers(text: str, number: int) -> list[str]:
    """Replaces the number in a caption with each other number from two to ten.

    The first mention as a word is replaced, or else the first in digits, in the same form: digits, lower case,
    capitalized or capitals.

    Returns:
        Eight captions in the order of their numbers; none if the caption does not mention its number.

    Raises:
        ValueError: If the number is outside 2 to 10.
    """
    if number not in WORDS:
        raise ValueError(f"number: found {number!r} for the caption {text[:60]!r}, expected 2 to 10.")
    match = re.search(rf"\b{WORDS[number]}\b", text, re.IGNORECASE) or re.search(rf"\b{number}\b", text)
    if match is None:
        return []
    return [
        text[: match.start()] + _spell(other, match[0]) + text[match.end() :] for other in WORDS if other != number
    ]


def _spell(number: int, like: str) -> str:
    if like.isdigit():
        return str(number)
    if like.isupper():
        return WORDS[number].upper()
    return WORDS[number].capitalize() if like[0].isupper() else WORDS[number]


def with_other_numbers(rows: Dataset) -> Dataset:
    """Adds eight captions with other numbers to each row; the subset is the number."""
    negatives = [
        other_numbers(text or "", number) for text, number in zip(rows["caption"], rows["subset"], strict=True)
    ]
    # `validate` adds the reason for a row without a caption.
    reasons = ["" if texts or not text else NO_NUMBER for texts, text in zip(negatives, rows["caption"], strict=True)]
    rows = rows.add_column("left_out", reasons)
    return rows.add_column("negative_captions", negatives)


REPO = "nielsr/countbench"

COUNTBENCH = Benchmark(
    name="countbench",
    title="CountBench",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(
        HubData(
            REPO,
            {"image": "image", "caption": "text", "subset": "number"},
            {"all": {"split": "train"}},  # the only one; it is a test set
            reshape=with_other_numbers,
        ),
    ),
    averages=(Average("all items", pooled=True),),
    paper="Paiss et al. 2023, arXiv:2302.12066",
    license="not stated; images of LAION-400M, each its own",
    obtain=f"Downloaded automatically from the Hub ({REPO}, 23 MB).",
)
