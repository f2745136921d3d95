"""Blind rules: scores of texts alone, by which a choice among captions is made without the image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WEIGHT = 0.7
"""Of the bigram's frequency; the rest is the word's own (Jelinek-Mercer). Our choice, not fitted to any benchmark."""
DECIMALS = 9  # of scores: texts of equal words tie whatever the order of sums
_WORD = re.compile(r"\w+")
_START, _END = 0, 1


def words_of_text(text: str) -> list[str]:
    """Words for counting: lower-cased runs of letters and digits; punctuation is left to other rules."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class BigramScores:
    """Scores of texts.

    Attributes:
        sentence: `[n]`, natural logarithm of the probability of the whole text, its end included.
        per_word: `[n]`, the same divided by the number of words and the end.
    """

    sentence: NDArray[np.float64]
    per_word: NDArray[np.float64]


class CountedCaptions:
    """Captions as numbers of words, so that several models can be made of parts of them."""

    def __init__(self, captions: Iterable[str]) -> None:
        self._number: dict[str, int] = {"<start>": _START, "<end>": _END}
        rows = [[self._number.setdefault(word, len(self._number)) for word in words_of_text(one)] for one in captions]
        self._before, self._after, lengths = _pairs(rows)
        self._caption = np.repeat(np.arange(len(rows)), lengths)

    def model(self, kept: NDArray[np.bool_]) -> BigramModel:
        # Pairs of words were numbered once. A model of a part of the captions only selects among them.
        own = kept[self._caption]
        return BigramModel(self._number, self._before[own], self._after[own])


class BigramModel:
    """`P(word | word before) = 0.7 bigram frequency + 0.3 P(word)`, and `P(word)` with one added to every count.

    All words that were not counted share one probability; after such a word, `P(word)` alone counts (Jelinek and
    Mercer 1980, with a fixed weight).

    Args:
        number: word to its number.
        before: `[m]`, of each pair of words in the captions the first, or the start.
        after: `[m]`, the second, or the end.
    """

    def __init__(self, number: dict[str, int], before: NDArray[np.int64], after: NDArray[np.int64]) -> None:
        self._number = number
        self._size = size = len(number) + 1  # the last one is a word that is not known
        self._of_word = np.bincount(after, minlength=size)
        self._of_context = np.bincount(before, minlength=size)
        self._pairs, self._of_pair = np.unique(before * size + after, return_counts=True)
        # One more for all unknown words together, so the probabilities add up to 1.
        self._kinds = int((self._of_word > 0).sum()) + 1

    def scores(self, texts: Sequence[str]) -> BigramScores:
        """Of each text; one without words is its end alone."""
        unknown = self._size - 1
        rows = [[self._number.get(word, unknown) for word in words_of_text(text)] for text in texts]
        before, after, lengths = _pairs(rows)
        # `reduceat` needs at least one row.
        if not len(lengths):
            return BigramScores(np.zeros(0), np.zeros(0))
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        sentence = np.add.reduceat(np.log(self._probability(before, after)), starts)
        return BigramScores(sentence.round(DECIMALS), (sentence / lengths).round(DECIMALS))

    def _probability(self, before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.float64]:
        word = (self._of_word[after] + 1) / (self._of_word.sum() + self._kinds)
        # A pair of words is one number, so the counts of all pairs are one sorted array.
        key = before * self._size + after
        place = np.minimum(np.searchsorted(self._pairs, key), max(0, len(self._pairs) - 1))
        # searchsorted returns where a pair would be. It was counted only if the key at that place is equal.
        count = np.zeros(len(key))
        if len(self._pairs):
            count = np.where(self._pairs[place] == key, self._of_pair[place], 0)
        context = self._of_context[before]
        return np.where(context > 0, WEIGHT * count / np.maximum(context, 1) + (1 - WEIGHT) * word, word)


def _pairs(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """`[m]` and `[m]`, each word with the one before it, and `[n]`, how many pairs are of each row."""
    lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    before = np.fromiter((word for row in rows for word in (_START, *row)), dtype=np.int64, count=lengths.sum())
    after = np.fromiter((word for row in rows for word in (*row, _END)), dtype=np.int64, count=lengths.sum())
    return before, after, lengths


Scores = NDArray[np.float64]
CONSTANT, SHORTER, FULL_STOP = "constant", "shorter", "full stop"
BIGRAM, BIGRAM_SENTENCE, PRIOR = "bigram per word", "bigram sentence", "prior"
BIGRAMS = (BIGRAM, BIGRAM_SENTENCE)

RULES = {
    CONSTANT: "scores every text alike: 0 wherever ties are wrong",
    SHORTER: "the text with fewer characters",
    FULL_STOP: "the text that does not end in a full stop",
    BIGRAM: "the text with the higher mean log probability per word in a bigram model of other captions",
    BIGRAM_SENTENCE: "the text with the higher log probability as a whole in the same model",
    PRIOR: "the text whose embedding is closer to the mean image vector of the benchmark, per model",
}
"""Blind rules by name, with what they choose."""


TEXT_RULES: dict[str, Callable[[Sequence[str]], Scores]] = {
    CONSTANT: lambda texts: np.zeros(len(texts)),
    SHORTER: lambda texts: -np.array([len(text) for text in texts], dtype=np.float64),
    FULL_STOP: lambda texts: np.array([not text.rstrip().endswith(".") for text in texts], dtype=np.float64),
}
"""The rules that need nothing but the texts: the higher score is chosen."""


def text_scores(texts: Sequence[str], bigrams: BigramModel | None = None) -> dict[str, Scores]:
    """The scores of texts by every rule, `[n]` each; those of bigrams only where there is a model."""
    found = {name: rule(texts) for name, rule in TEXT_RULES.items()}
    if bigrams is not None:
        scores = bigrams.scores(texts)
        found |= {BIGRAM: scores.per_word, BIGRAM_SENTENCE: scores.sentence}
    return found
