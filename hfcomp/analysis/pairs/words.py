"""How the words of a negative differ from those of its caption."""

from __future__ import annotations

from collections.abc import Sequence

_OUTER = ".,;:!?\"'()[]"


def words_of(text: str) -> list[str]:
    """Words for comparing: split at blanks, lower-cased, without punctuation around them.

    Our choice: the paper does not say how it counts. A generator that drops the full stop has changed no word.
    """
    return [word for word in (part.strip(_OUTER) for part in text.lower().split()) if word]


def word_edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements of words from one text to the other (Levenshtein)."""
    start, ends = 0, [len(first), len(second)]
    while start < min(ends) and first[start] == second[start]:
        start += 1
    while min(ends) > start and first[ends[0] - 1] == second[ends[1] - 1]:
        ends = [end - 1 for end in ends]
    first, second = first[start : ends[0]], second[start : ends[1]]
    row = list(range(len(second) + 1))
    for place, word in enumerate(first, start=1):
        diagonal, row[0] = row[0], place
        for column, other in enumerate(second, start=1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (word != other))
    return row[-1]
