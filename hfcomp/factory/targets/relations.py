"""Relations in a parsed caption: places and interactions (Concrete Jungle, Appendix A.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hfcomp.parsing.phrases import base_form
from hfcomp.parsing.words import PICTURE_NOUNS, phrase_set, word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

# Fixed phrases, each with the index of the word that carries its meaning, which is the rated word.
_FIXED = {
    **{(word, "to"): 0 for word in ("next", "close", "adjacent")},
    **{(word, "from"): 0 for word in ("across", "away", "far")},
    **{(word, "of"): 0 for word in ("inside", "outside", "out", "off")},
    **{("in", "between"): 1, ("up", "against"): 1},
}
# "in front of", "at the very top of", "on the left side of", "to the right of": a preposition, a place, "of".
_PLACE_PREPOSITIONS = word_set("at by from in near on to toward towards")
_BEFORE_PLACES = word_set(
    "a an back bottom each either far front hand left lower near one opposite other outer rear right the top upper "
    "very"
)
PLACES = word_set(
    "back background base bottom center centre corner edge end foreground front inside left middle outside rear right "
    "side top"
)
_MOST_BEFORE_PLACE = 3

SPATIAL_PREPOSITIONS = word_set(
    "aboard above across against along alongside amid among amongst around at atop before behind below beneath beside "
    "besides between beyond by down in inside into near off on onto opposite outside over past through throughout "
    "toward towards under underneath up upon within"
)
# "at night", "in the morning", "on a sunny day" say when, not where. "in black and white", "on sale" say how.
_NOT_PLACES = PICTURE_NOUNS | word_set(
    "afternoon autumn background color colour dark date dawn day daylight daytime display dusk evening fall fashion "
    "fog game moment month morning motion night progress rain sale season spring style summer sunset time use way "
    "weather winter year"
)
_AIMS = phrase_set("look at,looks at,looking at,stare at,stares at,staring at,smile at,smiles at,smiling at")

_NOMINAL = ("NOUN", "PROPN", "PRON", "NUM")
_OBJECTS = ("dobj", "obj")
_SUBJECTS = ("nsubj", "nsubjpass", "csubj")
_MODIFIERS_OF_NOUNS = ("acl", "relcl", "acl:relcl")
_SHARED_SUBJECT = ("advcl", "conj", "xcomp", "ccomp")


class Phrase(NamedTuple):
    """A spatial phrase or preposition, in tokens.

    Attributes:
        start: Index of the first token.
        end: Index after the last token.
        rated: Index of the token that provides the rating.
    """

    start: int
    end: int
    rated: int


def spatial_phrases(doc: Doc) -> Iterator[Phrase]:
    """Yields explicit phrases of several words before a noun: "in front of", "on the left side of", "next to".

    They are matched by words, because parsers disagree on their trees. The whole phrase changes, so "in front of" can
    become "behind". The paper's prompt names the phrase's noun ("front") and replaces the phrase as well.
    """
    lower = [token.lower_ for token in doc]
    at = 0
    while at < len(lower):
        phrase = _fixed_phrase(lower, at) or _place_phrase(lower, at)
        if phrase is not None and _has_noun_behind(doc, phrase.end):
            yield phrase
            at = phrase.end
        else:
            at += 1


def _fixed_phrase(lower: list[str], at: int) -> Phrase | None:
    rated = _FIXED.get((lower[at], lower[at + 1])) if at + 1 < len(lower) else None
    return None if rated is None else Phrase(at, at + 2, at + rated)


def _place_phrase(lower: list[str], at: int) -> Phrase | None:
    if lower[at] not in _PLACE_PREPOSITIONS:
        return None
    for place in range(at + 1, min(at + 2 + _MOST_BEFORE_PLACE, len(lower) - 1)):
        if lower[place] in PLACES and lower[place + 1] == "of":
            return Phrase(at, place + 2, place)
        if lower[place] not in _BEFORE_PLACES:
            return None
    return None


def _has_noun_behind(doc: Doc, at: int) -> bool:
    """Whether a noun phrase starts at a token: its noun comes before any verb or preposition."""
    while at < len(doc) and doc[at].pos_ in ("DET", "ADJ", "ADV", "CCONJ", "SPACE", "PUNCT"):
        at += 1
    return at < len(doc) and (doc[at].pos_ in _NOMINAL or doc[at].tag_ in ("VBG", "VBN", "PRP$"))


def is_spatial(preposition: Token) -> bool:
    """Whether a preposition states a place: one of `SPATIAL_PREPOSITIONS` with a nominal object in the tree.

    It does not if its object is a time, a manner or the picture itself ("at night", "in the photo"), the agent of a
    passive ("surrounded by people"), or the target of a look.
    """
    word = preposition.lower_
    if word not in SPATIAL_PREPOSITIONS or preposition.dep_ in ("agent", "prt"):
        return False
    head = preposition.head
    if word == "by" and head.tag_ == "VBN" or (head.lower_, word) in _AIMS:
        return False
    objects = [child for child in preposition.children if child.dep_ in ("pobj", "obj") and child.i > preposition.i]
    return any(child.pos_ in _NOMINAL and base_form(child) not in _NOT_PLACES for child in objects)


def is_interaction(verb: Token) -> bool:
    """Whether a verb is transitive with a subject and an object, as in "a man riding a wave".

    A passive participle is not: "mountains" is not an object in "snow covered mountains".
    """
    is_done = verb.tag_ == "VBN" and not is_perfect(verb)
    return not is_done and _has_child(verb, _OBJECTS) and _has_subject(verb)


def is_perfect(verb: Token) -> bool:
    """Whether a participle is part of a perfect, as in "has bought"."""
    return any(child.dep_ == "aux" and base_form(child) in ("have", "'ve") for child in verb.children)


def _has_child(token: Token, labels: tuple[str, ...]) -> bool:
    return any(child.dep_ in labels and child.pos_ in _NOMINAL for child in token.children)


def _has_subject(verb: Token) -> bool:
    """Whether a verb has a subject: its own, the noun that it modifies, or that of a coordinated verb."""
    # The number of steps is limited, because the tree of a wrongly parsed caption may contain a cycle.
    seen = 0
    while not _has_child(verb, _SUBJECTS):
        head = verb.head
        if verb.dep_ in _MODIFIERS_OF_NOUNS:
            return head.pos_ in _NOMINAL
        if verb.dep_ not in _SHARED_SUBJECT or head.i == verb.i or seen > len(verb.doc):
            return False
        if head.pos_ in _NOMINAL:  # a caption whose root is its noun: "a man with a hat, riding a horse"
            return True
        verb, seen = head, seen + 1
    return True
