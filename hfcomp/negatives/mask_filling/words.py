"""Which words of a caption are masked, and which words may stand in their place."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hfcomp.parsing.words import EMPTY_NOUNS, LOCATION_NOUNS, MAY_BE_ONE, NOT_DESCRIBING, PICTURE_NOUNS

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

PARTS = ("noun", "adjective", "verb")
REJECTIONS = ("not_a_word", "name", "light_word", "same_word", "same_thing", "other_tag")

# Coarse and fine tags of the words that a part is about.
_TAGS = {
    "noun": ("NOUN", ("NN", "NNS")),
    "adjective": ("ADJ", ("JJ",)),
    "verb": ("VERB", ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ")),
}
_AUXILIARIES = frozenset({"aux", "auxpass", "aux:pass", "cop"})
# spaCy's stop words that are visible in a picture: "an empty glass", "using a laptop".
_CONTENT = frozenset(["call", "empty", "give", "keep", "made", "make", "move", "put", "show", "take", "used", "using"])
_QUANTITIES = frozenset({"bunch", "couple", "kind", "lot", "number", "part", "sort", "type", "variety"})
_LIGHT = {
    "noun": LOCATION_NOUNS | PICTURE_NOUNS | EMPTY_NOUNS | _QUANTITIES,
    "adjective": NOT_DESCRIBING,
    "verb": frozenset({"be", "have", "do"}),
}
_JOINS_WORDS = frozenset("-‐‑–/_@#&+")


def maskable_tokens(doc: Doc, part: str) -> list[Token]:
    """The words of one part of a caption that may be masked, from left to right.

    Nouns are common nouns (NN, NNS), each word of a compound by itself ("fire" and "hydrant"). Adjectives are JJ,
    attributive or predicative. Verbs are main verbs of any form, participles before a noun ("a parked car") included,
    auxiliaries and copulas not. Out are words joined to others by a hyphen or a slash, words with anything but
    letters, and light words; see `is_light`.
    """
    coarse, tags = _TAGS[part]
    caption = doc.text
    return [
        token
        for token in doc
        if token.pos_ == coarse
        and token.tag_ in tags
        and token.dep_ not in _AUXILIARIES
        and token.text.isalpha()
        and not is_light(token.text, part, token.lemma_)
        and _stands_alone(caption, token.idx, token.idx + len(token.text))
    ]


def _stands_alone(caption: str, start: int, end: int) -> bool:
    before, after = caption[max(start - 1, 0) : start], caption[end : end + 1]
    joined_after = after.isalnum() or after in _JOINS_WORDS
    # An apostrophe may follow ("the man's hat"), not go before ("'n'").
    joined_before = before.isalnum() or before in _JOINS_WORDS or before in {"'", "’"}
    return not joined_before and not joined_after


@cache
def _stop_words() -> frozenset[str]:
    from spacy.lang.en.stop_words import STOP_WORDS

    return frozenset(STOP_WORDS) - _CONTENT


def is_light(word: str, part: str, lemma: str = "") -> bool:
    """Whether a word is too uninformative about an image to be masked or used as a replacement.

    Stop words, nouns of place, picture and quantity ("in front of", "a photo of", "a lot of"), adjectives that count
    or compare ("same", "several"), and "be", "have" and "do".
    """
    return bool(lemmas_of(word, lemma) & _LIGHT[part]) or word.lower() in _stop_words()


def lemmas_of(word: str, lemma: str = "") -> set[str]:
    """The word itself and its lemmas, in lower case: simplemma's, and that of a parser where there is one."""
    from simplemma import lemmatize

    word = word.lower()
    return {word, lemmatize(word, lang="en").lower(), lemma.lower()} - {""}


def fit_case(word: str, original: str) -> str:
    """A proposed word in the case of the original; empty if it has capitals where the original has none.

    Its own capitals mark a name, which is not a common noun.
    """
    if len(original) > 1 and original.isupper():
        return word.upper()
    if original[0].isupper() and word[1:].islower():
        return word[0].upper() + word[1:]
    return word if word.islower() and original[0].islower() else ""


def objection(word: str, part: str, *, original: set[str]) -> str:
    """Why a word may not replace another, without a look at the grammar of the sentence.

    A word that simplemma's English dictionary does not know is taken for the beginning of one ("umbr").

    Args:
        word: The proposed word, in the original's case.
        part: Part of the original, one of `PARTS`.
        original: `lemmas_of` the original.

    Returns:
        One of `REJECTIONS`, or an empty string.
    """
    from simplemma import is_known

    if not is_known(word.lower(), lang="en"):
        return "not_a_word"
    if is_light(word, part):
        return "light_word"
    lemmas = lemmas_of(word)
    if lemmas & original:
        return "same_word"
    may_be_one = any(lemmas & MAY_BE_ONE.get(one, frozenset()) for one in original)
    return "same_thing" if may_be_one else ""
