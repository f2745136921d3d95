"""The words of a parsed caption that a negative may change, each with its category and its concreteness rating.

Concrete Jungle (arXiv 2604.13313), section 2.2 and Appendix A.1, keeps the parts of speech `KEPT` and looks up
their words in a table of ratings. It describes which words are handles of which category; the lists here are our
choice, as is what is left out: words that name nothing of their own ("group" of "a group of people", "photo" of "a
photo of a dog"), adjectives that count, compare or point, verbs of no content, prepositions that say no place, and
verbs without an object that are no state ("a dog running"), for which the paper has no category.
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

# Universal parts of speech that can be targets: Appendix A.1, footnote 1.
KEPT = ("NOUN", "PROPN", "ADJ", "NUM", "ADP", "VERB")
ATTRIBUTE, OBJECT, RELATION = "attribute", "object", "relation"
CATEGORIES = (ATTRIBUTE, OBJECT, RELATION)
Lookup = Literal["word_first", "expression_first"]
Prepositions = Literal["specific", "all"]
LOOKUPS: tuple[Lookup, ...] = get_args(Lookup)
PREPOSITIONS: tuple[Prepositions, ...] = get_args(Prepositions)
GENERAL_PREPOSITIONS = word_set("at by in on")

_STATES = (POSTURES - {"be"}) | word_set("bend crouch float kneel sleep smile squat stop wait")
_NOT_COUNTS = word_set("one")  # "one of the dogs", "no one"
# "a piece of cake", "a body of water", "a herd of sheep": the thing itself comes behind "of".
_OPENS_OF = VAGUE_QUANTITIES | word_set(
    "body crowd dozen expanse fleet flock game herd kind midst pair part piece process rest series set sort type"
)


class Candidate(NamedTuple):
    """A part of a caption that a negative may change.

    Attributes:
        keyword: Text in the caption: a word, or a few ("fire hydrant", "in front of", "holding up").
        span: `[start, end)` of it in characters of the caption.
        category: `attribute`, `object` or `relation`.
        rated_word: the entry of the ratings table that was found; empty if none was.
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
    """Tokens that change together: `[start, end)`, their head, and the token whose rating counts where not all do."""

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
) -> list[Candidate]:
    """The candidates of a caption, from left to right; none overlaps another.

    A rating is that of the first form in the table: the word as it stands, its lemma, then the two-word expression
    that it is part of, with the last word as it stands or as its lemma. `word_first` looks in this order, so that
    "fire" and "hydrant" are two candidates. `expression_first`, our choice, takes a noun compound that has an
    entry whole before its words: "fire hydrant" is one. The paper names "fire hydrant" and "coffee mug" as
    concrete keywords and has "coffee cup" in its prompt, none of which `word_first` can find as their words are rated;
    and another word for one of them is seldom English ("a coffee dog"). The keyword of an expression is its two words.
    A fixed pair ("hot dog"), a shade with its color and a verb with its particle are one candidate in either order.

    Args:
        ratings: None for candidates without ratings.
        prepositions: Which single ones are relations: `specific` leaves out "at", "by", "in" and "on", which say
            little. With them nine of ten captions of COCO have a relation, against the paper's "relative sparseness of
            relational descriptions"; without them six do, and the mean ratings are the paper's: our choice. `all` has
            them.

    Returns:
        All candidates; those without a rating too.
    """
    if lookup not in LOOKUPS or prepositions not in PREPOSITIONS:
        raise ValueError(
            f"lookup={lookup!r}, prepositions={prepositions!r}: expected one of {', '.join(LOOKUPS)}, and one of "
            f"{', '.join(PREPOSITIONS)}."
        )
    left_out = GENERAL_PREPOSITIONS if prepositions == "specific" else frozenset()
    tokens, text = list(doc), doc.text  # spaCy makes both again at every access
    units = sorted(_units(doc, tokens, left_out), key=lambda unit: unit.start)
    matches = [_match(tokens, unit, ratings) for unit in units]
    if ratings is None:
        return [_candidate(tokens, text, unit, None) for unit in units]
    found: list[Candidate] = []
    behind = 0  # the token behind the last candidate
    for at, unit in enumerate(units):
        if unit.start < behind:
            continue  # the second word of an expression
        match = matches[at]
        # If each of the two words has a rating of its own, only a compound counts as one word, see `lookup`.
        for first, second in _pairs(tokens, units[at : at + 2], behind):
            has_unrated = match is None or (second is not unit and matches[at + 1] is None)
            joins = has_unrated or (lookup == "expression_first" and _is_compound(tokens[first]))
            pair = ratings.first(_forms(tokens[first : second.end])) if joins else None
            if pair is not None:
                unit, match = second._replace(start=first), pair
                break
        found.append(_candidate(tokens, text, unit, match))
        behind = unit.end
    return found


def _pairs(tokens: list[Token], units: list[_Unit], behind: int) -> Iterator[tuple[int, _Unit]]:
    """Two neighboring words that may be one expression: the first one's place and the unit of the last, a noun.

    They are the first unit and the next one, or a kept word that is no unit ("washing") and the first unit; not a
    preposition ("for sale").
    """
    for unit in reversed(units):
        first = unit.start - 1
        is_free = first == units[0].start if unit is not units[0] else first >= behind
        if first < 0 or not is_free or unit.end - unit.start > 1 or tokens[unit.head].pos_ not in NOUN_CLASSES:
            continue
        if tokens[first].pos_ in KEPT and tokens[first].pos_ != "ADP":
            yield first, unit


