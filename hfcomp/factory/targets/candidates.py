"""Finds the words of a parsed caption that a negative may change, with categories and concreteness ratings.

Concrete Jungle (arXiv 2604.13313), section 2.2 and Appendix A.1, keeps the parts of speech `KEPT` and looks up their
words in a table of ratings. It describes which words belong to which category. The lists here are our choice, and so
are the exclusions: words that name nothing themselves ("group" in "a group of people", "photo" in "a photo of a dog"),
adjectives that count, compare or point, verbs without content (these only if `words` is `filtered`), prepositions
without a place, and verbs without an object that are not states ("a dog running"): the paper has no category for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from hfcomp.factory.targets.relations import is_interaction, is_perfect, is_spatial, spatial_phrases
from hfcomp.negatives.concreteness import ConcretenessRatings, RatingMatch
from hfcomp.parsing.captions import Span
from hfcomp.parsing.phrases import (
    NOUN_CLASSES,
    Part,
    adjectives,
    base_form,
    describes_a_noun,
    is_whole,
    names_the_picture,
    verbs,
)
from hfcomp.parsing.words import EMPTY_NOUNS, FIXED_PAIRS, LOCATION_NOUNS, POSTURES, VAGUE_QUANTITIES, word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

# Universal parts of speech that can be targets (Appendix A.1, footnote 1).
KEPT = ("NOUN", "PROPN", "ADJ", "NUM", "ADP", "VERB")
ATTRIBUTE, OBJECT, RELATION = "attribute", "object", "relation"
CATEGORIES = (ATTRIBUTE, OBJECT, RELATION)
Lookup = Literal["word_first", "expression_first"]
Prepositions = Literal["specific", "all"]
Words = Literal["filtered", "all"]
LOOKUPS: tuple[Lookup, ...] = get_args(Lookup)
PREPOSITIONS: tuple[Prepositions, ...] = get_args(Prepositions)
WORDS: tuple[Words, ...] = get_args(Words)
GENERAL_PREPOSITIONS = word_set("at by in on")

_STATES = (POSTURES - {"be"}) | word_set("bend crouch float kneel sleep smile squat stop wait")
_NOT_COUNTS = word_set("one")  # "one of the dogs", "no one"
# "a piece of cake", "a body of water", "a herd of sheep": the thing itself comes after "of".
_OPENS_OF = VAGUE_QUANTITIES | word_set(
    "body crowd dozen expanse fleet flock game herd kind midst pair part piece process rest series set sort type"
)


class Candidate(NamedTuple):
    """A part of a caption that a negative may change.

    Attributes:
        keyword: Text in the caption: a word, or a few ("fire hydrant", "in front of", "holding up").
        span: Position in the caption, `[start, end)` in characters.
        category: `attribute`, `object` or `relation`.
        rated_word: Matching entry of the ratings table; empty without an entry.
        rating: 1 (abstract) to 5 (concrete); None without an entry.
        tag: Penn tag of the keyword's head, IN for a spatial phrase.
    """

    keyword: str
    span: Span
    category: str
    rated_word: str
    rating: float | None
    tag: str


class _Unit(NamedTuple):
    """Tokens `[start, end)` that change together, their head, and the token to rate if the whole has no entry."""

    start: int
    end: int
    head: int
    category: str
    rated: int
    tag: str


def find_candidates(
    doc: Doc,
    ratings: ConcretenessRatings | None,
    *,
    lookup: Lookup = "expression_first",
    prepositions: Prepositions = "specific",
    words: Words = "filtered",
) -> list[Candidate]:
    """The candidates of a caption, from left to right, without overlaps.

    A rating comes from the first form in the table: the word as it is, its lemma, then the two-word expression that it
    belongs to, with the last word as it is or as its lemma. `word_first` uses this order, so "fire" and "hydrant" are
    two candidates. `expression_first`, our choice, prefers a noun compound that has an entry over its words: "fire
    hydrant" is one candidate. The paper names "fire hydrant" and "coffee mug" as concrete keywords and has "coffee
    cup" in its prompt. `word_first` can find none of these, because their words are rated. Besides, replacing only one
    word is seldom English ("a coffee dog"). The keyword of an expression is both words. A fixed pair ("hot dog"), a
    shade with its color, and a verb with its particle are one candidate in either order.

    Args:
        ratings: Table of ratings; None for candidates without ratings.
        prepositions: Single prepositions that are relations. `specific`, our choice, excludes "at", "by", "in" and
            "on", which say little. With them nine of ten COCO captions have a relation, contrary to the paper's
            "relative sparseness of relational descriptions"; without them six do, and the mean ratings match the
            paper's. `all` includes them.
        words: Nouns, adjectives and verbs that can be candidates. `filtered`, our improvement, excludes those that
            say nothing that a picture could show otherwise. `all` keeps every word of the parts of speech `KEPT`.

    Returns:
        All candidates, including those without a rating.
    """
    allowed = (("lookup", lookup, LOOKUPS), ("prepositions", prepositions, PREPOSITIONS), ("words", words, WORDS))
    for name, value, known in allowed:
        if value not in known:
            raise ValueError(f"{name}: found {value!r}, expected one of {', '.join(known)}.")
    left_out = GENERAL_PREPOSITIONS if prepositions == "specific" else frozenset()
    tokens, text = list(doc), doc.text  # spaCy creates both at every access
    units = sorted(_units(doc, tokens, left_out, words), key=lambda unit: unit.start)
    matches = [_match(tokens, unit, ratings) for unit in units]
    if ratings is None:
        return [_candidate(tokens, text, unit, None) for unit in units]
    candidates: list[Candidate] = []
    behind = 0  # the token after the last candidate
    for place, unit in enumerate(units):
        if unit.start < behind:
            continue  # the second word of an expression
        match = matches[place]
        # If both words are rated, only a compound counts as one word, see `lookup`.
        for first, second in _pairs(tokens, units[place : place + 2], behind):
            has_unrated = match is None or (second is not unit and matches[place + 1] is None)
            joins = has_unrated or (lookup == "expression_first" and _is_compound(tokens[first]))
            pair = ratings.first(_forms(tokens[first : second.end])) if joins else None
            if pair is not None:
                unit, match = second._replace(start=first), pair
                break
        candidates.append(_candidate(tokens, text, unit, match))
        behind = unit.end
    return candidates


def _pairs(tokens: list[Token], units: list[_Unit], behind: int) -> Iterator[tuple[int, _Unit]]:
    """Yields pairs of adjacent words that may form an expression: the first word's place, and the last's unit, a noun.

    They are the first two units, or a word of a kept class that is not a unit ("washing") and the first unit. The
    first word is not a preposition ("for sale").
    """
    for unit in reversed(units):
        first = unit.start - 1
        is_free = first == units[0].start if unit is not units[0] else first >= behind
        if first < 0 or not is_free or unit.end - unit.start > 1 or tokens[unit.head].pos_ not in NOUN_CLASSES:
            continue
        if tokens[first].pos_ in KEPT and tokens[first].pos_ != "ADP":
            yield first, unit


def _is_compound(first: Token) -> bool:
    """Whether a word forms a compound with the next noun: "fire hydrant", "cutting board", not "drinking water".

    An adjective does not and changes by itself: "a black tie" and "an open door" have entries with another sense.
    """
    return first.pos_ in NOUN_CLASSES or (first.pos_ == "VERB" and describes_a_noun(first))


def _candidate(tokens: list[Token], text: str, unit: _Unit, match: RatingMatch | None) -> Candidate:
    last = tokens[unit.end - 1]
    span = tokens[unit.start].idx, last.idx + len(last)
    entry, rating = ("", None) if match is None else (match.entry, match.rating)
    return Candidate(text[slice(*span)], span, unit.category, entry, rating, unit.tag)


def _match(tokens: list[Token], unit: _Unit, ratings: ConcretenessRatings | None) -> RatingMatch | None:
    """The rating of all words of a unit, or otherwise of its rated token."""
    if ratings is None:
        return None
    head = tokens[unit.rated]
    forms = [("surface", head.lower_), ("lemma", base_form(head))]
    if unit.end - unit.start > 1:
        forms = [*_forms(tokens[unit.start : unit.end]), *forms]
    return ratings.first(forms)


def _forms(tokens: list[Token]) -> list[tuple[str, str]]:
    """Several words as they are, and with the lemma of the last word or, for a verb with its particle, of the verb."""
    words = [token.lower_ for token in tokens]
    inflected = 0 if tokens[0].pos_ == "VERB" else -1
    lemmas = list(words)
    lemmas[inflected] = base_form(tokens[inflected])
    if "-" in words:  # "t-shirt" is one word of three tokens
        words = ["".join(token.text_with_ws for token in tokens).strip().lower()]
    return [("expression", " ".join(words)), ("expression", " ".join(lemmas))]


def _units(doc: Doc, tokens: list[Token], left_out: frozenset[str], words: Words) -> Iterator[_Unit]:
    phrases = list(spatial_phrases(doc))
    # Phrases come first, because "front" in "in front of" is not an object.
    used = {place for phrase in phrases for place in range(phrase.start, phrase.end)}
    yield from (_Unit(phrase.start, phrase.end, phrase.start, RELATION, phrase.rated, "IN") for phrase in phrases)
    described = adjectives(doc) if words == "filtered" else _whole_words(doc, tokens, "ADJ")
    acting = verbs(doc) if words == "filtered" else _whole_words(doc, tokens, "VERB")
    content = _objects(tokens, words), _attributes(described, tokens), _verb_units(acting, tokens)
    for unit in chain(*content, _prepositions(tokens, left_out)):
        places = range(unit.start, unit.end)
        if used.isdisjoint(places):
            used.update(places)
            yield unit


def _whole_words(doc: Doc, tokens: list[Token], word_class: str) -> list[Part]:
    places = (place for place, token in enumerate(tokens) if token.pos_ == word_class)
    return [Part(doc, place, place + 1, place) for place in places if is_whole(tokens, place, place + 1)]


def _objects(tokens: list[Token], words: Words) -> Iterator[_Unit]:
    """Yields single nouns and names; fixed pairs and hyphenated words are one unit."""
    for place, token in enumerate(tokens):
        if token.pos_ not in NOUN_CLASSES or not token.text[:1].isalpha():
            continue
        if words == "filtered" and not _names_something(tokens, place):
            continue
        start = _start_of_word(tokens, place)
        if place and (tokens[place - 1].lower_, base_form(token)) in FIXED_PAIRS:
            start = place - 1
        if is_whole(tokens, start, place + 1):
            yield _Unit(start, place + 1, place, OBJECT, place, token.tag_)


def _start_of_word(tokens: list[Token], place: int) -> int:
    """The first token of a hyphenated word, such as "t" of "t-shirt"."""
    while place > 1 and tokens[place - 1].text == "-":
        if tokens[place - 1].whitespace_ or tokens[place - 2].whitespace_:
            break
        place -= 2
    return place


def _names_something(tokens: list[Token], place: int) -> bool:
    noun = tokens[place]
    word = base_form(noun)
    if word in LOCATION_NOUNS or word in EMPTY_NOUNS or names_the_picture(noun):
        return False
    before_of = place + 1 < len(tokens) and tokens[place + 1].lower_ == "of"
    return not (before_of and (word in _OPENS_OF or noun.lower_ in _OPENS_OF))


def _attributes(described: list[Part], tokens: list[Token]) -> Iterator[_Unit]:
    """Yields adjectives, numeric modifiers, and participles of state before nouns."""
    for part in described:
        yield _Unit(part.start, part.end, part.head, ATTRIBUTE, part.head, part.tag)
    for place, token in enumerate(tokens):
        is_count = token.pos_ == "NUM" and token.lower_ not in _NOT_COUNTS and token.dep_ in ("nummod", "amod")
        is_state = token.pos_ == "VERB" and describes_a_noun(token) and _is_state(token)
        if (is_count or is_state) and is_whole(tokens, place, place + 1):
            yield _Unit(place, place + 1, place, ATTRIBUTE, place, token.tag_)


def _verb_units(acting: list[Part], tokens: list[Token]) -> Iterator[_Unit]:
    """Yields transitive verbs as relations, and other verbs as attributes if they are states."""
    for part in acting:
        verb = tokens[part.head]
        category = RELATION if is_interaction(verb) else ATTRIBUTE if _is_state(verb) else ""
        if category:
            yield _Unit(part.start, part.end, part.head, category, part.head, part.tag)


def _is_state(verb: Token) -> bool:
    """Whether a verb is a posture or similar, or what was done to its noun: "parked", "covered", "painted"."""
    if base_form(verb) in _STATES:
        return True
    has_object = any(child.dep_ in ("dobj", "obj") for child in verb.children)
    return verb.tag_ == "VBN" and not has_object and not is_perfect(verb)


def _prepositions(tokens: list[Token], left_out: frozenset[str]) -> Iterator[_Unit]:
    for place, token in enumerate(tokens):
        is_place = token.pos_ == "ADP" and token.lower_ not in left_out and is_spatial(token)
        if is_place and is_whole(tokens, place, place + 1):
            yield _Unit(place, place + 1, place, RELATION, place, token.tag_)
