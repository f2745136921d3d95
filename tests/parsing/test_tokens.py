"""Which of several captions is the longest, in the tokens of the parser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from hfcomp.parsing import load_parser
from hfcomp.parsing.tokens import choose_texts, longest_text, pieces, token_count


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["a man in a hat", "a man, a hat, rain"], 1),  # five words each, commas count
        (["one two", "a b c", "d e f"], 1),
        (["the dog's black-and-white ball", "one two three four five"], 0),
        (["a dog . . .", "a dog in rain"], 0),
        (["a  dog   runs", "a dog is here"], 1),  # surplus white space does not count
        (["at 6:55", "at six now"], 1),
        ([""], 0),
    ],
)
def test_the_one_with_the_most_tokens_is_chosen_and_of_equal_ones_the_first(texts, chosen):
    assert longest_text(texts) == texts[chosen]


def test_the_unit_is_the_token_of_the_parser():
    captions = ["A man's dog-walking t-shirt, at 6:55 a.m...", "  two  giraffes\n", "W 122 St.", "x" * 950 + "!" * 40]
    for caption, doc in zip(captions, load_parser("rules").parse(captions), strict=True):
        assert token_count(caption) == sum(not token.is_space for token in doc)


def test_captions_with_a_problem_are_passed_over_unless_all_have_one():
    cut = "a \ud800 dog runs here"
    assert choose_texts([cut, "a dog", "x " * 3000], "longest") == (
        ["a dog"],
        [
            "caption is not valid Unicode: lone surrogate '\\ud800' at character 2",
            "caption too long: 3,000 words, at most 2,000",
        ],
    )
    assert choose_texts([cut, "x " * 3000], "longest") == ([cut], [])


@pytest.mark.parametrize("text", ["", "a dog", "," * 10_000, "a " + "x" * 450 + " b"])
def test_what_the_tokenizer_sees_is_short_and_loses_nothing(text):
    parts = list(pieces(text))
    assert "".join(parts) == text and all(len(word) <= 400 for part in parts for word in part.split())


def test_without_spacy_several_captions_say_what_to_install_and_one_needs_nothing():
    code = (
        "import sys; sys.modules['spacy'] = None\n"
        "from hfcomp.parsing.tokens import longest_text\n"
        "assert longest_text(['one']) == 'one'\n"
        "try: longest_text(['one', 'two words'])\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "requires spacy" in done.stdout and 'pip install "hfcomp[text]"' in done.stdout


def test_white_space_would_choose_another_caption_for_12_percent_of_coco():
    if "HFCOMP_REAL_DATA" not in os.environ:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with COCO's captions")
    file = Path(os.environ["HFCOMP_REAL_DATA"], "coco", "captions_val2017.json")
    captions = defaultdict(list)
    for annotation in json.loads(file.read_text(encoding="utf-8"))["annotations"]:
        captions[annotation["image_id"]].append(annotation["caption"])
    other = sum(longest_text(texts) != max(texts, key=lambda text: len(text.split())) for texts in captions.values())
    assert (other, len(captions)) == (604, 5000)