def _is_compound(first: Token) -> bool:
    """Whether a word before a noun makes a compound with it: "fire hydrant", "cutting board", not "drinking water".

    Nor an adjective, which changes alone: "a black tie" and "an open door" have entries of another sense.
    """
    return first.pos_ in NOUN_CLASSES or (first.pos_ == "VERB" and describes_a_noun(first))


def _candidate(tokens: list[Token], text: str, unit: _Unit, match: RatingMatch | None) -> Candidate:
    last = tokens[unit.end - 1]
    span = tokens[unit.start].idx, last.idx + len(last)
    entry, rating = ("", None) if match is None else (match.entry, match.rating)
    return Candidate(text[slice(*span)], span, unit.category, entry, rating, unit.tag)


def _match(tokens: list[Token], unit: _Unit, ratings: ConcretenessRatings | None) -> RatingMatch | None:
    """The rating of all its words, else that of the one that counts."""
    if ratings is None:
        return None
    head = tokens[unit.rated]
    forms = [("surface", head.lower_), ("lemma", base_form(head))]
    if unit.end - unit.start > 1:
        forms = [*_forms(tokens[unit.start : unit.end]), *forms]
    return ratings.first(forms)


def _forms(tokens: list[Token]) -> list[tuple[str, str]]:
    """Several words as they stand, and with the last one's lemma; of a verb with its particle, with the verb's."""
    words = [token.lower_ for token in tokens]
    inflected = 0 if tokens[0].pos_ == "VERB" else -1
    lemmas = list(words)
    lemmas[inflected] = base_form(tokens[inflected])
    if "-" in words:  # "t-shirt" is three tokens and one word
        words = ["".join(token.text_with_ws for token in tokens).strip().lower()]
    return [("expression", " ".join(words)), ("expression", " ".join(lemmas))]


def _units(doc: Doc, tokens: list[Token], left_out: frozenset[str]) -> Iterator[_Unit]:
    phrases = list(spatial_phrases(doc))
    # Phrases come first: "front" in "in front of" is not an object of its own.
    taken = {place for phrase in phrases for place in range(phrase.start, phrase.end)}
    yield from (_Unit(one.start, one.end, one.start, RELATION, one.rated, "IN") for one in phrases)
    others = _objects(tokens), _attributes(doc, tokens), _verb_units(doc, tokens), _prepositions(tokens, left_out)
    for unit in chain.from_iterable(others):
        places = range(unit.start, unit.end)
        if taken.isdisjoint(places):
            taken.update(places)
            yield unit


def _objects(tokens: list[Token]) -> Iterator[_Unit]:
    """Nouns and names one by one, but fixed pairs and words with a hyphen as one."""
    for place, token in enumerate(tokens):
        if token.pos_ not in NOUN_CLASSES or not _is_replaceable(tokens, place):
            continue
        start = _start_of_word(tokens, place)
        if place and (tokens[place - 1].lower_, base_form(token)) in FIXED_PAIRS:
            start = place - 1
        if is_whole(tokens, start, place + 1):
            yield _Unit(start, place + 1, place, OBJECT, place, token.tag_)


def _start_of_word(tokens: list[Token], place: int) -> int:
    """Where a word with hyphens begins: "t" of "t-shirt"."""
    while place > 1 and tokens[place - 1].text == "-":
        if tokens[place - 1].whitespace_ or tokens[place - 2].whitespace_:
            break
        place -= 2
    return place


def _is_replaceable(tokens: list[Token], place: int) -> bool:
    noun = tokens[place]
    word = base_form(noun)
    if word in LOCATION_NOUNS or word in EMPTY_NOUNS or names_the_picture(noun) or not noun.text[:1].isalpha():
        return False
    before_of = place + 1 < len(tokens) and tokens[place + 1].lower_ == "of"
    return not (before_of and (word in _OPENS_OF or noun.lower_ in _OPENS_OF))


def _attributes(doc: Doc, tokens: list[Token]) -> Iterator[_Unit]:
    """Adjectives, numeric modifiers, and participles before nouns that are states."""
    for part in adjectives(doc):
        yield _Unit(part.start, part.end, part.head, ATTRIBUTE, part.head, part.tag)
    for place, token in enumerate(tokens):
        is_count = token.pos_ == "NUM" and token.lower_ not in _NOT_COUNTS and token.dep_ in ("nummod", "amod")
        is_state = token.pos_ == "VERB" and describes_a_noun(token) and _is_state(token)
        if (is_count or is_state) and is_whole(tokens, place, place + 1):
            yield _Unit(place, place + 1, place, ATTRIBUTE, place, token.tag_)


def _verb_units(doc: Doc, tokens: list[Token]) -> Iterator[_Unit]:
    """Transitive verbs are relations; others are attributes if they are states."""
    for part in verbs(doc):
        verb = tokens[part.head]
        category = RELATION if is_interaction(verb) else ATTRIBUTE if _is_state(verb) else ""
        if category:
            yield _Unit(part.start, part.end, part.head, category, part.head, part.tag)


def _is_state(verb: Token) -> bool:
    """A posture or the like, or what was done to its noun: "parked", "covered", "painted"."""
    if base_form(verb) in _STATES:
        return True
    has_object = any(child.dep_ in ("dobj", "obj") for child in verb.children)
    return verb.tag_ == "VBN" and not has_object and not is_perfect(verb)


def _prepositions(tokens: list[Token], left_out: frozenset[str]) -> Iterator[_Unit]:
    for place, token in enumerate(tokens):
        is_place = token.pos_ == "ADP" and token.lower_ not in left_out and is_spatial(token)
        if is_place and is_whole(tokens, place, place + 1):
            yield _Unit(place, place + 1, place, RELATION, place, token.tag_)
