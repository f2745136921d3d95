"""Filters for negative captions: invalid by their text, or by the scores of a model under evaluation.

`hfcomp.generation.text_negatives` applies them, makes up for what they drop and counts it by reason.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter

import numpy as np

SAME_SENTENCE, DUPLICATE, SAME_WORDS = "same_sentence", "duplicate", "same_words"
FALSE_NEGATIVE, GRAMMAR = "false_negative", "grammar"

_PUNCTUATION = string.punctuation + "“”‘’„«»…–—"
# Stripped rather than matched: a pattern for the end is tried at each dot of a row of dots in the middle.
_FINAL = " .,;:!?…"
_AN = re.compile(r"\ban\b")


def is_same_sentence(caption: str, text: str) -> bool:
    """Whether two texts differ at most in case, spaces, closing punctuation, "a" for "an", or Unicode composition."""
    return folded_sentence(caption) == folded_sentence(text)


def has_same_words(caption: str, text: str) -> bool:
    """Whether two texts hold the same words equally often, in any order; case and outer punctuation play no part.

    A flag rather than a fault: swaps have the same words on purpose, and only a model that knows the order of words
    can distinguish them.
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


def folded_sentence(text: str) -> str:
    """A text without what makes no other sentence of it; see `is_same_sentence`."""
    folded = " ".join(unicodedata.normalize("NFC", text).casefold().split())
    return _AN.sub("a", folded.rstrip(_FINAL))


def _words(text: str) -> Counter[str]:
    words = (word.strip(_PUNCTUATION) for word in folded_sentence(text).split())
    return Counter(word for word in words if word)
