"""Captions of any length and content: time in proportion to the length, limits that are said, and no other errors."""

import gc
import random
import time

import pytest

from hfcomp.data.concepts.columns import concept_columns, noun_phrase_extractor
from hfcomp.negatives.filters import has_same_words, is_same_sentence
from hfcomp.negatives.keywords import (
    EXTENDED,
    all_keyword_permutations,
    find_keywords,
    keyword_negatives,
    negative_columns,
)
from hfcomp.negatives.mask_filling import PARTS, maskable_tokens
from hfcomp.negatives.rewordings import RULES, hard_positives
from hfcomp.negatives.surface import rewrite
from hfcomp.negatives.swaps import SWAPS, swap_negatives
from hfcomp.parsing import load_parser
from hfcomp.parsing.captions import MAX_CHARACTERS, MAX_RUN, MAX_WORDS, TOO_LONG, caption_problem
from hfcomp.parsing.noun_phrases import noun_phrases, sift_noun_phrases

SENTENCE = ["a", "red", "dog", "sitting", "on", "a", "wooden", "bench", "next", "to", "a", "small", "cat", "."]
FORMS = {
    "sentences": lambda n: " ".join(SENTENCE[i % len(SENTENCE)] for i in range(n)),
    "list": lambda n: ", ".join(["a dog", "a cat", "a red car"][i % 3] for i in range(n // 2)),
    "repeated noun": lambda n: " ".join(["dog"] * n),
    "coordination": lambda n: " and ".join(["a dog"] * (n // 3)),
    "of": lambda n: " of ".join(["a group"] * (n // 3)),
    "clauses": lambda n: "a dog that is " * (n // 4) + "sitting",
    "verbs": lambda n: "running sitting eats " * (n // 3),
    "adverbs": lambda n: "very " * n,
    "adjectives": lambda n: "a " + "red " * n + "dog",
    "covered": lambda n: "snow covered ground " * (n // 3),
    "denied": lambda n: "no dog without a hat " * (n // 5),
    "pictures": lambda n: "middle of a photo of the top " * (n // 7),
    "dots": lambda n: "a dog" + "." * (4 * n) + " a cat",
    "spaced dots": lambda n: "a dog " + ". " * n,
    "commas": lambda n: "a dog " + "," * n,
    "brackets": lambda n: "(" * n + "a dog" + ")" * n,
    "one word": lambda n: "a" * (5 * n),
    "hyphens": lambda n: "-".join(["dog"] * n),
    "white space": lambda n: "a dog\n\n\t " * (n // 2),
    "capitals": lambda n: "A DOG AND A CAT " * (n // 5),
    "unicode": lambda n: "é狗🐕\u200d " * n,
    "accents": lambda n: "a dog e" + "\u0301" * n,
}


@pytest.fixture(scope="module")
def parser():
    return load_parser("rules")


def text_functions(parser):
    """Every public text function, of a caption and its parse."""
    functions = {
        "parse": lambda caption, doc: list(parser.parse([caption])),
        "keyword_negatives": lambda caption, doc: keyword_negatives(caption, num_negatives=3, matching=EXTENDED),
        "negative_columns": lambda caption, doc: negative_columns([caption], num_negatives=3),
        "find_keywords": lambda caption, doc: find_keywords(caption, "object", EXTENDED),
        "is_same_sentence": lambda caption, doc: is_same_sentence(caption, caption + "x"),
        "has_same_words": lambda caption, doc: has_same_words(caption, "x" + caption),
        "noun_phrases": lambda caption, doc: noun_phrases(doc),
        "sift_noun_phrases": lambda caption, doc: sift_noun_phrases(doc),
        "maskable_tokens": lambda caption, doc: [maskable_tokens(doc, part) for part in PARTS],
        "rewrite": lambda caption, doc: rewrite(caption, [(0, len(caption) // 2)], ["the"]),
        "concept_columns": lambda caption, doc: concept_columns(
            [caption], noun_phrase_extractor(parser), max_concepts=None
        ),
        "all_keyword_permutations": lambda caption, doc: (
            all_keyword_permutations(caption, "object") if find_keywords(caption, "object") else None
        ),
    }
    for swap in SWAPS:
        functions[f"swap {swap}"] = lambda caption, doc, swap=swap: swap_negatives(doc, swaps=[swap], num_negatives=3)
    for rule in RULES:
        functions[f"positive {rule}"] = lambda caption, doc, rule=rule: hard_positives(
            doc, rules=[rule], num_positives=3
        )
    return functions


def seconds(function, *arguments):
    gc.disable()  # a collection of all that other tests left behind would be counted with one call
    try:
        start = time.process_time()
        function(*arguments)
        return time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("form", FORMS)
def test_text_functions_take_time_in_proportion_to_the_length(parser, form, monkeypatch):
    # The limits would end what is too long before it is measured; the times have to be right without them.
    monkeypatch.setattr("hfcomp.parsing.captions.caption_problem", lambda caption: None)
    monkeypatch.setattr("hfcomp.data.concepts.columns.caption_problem", lambda caption: None)
    captions = [FORMS[form](n) for n in (250, 500, 1000)]
    docs = [next(iter(parser.parse([caption]))) for caption in captions]
    slow = {}
    for name, function in text_functions(parser).items():
        for _ in range(3):  # a busy machine lengthens one of them, a square all
            times = [seconds(function, *pair) for pair in zip(captions, docs, strict=True)]
            # linear: 4 times; square: 16 times. What takes no time at 1,000 words cannot be told apart.
            if times[2] < max(0.03, 4 * 2.5 * times[0]):
                break
        else:
            slow[name] = times
    assert not slow


def test_a_caption_over_the_limits_is_refused_by_its_length(parser):
    over = {
        "characters": ("a dog " * (MAX_CHARACTERS // 6 + 1), "10,002 characters"),
        "words": ("a " * (MAX_WORDS + 1), "2,001 words"),
        "run": ("a" + "." * MAX_RUN, "1,001 characters without a space"),
    }
    for caption, reason in over.values():
        doc = next(iter(parser.parse([caption])))
        for function in (
            lambda caption=caption: keyword_negatives(caption),
            lambda doc=doc: swap_negatives(doc),
            lambda doc=doc: hard_positives(doc),
        ):
            with pytest.raises(ValueError, match=f"{TOO_LONG}: {reason}"):
                function()
        with pytest.raises(ValueError, match=f"row 1, .*{reason}"):
            negative_columns(["a dog", caption])
        columns, counts = concept_columns(["a dog", caption], noun_phrase_extractor(parser), max_concepts=None)
        assert columns["concepts"] == [["a dog"], []]
        assert counts.unusable == 1


def test_captions_within_the_limits_are_no_problem():
    assert caption_problem("a dog " * 1000) is None
    assert caption_problem("") is None
    assert caption_problem("狗" * MAX_RUN) is None


def test_a_lone_surrogate_is_refused_by_its_place():
    with pytest.raises(ValueError, match=r"'\\ud800' .* 6"):
        keyword_negatives("a dog \ud800")
    assert caption_problem("a dog 🐕") is None


PIECES = [*SENTENCE, *",.!()[]-'\"\n\t/_", "and", "of", "with", "is", "are", "that", "the", "an", "dogs", "no", "it"]
PIECES += ["狗", "é", "\u0301", "🐕\u200d🦺", "\u202e", "\x00", "\ufeff", "ß", "İ", "1", "½", "TV", "O'Neil's", "..."]


@pytest.mark.parametrize("seed", range(60))
def test_text_functions_raise_nothing_on_any_text(parser, seed):
    rng = random.Random(seed)
    space = rng.choice(["", " ", " ", "  "])
    caption = space.join(rng.choice(PIECES) for _ in range(rng.randrange(40)))
    doc = next(iter(parser.parse([caption])))
    assert doc.text == caption
    for function in text_functions(parser).values():
        function(caption, doc)
