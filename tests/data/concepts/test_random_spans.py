"""Runs of words drawn in place of phrases: as many, as long, from anywhere in the caption."""

from __future__ import annotations

import numpy as np

from hfcomp.data.concepts.spans import random_spans

CAPTION = "a red cube,  on the blue ball"
PHRASES = ["a red cube", "ball", "the very big blue ball of a dog"]


def test_spans_are_words_of_the_caption_as_many_as_the_phrases_have():
    for seed in range(50):
        texts = [CAPTION[start:end] for start, end in random_spans(CAPTION, PHRASES, np.random.default_rng(seed))]
        assert [len(text.split()) for text in texts] == [3, 1, 7]
        assert all(set(text.split()) <= set(CAPTION.split()) for text in texts) and texts[2] == CAPTION


def test_every_place_is_drawn_as_often():
    generator = np.random.default_rng(0)
    starts = [start for _ in range(1000) for start, _ in random_spans("a b c d", ["x y"], generator)]
    counts = [starts.count(place) for place in (0, 2, 4)]
    assert sum(counts) == 1000 and min(counts) > 280


def test_a_caption_without_phrases_has_no_spans():
    assert random_spans(CAPTION, [], np.random.default_rng(0)) == []
