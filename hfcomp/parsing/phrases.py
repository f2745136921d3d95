"""Swappable parts of a parsed caption: nouns, adjectives, noun phrases and verbs.

The functions read spaCy's `Doc`. They rely on word classes and noun chunks. Of the dependency tree, they use only what
a shallow parser also provides. A part is skipped if its parse is doubtful, because a caption without a negative is
better than one with a wrong negative.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hfcomp.parsing.captions import Span
from hfcomp.parsing.words import (
    COLORS,
    EMPTY_NOUNS,
    FIXED_PAIRS,
    LOCATION_NOUNS,
    NOT_DESCRIBING,
    PICTURE_NOUNS,
    SHADES,
    word_set,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

NOUN_CLASSES = ("NOUN", "PROPN")
FINITE_TAGS = ("VBZ", "VBP", "VBD", "MD")
_JOINING_CHARACTERS = frozenset("-'’/_&–—+@#")
# "carriage.on": a space is missing, so the tokenizer found a single word.
_RUN_TOGETHER = re.compile(r"\w[.,;:!?]+[^\W\d]")
# Maximum number of words between an adjective and its noun.
_MAX_WORDS_BETWEEN = 32
_NOT_MAIN_VERBS = word_set("be can could do get have let may might must seem shall should will would")


@dataclass(frozen=True)
class Part:
    """Neighboring words of a parsed caption.

    Attributes:
        doc: The parsed caption.
        start: Index of the first token.
        end: Index after the last token.
        head: Index of the head token: the noun of a phrase, the main verb of a group.
    """

    doc: Doc
    start: int
    end: int
    head: int

    @cached_property
    def span(self) -> Span:
        """`[start, end)` in characters of the caption."""
        last = self.doc[self.end - 1]
        return self.doc[self.start].idx, last.idx + len(last)

    @cached_property
    def text(self) -> str:
        """The words as written in the caption."""
        return self.doc[self.start : self.end].text

    @cached_property
    def lemma(self) -> str:
        """The base form of the head, in lower case."""
        return base_form(self.doc[self.head])

    @cached_property
    def tag(self) -> str:
        """The Penn tag of the head."""
        return self.doc[self.head].tag_

    @cached_property
    def is_name(self) -> bool:
        """Whether the first word is a proper noun."""
        return self.doc[self.start].tag_.startswith("NNP")


def base_form(token: Token) -> str:
    """Returns the lemma in lower case, or the word itself if the parser provides no lemma."""
    return (token.lemma_ or token.text).lower()


def is_whole(doc: Doc | Sequence[Token], start: int, end: int) -> bool:
    """Whether the tokens are separate from the text around them, unlike "shirt" in "t-shirt" or "dog" in "dog's"."""
    texts = [doc[index].text for index in range(start, end)]
    if any(not text.isalpha() and _RUN_TOGETHER.search(text) for text in texts):
        return False
    # Check only the neighbors: building the whole text for each part would take quadratic time.
    if start and not doc[start - 1].whitespace_ and _joins_words(doc[start - 1].text[-1]):
        return False
    return end == len(doc) or bool(doc[end - 1].whitespace_) or not _joins_words(doc[end].text[0])


def _joins_words(sign: str) -> bool:
    return sign.isalnum() or sign in _JOINING_CHARACTERS


def names_the_picture(token: Token) -> bool:
    """Whether a word refers to the picture itself: "photo", "close-up", and "up" in "a close up"."""
    return base_form(token) in PICTURE_NOUNS or (
        token.lower_ == "up" and token.i > 0 and token.nbor(-1).lower_ == "close"
    )


def _is_thing(token: Token) -> bool:
    word = base_form(token)
    return word not in LOCATION_NOUNS and word not in EMPTY_NOUNS and not names_the_picture(token)


def noun_phrases(doc: Doc) -> list[Part]:
    """Returns the longest noun phrases that name things in a caption, from left to right.

    A phrase is a noun chunk with its determiner and modifiers and all chunks joined to it by "of": "a group of
    people", "the roof of a red car". Chunks that do not name a thing are skipped: pronouns, locations ("the middle" in
    "in the middle of a field"), the picture itself ("a photo" in "a photo of a dog"), and phrases with a possessive
    pronoun ("his hat"), which would lose their reference.
    """
    # Chunks joined by "of" form one part: swapping only "a group" would give "a dog of people".
    chunks = list(doc.noun_chunks)
    phrases: list[Part] = []
    index = 0
    while index < len(chunks):
        first, head = chunks[index], chunks[index].root
        end, index = first.end, index + 1
        if head.pos_ not in NOUN_CLASSES or not _is_thing(head):
            continue
        while index < len(chunks) and end == chunks[index].start - 1 and doc[end].lower_ == "of":
            end, index = chunks[index].end, index + 1
        has_pronoun = any(token.tag_ in ("PRP", "PRP$", "WP", "WDT", "EX") for token in doc[first.start : end])
        if not has_pronoun and is_whole(doc, first.start, end):
            phrases.append(Part(doc, first.start, end, head.i))
    return phrases


def nouns(doc: Doc) -> list[Part]:
    """Returns the nouns that name things in a caption; compounds are one noun ("fire hydrant", "hot dog", "t-shirt").

    Skips nouns that do not name a thing (see `noun_phrases`), nouns before "of" ("group of people", where "of" carries
    the relation), and nouns before "'s".
    """
    parts = []
    start = 0
    while start < len(doc):
        end = _end_of_compound(doc, start)
        if end == start:
            start += 1
            continue
        head = doc[end - 1]
        first = start
        if first and (doc[first - 1].lower_, base_form(doc[first])) in FIXED_PAIRS:
            first -= 1
        # Skip nouns before "of" or "'s": swapping "dog" in "the dog of the man" would change what belongs to whom.
        before_of = end < len(doc) and doc[end].lower_ in ("of", "'s", "’s")
        if not before_of and _is_thing(head) and is_whole(doc, first, end):
            parts.append(Part(doc, first, end, head.i))
        start = end
    return parts


def _end_of_compound(doc: Doc, start: int) -> int:
    # Use word classes instead of the tree: parsers disagree on the arcs inside compounds but all tag them as nouns.
    end = start
    while end < len(doc) and doc[end].pos_ in NOUN_CLASSES:
        end += 1
        hyphenated = (
            end + 1 < len(doc) and doc[end].text == "-" and not doc[end - 1].whitespace_ and not doc[end].whitespace_
        )
        if hyphenated and doc[end + 1].pos_ in NOUN_CLASSES:
            end += 1
    return end


def adjectives(doc: Doc) -> list[Part]:
    """Returns the adjectives that describe a thing; a color with its shade is one adjective ("dark blue").

    Skips adjectives that count, compare or point ("many", "same", "left"), adjectives that form the name of a thing
    with their noun ("hot dog"), all adjectives that end in -ing ("shopping center"), comparatives and superlatives.
    """
    parts = []
    for token in doc:
        if token.pos_ != "ADJ" or token.tag_ != "JJ" or token.lower_ in NOT_DESCRIBING or token.lower_.endswith("ing"):
            continue
        following = doc[token.i + 1] if token.i + 1 < len(doc) else None
        if following is not None and (token.lower_, base_form(following)) in FIXED_PAIRS:
            continue
        if following is not None and token.lower_ in SHADES and following.lower_ in COLORS:
            continue
        start = token.i
        if token.lower_ in COLORS and start and doc[start - 1].lower_ in SHADES:
            start -= 1
        if is_whole(doc, start, token.i + 1):
            parts.append(Part(doc, start, token.i + 1, token.i))
    return parts


def described_noun(adjective: Part) -> Token | None:
    """Returns the noun that an adjective describes ("hydrant" for "red" in "a red and white fire hydrant"), or None.

    This is the last noun of the compound after the adjective. It is None if more than 32 words are in between.
    """
    doc = adjective.doc
    index, limit = adjective.end, min(len(doc), adjective.end + _MAX_WORDS_BETWEEN)
    while index < limit and (doc[index].pos_ in ("ADJ", "CCONJ") or doc[index].text in (",", "-")):
        index += 1
    end = _end_of_compound(doc, index) if index < len(doc) else index
    return doc[end - 1] if end > index else None


def verbs(doc: Doc) -> list[Part]:
    """Returns the main verbs of a caption with their particles ("holding up").

    Skips auxiliaries and participles before nouns, and also "be", "have", "do", "get", "let", "seem" and modals, which
    say too little to be worth swapping.
    """
    parts = []
    for token in doc:
        if token.pos_ != "VERB" or base_form(token) in _NOT_MAIN_VERBS or describes_a_noun(token):
            continue
        end = token.i + 1
        if end < len(doc) and (doc[end].tag_ == "RP" or doc[end].dep_ == "prt"):
            end += 1
        if is_whole(doc, token.i, end):
            parts.append(Part(doc, token.i, end, token.i))
    return parts


def describes_a_noun(verb: Token) -> bool:
    """Whether a participle precedes a noun like an adjective: "a parked car", "in running water"."""
    if verb.tag_ not in ("VBN", "VBG"):
        return False
    if verb.dep_ in ("amod", "compound"):
        return True
    doc = verb.doc
    before = doc[verb.i - 1].pos_ if verb.i else ""
    following = doc[verb.i + 1].pos_ if verb.i + 1 < len(doc) else ""
    # A caption may start with a participle before its noun ("Sitting cat") or its object ("Riding waves"). Neither can
    # be moved safely.
    return following in (*NOUN_CLASSES, "ADJ", "VERB") and before in ("DET", "NUM", "ADJ", "ADP", "PRON", "")


def with_auxiliaries(verb: Part) -> Part:
    """Returns the verb with the auxiliaries before it: "is sitting", "has been parked"."""
    # "not" and other adverbs may occur among auxiliaries, but one before the first auxiliary belongs to another word.
    start = verb.start
    while start and verb.doc[start - 1].pos_ in ("AUX", "ADV") and verb.doc[start - 1].tag_ != "WRB":
        start -= 1
    while verb.doc[start].pos_ == "ADV":
        start += 1
    return Part(verb.doc, start, verb.end, verb.head)
