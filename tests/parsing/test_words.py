"""Which of several captions is the longest."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from hfcomp.parsing.words import longest_text


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["a man in a hat", "a man, a hat, rain"], 1),  # five words each, commas count
        (["one two", "a b c", "d e f"], 1),
        (["the dog's black-and-white ball", "one two three four five"], 0),
        (["a dog . . .", "a dog in rain"], 0),
        (["wait...", "a dog"], 0),
        ([""], 0),
    ],
)
def test_the_one_with_the_most_tokens_is_chosen_and_of_equal_ones_the_first(texts, chosen):
    assert longest_text(texts) == texts[chosen]


def test_it_is_spacys_choice_for_nearly_all_images_of_coco():
    if "HFCOMP_REAL_DATA" not in os.environ:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with COCO's captions")
    spacy = pytest.importorskip("spacy")
    tokenizer = spacy.blank("en").tokenizer
    file = Path(os.environ["HFCOMP_REAL_DATA"], "coco", "captions_val2017.json")
    captions = defaultdict(list)
    for one in json.loads(file.read_text(encoding="utf-8"))["annotations"]:
        captions[one["image_id"]].append(one["caption"])

    def by_spacy(texts):
        return max(texts, key=lambda text: sum(not token.is_space for token in tokenizer(text)))

    equal = sum(longest_text(texts) == by_spacy(texts) for texts in captions.values())
    assert (equal, len(captions)) == (4981, 5000)
