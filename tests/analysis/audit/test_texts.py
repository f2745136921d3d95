"""Duplicates and near-duplicates of captions, against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hfcomp.analysis.audit.texts import duplicate_texts, near_duplicate_texts
from hfcomp.analysis.pairs.similarity import word_edit_distance
from hfcomp.evaluation.blind.bigrams import words_of_text


def table(texts: list[str], images: list[str] | None = None) -> pd.DataFrame:
    names = images or [str(place) for place in range(len(texts))]
    return pd.DataFrame({"row": range(len(texts)), "image_id": names, "text": texts})


def test_equal_captions_of_different_images_are_duplicates():
    texts = table(["A dog.", "a dog", "a cat", "a cat", "a bird"], ["1", "2", "3", "3", "4"])
    check = duplicate_texts(texts, 5)
    assert check.value == 40 and check.facts == {"captions": 2}
    assert [(one.text, one.other, one.note) for one in check.examples] == [("A dog.", "a dog", "rows 0 and 1")]


def test_near_duplicates_are_those_within_one_word():
    generator = np.random.default_rng(0)
    words = np.array(["a", "dog", "cat", "on", "red", "grass"])
    texts = [" ".join(words[generator.integers(6, size=generator.integers(2, 6))]) for _ in range(150)]
    images = [str(number) for number in generator.integers(60, size=150)]
    check = near_duplicate_texts(table(texts, images), 150)
    expected = [
        any(
            images[one] != images[other]
            and word_edit_distance(words_of_text(texts[one]), words_of_text(texts[other])) == 1
            for other in range(150)
        )
        for one in range(150)
    ]
    assert 0 < sum(expected) < 150
    assert check.facts == {"captions": sum(expected)}
    assert all(word_edit_distance(one.text.split(), one.other.split()) == 1 for one in check.examples)


def test_many_equal_captions_take_no_longer_than_few():
    texts = ["a dog on the grass"] * 20_000 + ["a cat on the grass"]
    assert near_duplicate_texts(table(texts)).facts == {"captions": 20_001}
