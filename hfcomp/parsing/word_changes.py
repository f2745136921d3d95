"""The words in which two texts differ, for showing a negative caption beside its caption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple


class WordRun(NamedTuple):
    """Words that follow one another.

    Attributes:
        kind: Whether both texts have the words, only the first one or only the second.
        text: The words; if both texts have them, as in the second.
    """

    kind: Literal["same", "removed", "added"]
    text: str


def word_changes(before: str, after: str) -> list[WordRun]:
    """The runs of words that lead from a text to another one, in order.

    Words are compared without their capitals and punctuation.
    """
    words, others = before.split(), after.split()
    found: list[WordRun] = []
    for tag, start, end, other, other_end in _matcher(words, others).get_opcodes():
        if tag != "equal" and end > start:
            found.append(WordRun("removed", " ".join(words[start:end])))
        if other_end > other:
            found.append(WordRun("same" if tag == "equal" else "added", " ".join(others[other:other_end])))
    return found


def changed_words(text: str, other: str) -> frozenset[int]:
    """Indices of a text's words that are missing from the other text in that place."""
    words = text.split()
    blocks = _matcher(words, other.split()).get_matching_blocks()
    kept = {number for block in blocks for number in range(block.a, block.a + block.size)}
    return frozenset(range(len(words))) - kept


def _matcher(words: Sequence[str], others: Sequence[str]) -> SequenceMatcher[str]:
    # autojunk would take a word that is frequent in a long caption, such as "a", for noise and call it changed.
    return SequenceMatcher(None, list(map(_folded, words)), list(map(_folded, others)), autojunk=False)


def _folded(word: str) -> str:
    # Otherwise a text that begins or ends elsewhere would have changed the words at its ends too.
    return re.sub(r"\W", "", word.casefold()) or word
