"""Word-level differences between two texts, for showing a negative next to its caption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple


class WordRun(NamedTuple):
    """Consecutive words with the same kind of change.

    Attributes:
        kind: Whether the words are in both texts, only in the first or only in the second.
        text: The words. Words in both texts are written as in the second.
    """

    kind: Literal["same", "removed", "added"]
    text: str


def word_changes(before: str, after: str) -> list[WordRun]:
    """Returns the runs of words that turn one text into another, in order.

    Case and punctuation are ignored in the comparison.
    """
    words, others = before.split(), after.split()
    runs: list[WordRun] = []
    for tag, start, end, other, other_end in _matcher(words, others).get_opcodes():
        if tag != "equal" and end > start:
            runs.append(WordRun("removed", " ".join(words[start:end])))
        if other_end > other:
            runs.append(WordRun("same" if tag == "equal" else "added", " ".join(others[other:other_end])))
    return runs


def changed_words(text: str, other: str) -> frozenset[int]:
    """Returns the indices of a text's words that the other text lacks at that position."""
    words = text.split()
    blocks = _matcher(words, other.split()).get_matching_blocks()
    kept = {number for block in blocks for number in range(block.a, block.a + block.size)}
    return frozenset(range(len(words))) - kept


def _matcher(words: Sequence[str], others: Sequence[str]) -> SequenceMatcher[str]:
    # With autojunk, frequent words of a long caption, such as "a", would be treated as noise and reported as changed.
    return SequenceMatcher(None, list(map(_fold, words)), list(map(_fold, others)), autojunk=False)


def _fold(word: str) -> str:
    # Otherwise, the first and last words of a text that starts or ends elsewhere would count as changed too.
    return re.sub(r"\W", "", word.casefold()) or word
