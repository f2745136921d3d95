"""The bigram model against plain loops, and what it counts."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from hfcomp.evaluation.blind.rules import WEIGHT, CountedCaptions, words_of_text

CAPTIONS = ["A dog runs.", "a dog sits on the grass", "The cat sits, a dog runs", "grass"]
TEXTS = ["a dog sits", "dog a sits", "A zebra sits.", "", "the the the grass"]


def plain_loop(captions: list[str], text: str) -> float:
    """The log probability of a text, by dictionaries."""
    rows = [["<s>", *words_of_text(caption), "</s>"] for caption in captions]
    words = Counter(word for row in rows for word in row[1:])
    contexts = Counter(word for row in rows for word in row[:-1])
    pairs = Counter(pair for row in rows for pair in zip(row, row[1:], strict=False))
    total, kinds, log_probability = sum(words.values()), len(words) + 1, 0.0
    row = ["<s>", *words_of_text(text), "</s>"]
    for before, after in zip(row, row[1:], strict=False):
        alone = (words[after] + 1) / (total + kinds)
        both = WEIGHT * pairs[before, after] / contexts[before] + (1 - WEIGHT) * alone if contexts[before] else alone
        log_probability += math.log(both)
    return log_probability


@pytest.mark.parametrize("kept", [[True] * 4, [True, False, True, False]])
def test_scores_equal_a_plain_loop_over_the_captions_that_are_kept(kept):
    scores = CountedCaptions(CAPTIONS).model(np.array(kept)).scores(TEXTS)
    chosen = [caption for caption, own in zip(CAPTIONS, kept, strict=True) if own]
    expected = np.array([plain_loop(chosen, text) for text in TEXTS])
    lengths = np.array([len(words_of_text(text)) + 1 for text in TEXTS])
    np.testing.assert_allclose(scores.sentence, expected, atol=1e-8)
    np.testing.assert_allclose(scores.per_word, expected / lengths, atol=1e-8)


def test_probabilities_of_all_words_after_a_word_add_up_to_one():
    model = CountedCaptions(CAPTIONS).model(np.ones(4, dtype=bool))
    known = sorted({word for caption in CAPTIONS for word in words_of_text(caption)})
    # each text is the start, a word and the end: subtract the second pair, which is scored on its own
    after_start = [math.exp(plain_loop(CAPTIONS, word)) for word in known]
    assert np.allclose([math.exp(value) for value in model.scores(known).sentence], after_start)
    number = model._number
    before = np.full(len(number) + 1, number["dog"])
    total = model._probability(before, np.arange(len(number) + 1)).sum()
    start = model._probability(before[:1], np.array([number["<start>"]])).sum()  # never follows a word
    assert total - start == pytest.approx(1)


def test_equal_words_tie_and_no_text_is_no_error():
    model = CountedCaptions(CAPTIONS).model(np.ones(4, dtype=bool))
    first, second = model.scores(["A dog runs.", "a dog, RUNS"]).sentence
    assert first == second
    assert not len(model.scores([]).sentence)
