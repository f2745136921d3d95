"""Edits of words."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.analysis.pairs.similarity import word_edit_distance, words_of


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("A dog runs.", "a dog runs", 0),
        ("A dog runs.", "A cat runs.", 1),
        ("a fire hydrant on a street", "a bench on a street", 2),
        ("a dog", "a big brown dog", 2),
        ("two dogs and a cat", "two cats and a dog", 2),
        ("", "a dog", 2),
        ("a a b", "a b", 1),
        ("Don't stop-sign, please!", "don't stop-sign please", 0),
        ("ein Hund läuft", "ein 狗 läuft", 1),
    ],
)
def test_distances(first, second, expected):
    words = words_of(first), words_of(second)
    assert word_edit_distance(*words) == word_edit_distance(*words[::-1]) == expected


def test_the_distance_is_that_of_the_whole_table():
    """Without the short cuts for a shared beginning and end."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        first, second = (list(generator.integers(0, 3, generator.integers(0, 8))) for _ in range(2))
        table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
        table[:, 0], table[0] = range(len(first) + 1), range(len(second) + 1)
        for row, word in enumerate(first, start=1):
            for column, other in enumerate(second, start=1):
                replaced = table[row - 1, column - 1] + (word != other)
                table[row, column] = min(replaced, table[row - 1, column] + 1, table[row, column - 1] + 1)
        assert word_edit_distance(first, second) == table[-1, -1]
