"""Blind rules: scores by which a rule chooses among captions without seeing the image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WEIGHT = 0.7
"""Weight of the bigram frequency; the word's own frequency has the remaining weight (Jelinek-Mercer smoothing).

Our choice, not fitted to any benchmark.
"""
DECIMALS = 9  # scores are rounded, so texts with the same words tie whatever the order of summation
_WORD = re.compile(r"\w+")
_START, _END = 0, 1


def words_of_text(text: str) -> list[str]:
    """Splits a text into lower-cased words of letters and digits. Punctuation is ignored; another rule uses it."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True)
class BigramScores:
    """Scores of texts.

    Attributes:
        sentence: `[n]`, natural logarithm of the probability of the whole text, including its end.
        per_word: `[n]`, the same divided by the number of words and the end.
    """

    sentence: NDArray[np.float64]
    per_word: NDArray[np.float64]


class CountedCaptions:
    """Captions as word numbers, from which models can be built for different subsets of the captions."""

    def __init__(self, captions: Iterable[str]) -> None:
        self._number: dict[str, int] = {"<start>": _START, "<end>": _END}
        words = map(words_of_text, captions)
        rows = [[self._number.setdefault(word, len(self._number)) for word in caption] for caption in words]
        self._before, self._after, lengths = _word_pairs(rows)
        self._caption = np.repeat(np.arange(len(rows)), lengths)

    def model(self, kept: NDArray[np.bool_]) -> BigramModel:
        # Pairs of words were numbered once; a model of some of the captions only selects their pairs.
        selected = kept[self._caption]
        return BigramModel(self._number, self._before[selected], self._after[selected])


class BigramModel:
    """`P(word | word before) = WEIGHT * bigram frequency + (1 - WEIGHT) * P(word)`.

    `P(word)` is estimated with one added to every count. All unknown words share one probability; after such a word,
    only `P(word)` counts (Jelinek and Mercer 1980, with a fixed weight).

    Args:
        number: Number of each word.
        before: `[m]`, first word of each pair in the captions, or the start.
        after: `[m]`, second word, or the end.
    """

    def __init__(self, number: dict[str, int], before: NDArray[np.int64], after: NDArray[np.int64]) -> None:
        self._number = number
        self._size = size = len(number) + 1  # the last number stands for all unknown words
        self._of_word = np.bincount(after, minlength=size)
        self._of_context = np.bincount(before, minlength=size)
        self._pairs, self._of_pair = np.unique(before * size + after, return_counts=True)
        # Plus one for all unknown words together, so the probabilities add up to 1.
        self._kinds = int((self._of_word > 0).sum()) + 1

    def scores(self, texts: Sequence[str]) -> BigramScores:
        """Scores each text; a text without words consists only of its end."""
        unknown = self._size - 1
        rows = [[self._number.get(word, unknown) for word in words_of_text(text)] for text in texts]
        before, after, lengths = _word_pairs(rows)
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
        # searchsorted returns where a pair would be inserted. The pair occurred only if the key there is equal.
        count = np.zeros(len(key))
        if len(self._pairs):
            count = np.where(self._pairs[place] == key, self._of_pair[place], 0)
        context = self._of_context[before]
        return np.where(context > 0, WEIGHT * count / np.maximum(context, 1) + (1 - WEIGHT) * word, word)


def _word_pairs(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns each word with the one before it, `[m]` and `[m]`, and the number of pairs in each row, `[n]`."""
    lengths = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    before = np.fromiter((word for row in rows for word in (_START, *row)), dtype=np.int64, count=lengths.sum())
    after = np.fromiter((word for row in rows for word in (*row, _END)), dtype=np.int64, count=lengths.sum())
    return before, after, lengths


Scores = NDArray[np.float64]
CONSTANT, SHORTER, FULL_STOP = "constant", "shorter", "full stop"
BIGRAM, BIGRAM_SENTENCE, PRIOR = "bigram per word", "bigram sentence", "prior"
BIGRAMS = (BIGRAM, BIGRAM_SENTENCE)

RULES = {
    CONSTANT: "no text: all texts have the same score, so the accuracy is 0 if a tie counts as wrong",
    SHORTER: "the text with fewer characters",
    FULL_STOP: "the text that does not end in a full stop",
    BIGRAM: "the text with the higher mean log probability per word in a bigram model of other captions",
    BIGRAM_SENTENCE: "the text with the higher log probability as a whole in the same model",
    PRIOR: "the text whose embedding is closer to the mean image vector of the benchmark, per model",
}
"""Blind rules by name, with the text that they choose. Stored results contain these sentences."""


TEXT_RULES: dict[str, Callable[[Sequence[str]], Scores]] = {
    CONSTANT: lambda texts: np.zeros(len(texts)),
    SHORTER: lambda texts: -np.array([len(text) for text in texts], dtype=np.float64),
    FULL_STOP: lambda texts: np.array([not text.rstrip().endswith(".") for text in texts], dtype=np.float64),
}
"""Rules that need only the texts; the text with the higher score is chosen."""


def text_scores(texts: Sequence[str], bigrams: BigramModel | None = None) -> dict[str, Scores]:
    """Scores texts by every rule that needs only texts, `[n]` each; by the bigram rules only if a model is given."""
    by_rule = {name: rule(texts) for name, rule in TEXT_RULES.items()}
    if bigrams is not None:
        scores = bigrams.scores(texts)
        by_rule |= {BIGRAM: scores.per_word, BIGRAM_SENTENCE: scores.sentence}
    return by_rule
