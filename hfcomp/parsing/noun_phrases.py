"""Noun phrases of parsed captions: the concepts of C2LIP (section 4.1 of the paper), extracted from dependency trees.

A phrase is a noun with its preceding modifiers: determiner, adjectives with their adverbs, numbers and compounds ("a
very large traffic light"). Nouns in clauses and prepositional phrases form their own phrases: "a man with a hat riding
a horse" gives "a man", "a hat" and "a horse". The paper leaves the rest open. Our choices:

* In possessives, the owner stays in the phrase as its determiner ("the man's hat") and has no phrase of its own.
  Pronouns are dropped ("its own red hat" gives "red hat"), because they refer to something outside the phrase.
* Quantities stay with what they count ("a group of people", "two slices of pizza"): "a group" by itself is
  uninformative, and "pizza" loses its number. Containers are things: "a bowl of fruit" gives "a bowl" and "fruit".
* Nouns joined by "and" have one phrase each. Adjectives joined by "and" share one ("a red and blue cup" is one cup),
  unless the second has its own determiner or number: "a red and a blue cup" gives "a red cup" and "a blue cup". Nouns
  that the tree puts under one noun also form a single phrase ("salt and pepper shakers").
* What a caption negates ("no furniture", "without a shirt") is not a concept, because it is not in the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hfcomp.parsing.captions import Span
from hfcomp.parsing.tree import CONJUNCTIONS, DETERMINERS, NOUNS, CaptionTree
from hfcomp.parsing.words import EXCLUDED_WORDS, ExcludedWords

if TYPE_CHECKING:
    from spacy.tokens import Doc

# Reasons for skipping a phrase, in addition to the fields of `ExcludedWords`.
PRONOUN, DENIED, REPEATED = "pronoun", "denied", "repeated"

_HEADING = frozenset((*NOUNS, "ADJ", "PRON"))
_DESCRIBING = ("amod", "nummod", "compound", "nmod")
# Labels of adjectives that describe a noun elsewhere.
_PREDICATES = ("acomp", "amod", "advcl", "oprd", "pcomp", "xcomp")
_LINKS = CONJUNCTIONS | {","}
_COUNTS_ONE = ("a", "an", "one", "another", "each", "every")


class NounPhrase(NamedTuple):
    """A noun phrase of a caption.

    Attributes:
        text: Words as written in the caption, separated by single spaces. A plural noun shared by several phrases is
            made singular if the phrase counts one ("one red cup" in "one red and two blue cups").
        spans: `[start, end)` in characters of the caption, from left to right. There are several if phrases share a
            noun: "a red cup" in "a red and a blue cup" has the spans of "a red" and "cup".
        head: Dictionary form of the head noun in lower case: "people" in "a group of people".
    """

    text: str
    spans: tuple[Span, ...]
    head: str


class _Extent(NamedTuple):
    """First word and noun of a phrase, and its last word, which is the noun itself or a noun after "of"."""

    start: int
    noun: int
    last: int


def noun_phrases(doc: Doc, *, excluded: ExcludedWords = EXCLUDED_WORDS) -> list[NounPhrase]:
    """Extracts the noun phrases of a caption, as defined in the module's docstring.

    Args:
        doc: Parsed caption with word classes, Penn tags, lemmas and a tree with the labels of spaCy's pipelines.
        excluded: Nouns that are not concepts.

    Returns:
        The phrases from left to right, without duplicates. No two cover the same word, except phrases that share their
        noun. Empty if the caption names no thing; readers of the empty list, such as
        `hfcomp.data.collators.CompositionalCollator`, then use the caption itself as the concept.
    """
    return sift_noun_phrases(doc, excluded=excluded)[0]


def sift_noun_phrases(doc: Doc, *, excluded: ExcludedWords = EXCLUDED_WORDS) -> tuple[list[NounPhrase], Counter[str]]:
    """Extracts noun phrases like `noun_phrases`, and counts the skipped phrases by reason.

    Returns:
        The phrases, and counts under `PRONOUN`, `DENIED`, `REPEATED` and the fields of `ExcludedWords`.
    """
    tree = CaptionTree(doc)
    skipped: Counter[str] = Counter()
    phrases: dict[str, NounPhrase] = {}
    for extent in _longest(_extents(tree, excluded, skipped)):
        for phrase in _phrases_in(tree, extent):
            folded = phrase.text.casefold()
            if folded in phrases:
                skipped[REPEATED] += 1
            else:
                phrases[folded] = phrase
    return list(phrases.values()), skipped


def _extents(tree: CaptionTree, excluded: ExcludedWords, skipped: Counter[str]) -> Iterator[_Extent]:
    # Go from left to right and continue after each phrase: "people" in "a group of people" heads no second phrase.
    counted = -1
    for word, word_class in enumerate(tree.classes):
        if word <= counted or word_class not in _HEADING:
            continue
        if word_class == "PRON" and tree.tags[word] in ("PRP", "NN", "DT"):
            skipped[PRONOUN] += 1
        if not (tree.heads_phrase(word) or _owns_excluded_noun(tree, word, excluded)):
            continue
        extent = _extent(tree, word)
        counted = extent.last
        reason = _exclusion_reason(tree, extent, excluded)
        if reason is None:
            yield extent
        else:
            skipped[reason] += 1


def _extent(tree: CaptionTree, noun: int) -> _Extent:
    last = noun
    while (measured := tree.measured_noun(last)) >= 0:
        last = measured
    start = tree.start_of(noun)
    # "a cat left of a dog", if a parser treats "left" as the head noun
    if tree.lower[noun] in ("left", "right") and start < noun and tree.classes[noun - 1] in NOUNS:
        noun = last = noun - 1
    # "a black and silver car", if a parser joins "a black" to "silver car"
    while tree.tags[start] not in DETERMINERS and (adjective := _joined_adjective(tree, start, noun)) >= 0:
        start = tree.start_of(adjective)
    return _Extent(start, noun, last)


def _owns_excluded_noun(tree: CaptionTree, noun: int, excluded: ExcludedWords) -> bool:
    """Whether an owner is a concept because its possession is not: "the cow" in "the cow's side"."""
    # If the possession is a concept, as in "the cow's tail", the owner is part of its phrase and heads none of its
    # own.
    if tree.labels[noun] != "poss" or tree.classes[noun] not in NOUNS:
        return False
    owned = tree.heads[noun]
    return tree.heads_phrase(owned) and _exclusion_reason(tree, _extent(tree, owned), excluded) is not None


def _exclusion_reason(tree: CaptionTree, extent: _Extent, excluded: ExcludedWords) -> str | None:
    # Check the last word, which carries the meaning: "a group" in "a group of people" is not a region.
    last, word = extent.last, tree.base_form(extent.last)
    if tree.is_denied(extent.noun) or (last != extent.noun and tree.is_denied(last)):
        return DENIED
    if word == "up" and "close" in tree.lower[max(0, last - 2) : last]:
        word = "close-up"
    if word not in excluded.all:
        return None
    if word in excluded.picture and (tree.tags[last] not in ("NNS", "NNPS") or tree.is_before_of(last)):
        return "picture"
    if word in excluded.region and not tree.has_modifier(last, ("compound",), besides=excluded.region):
        return "region"
    if word in excluded.place and not tree.has_modifier(last, _DESCRIBING):
        return "place"
    if word in excluded.time:
        return "time"
    return "empty" if word in excluded.empty else None


def _longest(extents: Iterator[_Extent]) -> list[_Extent]:
    """Drops extents inside other extents, which occur only in malformed trees."""
    # Extents are sorted by noun, so a later one may start before the extents it contains. These are dropped from the
    # end, each at most once.
    kept: list[_Extent] = []
    for extent in extents:
        while kept and kept[-1].start >= extent.start:
            kept.pop()
        if not kept or kept[-1].last < extent.start:
            kept.append(extent)
    return kept


def _phrases_in(tree: CaptionTree, extent: _Extent) -> Iterator[NounPhrase]:
    """Yields the phrases that share the noun of an extent, and then the phrase of the extent itself."""
    sharing, start = _sharing_parts(tree, extent)
    end = tree.end_of(extent.last)
    if not sharing:
        yield _phrase(tree, extent.last, (start, end))
        return
    # The phrases share the noun with its compounds ("fire hydrant"), but not the adjective before it, which belongs
    # only to the last phrase.
    described = start
    while tree.tags[described] in DETERMINERS:
        described += 1
    shared = noun = extent.noun
    while shared - 1 > described and (tree.labels[shared - 1] == "compound" or tree.is_glued(shared)):
        shared -= 1
    for first, last in sharing:
        yield _make_singular(tree, noun, _phrase(tree, noun, (first, last), (shared, end)))
    yield _make_singular(tree, noun, _phrase(tree, noun, (start, end)))


def _sharing_parts(tree: CaptionTree, extent: _Extent) -> tuple[list[tuple[int, int]], int]:
    """Finds what shares a noun with the phrase that ends in it: "a red" in "a red and a blue cup".

    Parsers analyze this in two ways: all words are under the noun, or "a red" is a phrase to which the noun is joined.

    Returns:
        First and last word of each sharing part, and the first word of the phrase itself.
    """
    start, noun, last = extent
    sharing: list[tuple[int, int]] = []
    if last != noun or not tree.has_conjunctions:
        return sharing, start
    # First way: all is under one noun, and a link with a determiner begins a new phrase ("a red and | a blue cup").
    for link in range(start + 1, noun - 1):
        if tree.lower[link] in _LINKS and tree.tags[link + 1] in DETERMINERS and tree.tags[link - 1] != "CD":
            end = link - 1
            while tree.lower[end] in _LINKS:
                end -= 1
            sharing.append((start, end))
            start = link + 1
    # "other" does not count: in "an orange and some other fruit", the orange is a separate noun.
    if sharing or tree.tags[start] not in DETERMINERS or not tree.has_modifier(noun, ("amod",), besides=("other",)):
        return sharing, start
    # Second way: "a red" is a phrase headed by an adjective. Follow the conjunctions to the left through such phrases.
    first = start
    while (adjective := _joined_adjective(tree, first, noun)) >= 0:
        first = tree.start_of(adjective)
        if tree.tags[first] not in DETERMINERS:
            break
        sharing.insert(0, (first, adjective))
    return sharing, start


def _joined_adjective(tree: CaptionTree, start: int, noun: int) -> int:
    """Returns the adjective joined by "and" or a comma to a noun whose phrase begins at `start`, or -1."""
    word = start - 1
    if not tree.has_conjunctions or word < 1:
        return -1
    while word > 0 and tree.lower[word] in _LINKS:
        word -= 1
    first = tree.first_joined(word)
    joined = word < start - 1 and tree.classes[word] == "ADJ" and first == tree.first_joined(noun)
    return word if joined and tree.labels[first] not in _PREDICATES else -1


def _phrase(tree: CaptionTree, noun: int, *pieces: tuple[int, int]) -> NounPhrase:
    spans = tuple([tree.span(first, last) for first, last in pieces])
    text = " ".join([tree.caption[start:end] for start, end in spans])
    return NounPhrase(" ".join(text.split()), spans, tree.base_form(noun))


def _make_singular(tree: CaptionTree, noun: int, phrase: NounPhrase) -> NounPhrase:
    """Makes a phrase singular if it counts one: "one red cup" in "one red and two blue cups"."""
    if tree.tags[noun] != "NNS" or phrase.text.split()[0].lower() not in _COUNTS_ONE:
        return phrase
    return phrase._replace(text=phrase.text.removesuffix(tree.words[noun]) + phrase.head)
