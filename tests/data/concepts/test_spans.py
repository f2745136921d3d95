"""Spans of a caption in the text that a tokenizer makes of it."""

from __future__ import annotations

import random
import re
import string

import pytest
from transformers import AutoProcessor

from hfcomp.data.concepts.spans import canonical_spans


def as_siglip(text: str) -> str:
    """The text as SigLIP's tokenizer reads it: an independent reference, checked against the tokenizer below."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\s+", " ", text).strip()


def parts(caption: str, *words: str, canonical: str | None = None) -> list[str]:
    """What stands where words of a caption come to lie, each word searched behind the one before."""
    spans, place = [], 0
    for word in words:
        place = caption.index(word, place)
        spans.append((place, place + len(word)))
        place += len(word)
    canonical = as_siglip(caption) if canonical is None else canonical
    return [canonical[start:end] for start, end in canonical_spans(caption, spans, canonical)]


@pytest.fixture(scope="module")
def canonicalize(siglip):
    return AutoProcessor.from_pretrained(siglip).tokenizer.canonicalize_text


CAPTIONS = (
    "A T-shirt, red.",
    "  Two\tmen - one in a 'hat' -\nwave!! ",
    "the man's 3-D glasses (new) & a $5 bill",
    "!!!",
    "",
    "ΟΔΟΣ, İzmir and a ﬁsh; Straße",
    "a cafe\u0301 and a CAFÉ",
    "\u00a0a\u2003dog\u200b.",
)


@pytest.mark.parametrize("caption", CAPTIONS)
def test_the_reference_is_what_the_tokenizer_does(canonicalize, caption):
    assert as_siglip(caption) == canonicalize(caption)


@pytest.mark.parametrize("caption", CAPTIONS)
def test_the_whole_caption_is_the_whole_text(canonicalize, caption):
    canonical = canonicalize(caption)
    (span,) = canonical_spans(caption, [(0, len(caption))], canonical)
    assert canonical[slice(*span)] == canonical.strip()


def test_punctuation_capitals_and_white_space():
    caption = "  A big, RED dog\n(small)  runs."
    assert as_siglip(caption) == "a big red dog small runs"
    assert parts(caption, "A big, RED dog", "small", "runs.") == ["a big red dog", "small", "runs"]
    assert parts(caption, "big,", " RED ", "(small)  runs") == ["big", "red", "small runs"]


def test_what_a_hyphen_tied_is_one_word():
    assert parts("a black-and-white T-shirt", "black-and-white", "T-shirt") == ["blackandwhite", "tshirt"]
    assert parts("a T-shirt", "shirt") == ["shirt"]
    assert parts("a dog - a cat - a cow", "a dog -", "a cat", "- a cow") == ["a dog", "a cat", "a cow"]


def test_a_repeated_word_keeps_its_place():
    caption = "A dog. A dog, a dog!"
    spans = [(0, 5), (7, 12), (14, 19)]
    assert canonical_spans(caption, spans, as_siglip(caption)) == [(0, 5), (6, 11), (12, 17)]


def test_spans_keep_their_order_and_may_overlap():
    assert canonical_spans("a red, blue cup", [(12, 15), (0, 15), (0, 5)], "a red blue cup") == [
        (11, 14),
        (0, 14),
        (0, 5),
    ]


def test_nothing_left_is_an_empty_span():
    assert canonical_spans("a dog -- !", [(6, 8), (9, 10), (5, 6), (2, 2)], "a dog") == [
        (5, 5),
        (5, 5),
        (5, 5),
        (2, 2),
    ]
    assert canonical_spans("...", [(0, 3)], "") == [(0, 0)]
    assert canonical_spans("", [], "") == []


def test_a_letter_that_becomes_two_takes_both():
    canonical = as_siglip("İ, dog")
    assert canonical == "i\u0307 dog"
    assert canonical_spans("İ, dog", [(0, 1), (3, 6)], canonical) == [(0, 2), (3, 6)]


def test_text_that_a_tokenizer_normalized_further():
    # SentencePiece writes compatibility characters out, and accents into their letters
    assert parts("a ﬁsh, ＲＥＤ", "ﬁsh", "ＲＥＤ", canonical="a fish red") == ["fish", "red"]
    assert parts("a cafe\u0301, red", "cafe\u0301", "red", canonical="a café red") == ["café", "red"]
    assert parts("a café, red", "café", "red", canonical="a cafe\u0301 red") == ["cafe\u0301", "red"]


def test_a_sigma_at_the_end_of_a_word():
    assert as_siglip("ΟΔΟΣ, ΣΑΣ") == "οδος σας"
    assert parts("ΟΔΟΣ, ΣΑΣ", "ΟΔΟΣ", "ΣΑΣ") == ["οδος", "σας"]


def test_an_accent_without_its_letter():
    assert parts("a .\u0301 b", "b") == ["b"]


def test_text_that_keeps_everything_or_only_lowers():
    assert parts("A T-shirt, red.", "T-shirt", "red", canonical="A T-shirt, red.") == ["T-shirt", "red"]
    assert parts("A T-shirt, red.", "T-shirt", "red", canonical="a t-shirt, red.") == ["t-shirt", "red"]


def test_any_text_maps_word_by_word():
    generator = random.Random(3)
    pieces = [*"aAbÉİßΣﬁ0- ,.'\t\n", "dog", "T-shirt", "  ", "é", "e\u0301"]
    for _ in range(500):
        caption = "".join(generator.choices(pieces, k=generator.randrange(1, 25)))
        words = [(match.start(), match.end()) for match in re.finditer(r"\S+", caption)]
        canonical = as_siglip(caption)
        mapped = [canonical[start:end] for start, end in canonical_spans(caption, words, canonical)]
        assert [word for word in mapped if word] == canonical.split()


def test_another_text_is_refused():
    with pytest.raises(ValueError, match="'a cat' .*'a dog'.* 'cat'"):
        canonical_spans("a dog", [(0, 1)], "a cat")
    with pytest.raises(ValueError, match="found nothing .*' dog'"):
        canonical_spans("a", [(0, 1)], "a dog")


@pytest.mark.parametrize("span", [(0, 6), (-1, 2), (3, 2)])
def test_a_span_outside_the_caption_is_refused(span):
    with pytest.raises(ValueError, match="outside 'a dog'.* 5 "):
        canonical_spans("a dog", [span], "a dog")
