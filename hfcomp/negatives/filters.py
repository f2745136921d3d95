"""Filters for negative captions, and the one function that applies them and counts what each takes away.

Nothing here decides alone: `drop_negatives` takes out what is no negative by its text (the same sentence, a second
copy), and the rest only where asked.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hfcomp.negatives.grammar import GrammarFilter
    from hfcomp.negatives.negative import Negative

SAME_SENTENCE, DUPLICATE, SAME_WORDS = "same_sentence", "duplicate", "same_words"
FALSE_NEGATIVE, GRAMMAR = "false_negative", "grammar"
# In the order in which they are tried: a negative is counted under the first one only.
REASONS = (SAME_SENTENCE, DUPLICATE, SAME_WORDS, FALSE_NEGATIVE, GRAMMAR)

_PUNCTUATION = string.punctuation + "“”‘’„«»…–—"
_FINAL = re.compile(r"[\s.,;:!?…]+\Z")
_AN = re.compile(r"\ban\b")


def is_same_sentence(caption: str, text: str) -> bool:
    """Whether two texts differ at most in case, spaces, closing punctuation, "a" for "an", or Unicode composition."""
    return _sentence(caption) == _sentence(text)


def has_same_words(caption: str, text: str) -> bool:
    """Whether two texts hold the same words equally often, in any order; case and outer punctuation play no part.

    A flag rather than a fault: swaps have the same words on purpose, and only a model that knows the order of words
    can tell them apart.
    """
    return _words(caption) == _words(text)


def is_false_negative(true_score: np.ndarray, negative_score: np.ndarray, *, margin: float) -> np.ndarray:
    """Whether a negative caption fits its image too well to be false, to the model under evaluation.

    A score at least `margin` above that of the true caption makes it probable that the negative is true as well (a
    synonym, another object of the scene). Or that the model reads captions as bags of words: then this throws out the
    hardest negatives, the ones it is trained for. So it is off unless scores are given.

    Args:
        true_score: Cosine of each image with its true caption, any shape.
        negative_score: Cosine with the negative, of a shape that broadcasts with it.
        margin: Cosine by which the negative must lead; 0 flags ties too, below 0 near misses.

    Returns:
        Flags of the shape of both.

    Raises:
        ValueError: A score is NaN.
    """
    if np.isnan(true_score).any() or np.isnan(negative_score).any():
        raise ValueError("a score is NaN; expected the cosine of every image with both of its captions.")
    return np.asarray(np.subtract(negative_score, true_score) >= margin)


def drop_negatives(
    captions: Sequence[str],
    negatives: Sequence[Sequence[Negative]],
    *,
    drop_same_words: bool = False,
    false_negatives: Sequence[Sequence[bool]] | None = None,
    grammar: GrammarFilter | None = None,
) -> tuple[list[list[Negative]], Counter[str]]:
    """Takes out the negatives that fail a filter; the others keep their order.

    Always out are texts that are the caption's own sentence, and those that repeat an earlier negative of the row. A
    row's negatives are judged one by one, from the first, so fewer negatives stay the first of more.

    Args:
        captions: The caption of each row.
        negatives: The negatives of each row.
        drop_same_words: Drop negatives with the words of the caption in another order.
        false_negatives: A flag per negative, as `is_false_negative` gives; flagged ones are dropped.
        grammar: Drop negatives that it finds broken.

    Returns:
        The negatives kept, row by row, and how many were dropped by each of `REASONS` (0 included).

    Raises:
        ValueError: The rows of the arguments do not align.
    """
    _check_rows(captions, negatives, false_negatives)
    drops = Counter(dict.fromkeys(REASONS, 0))
    kept: list[list[Negative]] = []
    for row, (caption, candidates) in enumerate(zip(captions, negatives, strict=True)):
        flags = false_negatives[row] if false_negatives is not None else [False] * len(candidates)
        seen = {_sentence(caption)}
        good: list[Negative] = []
        for negative, is_false in zip(candidates, flags, strict=True):
            reason = _objection(caption, negative.text, seen, drop_same_words)
            reason = reason or (FALSE_NEGATIVE if is_false else "")
            seen.add(_sentence(negative.text))
            if reason:
                drops[reason] += 1
            else:
                good.append(negative)
        kept.append(good)
    if grammar is not None:
        kept, drops[GRAMMAR] = _unbroken(captions, kept, grammar)
    return kept, drops


def _objection(caption: str, text: str, seen: set[str], drop_same_words: bool) -> str:
    if is_same_sentence(caption, text):
        return SAME_SENTENCE
    if _sentence(text) in seen:
        return DUPLICATE
    return SAME_WORDS if drop_same_words and has_same_words(caption, text) else ""


def _unbroken(
    captions: Sequence[str], negatives: Sequence[Sequence[Negative]], grammar: GrammarFilter
) -> tuple[list[list[Negative]], int]:
    """Judges all rows in one go, for the sake of full batches."""
    rows = [row for row, some in enumerate(negatives) for _ in some]
    flat = [negative for some in negatives for negative in some]
    broken = grammar.breaks([captions[row] for row in rows], [negative.text for negative in flat])
    kept: list[list[Negative]] = [[] for _ in negatives]
    for row, negative, is_broken in zip(rows, flat, broken, strict=True):
        if not is_broken:
            kept[row].append(negative)
    return kept, sum(broken)


def _check_rows(
    captions: Sequence[str],
    negatives: Sequence[Sequence[Negative]],
    false_negatives: Sequence[Sequence[bool]] | None,
) -> None:
    if len(captions) != len(negatives):
        raise ValueError(f"{len(negatives)} rows of negatives for {len(captions)} captions; expected one for each.")
    if false_negatives is None:
        return
    if len(false_negatives) != len(negatives):
        raise ValueError(f"{len(false_negatives)} rows of flags for {len(negatives)} of negatives; expected as many.")
    for row, (flags, some) in enumerate(zip(false_negatives, negatives, strict=True)):
        if len(flags) != len(some):
            raise ValueError(f"row {row} has {len(flags)} flags for {len(some)} negatives; expected one for each.")


def _sentence(text: str) -> str:
    folded = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return _AN.sub("a", _FINAL.sub("", folded))


def _words(text: str) -> Counter[str]:
    words = (word.strip(_PUNCTUATION) for word in _sentence(text).split())
    return Counter(word for word in words if word)
