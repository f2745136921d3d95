"""Captions of edited images: what a keyword may become, prompts and a caption to begin with, and what is refused."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Literal, get_args

from hfcomp.negatives.keywords.matching import EXTENDED, KeywordMatch, find_keywords, replace_keyword
from hfcomp.negatives.keywords.tables import COLORS, PAPER_TABLE, SUPER_CATEGORIES
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.noun_phrases import NounPhrase, noun_phrases
from hfcomp.parsing.parsers import cached_parser

Concept = Literal["object", "color", "size"]
# Concepts of the published set (section 4).
CONCEPTS: tuple[Concept, ...] = get_args(Concept)
_CATEGORY = {name: category for category, names in SUPER_CATEGORIES.items() for name in names}
# Before an adjective that is parsed as a noun: "the wall is orange", but not "it is an orange".
_PREDICATE = re.compile(r"\b(?:is|are|was|were|painted|colored) (?:\w+ly )?$", re.IGNORECASE)
_ARTICLES = ("a ", "an ", "the ")


def load_caption_parser() -> None:
    """Loads the parser, which takes seconds, so that the first caption does not wait for it."""
    list(cached_parser("rules").parse(["a red bus"]))


def keywords_of(caption: str, concept: str) -> list[KeywordMatch]:
    """The keywords of a concept in a caption, of any case and number."""
    return find_keywords(caption, concept, EXTENDED)


def editable_keywords(caption: str, concept: str) -> list[KeywordMatch]:
    """The keywords that something may be painted for.

    They have replacements, and the sense of their concept: an object is the last word of its noun phrase, as "bus
    stop" does not name a bus, nor "an orange jacket" an orange. A color that is also an object is not the last word,
    as in "an orange on a plate". Our choice: the paper leaves this to the annotators.
    """
    found = [one for one in keywords_of(caption, concept) if replacements(concept, one.keyword)]
    return [one for one in found if _has_its_sense(caption, one)]


def replacements(concept: str, keyword: str) -> tuple[str, ...]:
    """What may be painted in place of a keyword (section A.3).

    An object becomes another of its super-category of COCO, so that nothing is painted where it cannot be; any other
    color; the opposite of a size. "person" is the only one of its super-category and has none.
    """
    words = PAPER_TABLE.concepts[concept].replacements.get(keyword, ())
    if concept != "object":
        return words
    return tuple(word for word in words if _CATEGORY[word] == _CATEGORY[keyword])


def names(text: str, concept: str, word: str) -> bool:
    """Whether a text has a word of a concept, in any case and number; also one that only ever replaces, as "tiny"."""
    if word in PAPER_TABLE.concepts[concept].replacements:
        return any(one.keyword == word for one in keywords_of(text, concept))
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def is_same_caption(text: str, other: str) -> bool:
    """Whether two captions differ in case, spaces and the final full stop at most."""
    return _plain(text) == _plain(other)


def mask_prompt(caption: str, match: KeywordMatch) -> str:
    """What to segment: the noun phrase with the keyword, without its article.

    For a color or size outside the phrase ("the car is red") it is the phrase before, else the first one; without any
    phrase the keyword itself.
    """
    phrase = _phrase_of(caption, match)
    return caption[match.start : match.end] if phrase is None else _without_article(phrase.text)


def inpaint_prompt(caption: str, match: KeywordMatch, replacement: str) -> str:
    """What to paint: the phrase of `mask_prompt` with the replacement, which follows the number of the keyword."""
    phrase = _phrase_of(caption, match)
    text = caption[match.start : match.end] if phrase is None else phrase.text
    own = next((one for one in keywords_of(text, match.concept) if one.keyword == match.keyword), None)
    if own is None:
        return f"{replacement} {_without_article(text)}"
    return _without_article(replace_keyword(text, own, replacement, EXTENDED))


def proposed_caption(caption: str, concept: str, prompt: str) -> str:
    """The caption with its keyword as in an inpainting prompt; the caption itself where the prompt names no other.

    Of several keywords that may become what the prompt names, it is the one whose phrase has most words of the prompt:
    of "a red car beside a red bus", "a blue bus" changes the bus.
    """
    words = {*prompt.casefold().split()}
    choices = [
        (match, word)
        for match in keywords_of(caption, concept)
        for word in replacements(concept, match.keyword)
        if names(prompt, concept, word) and not names(prompt, concept, match.keyword)
    ]
    if not choices:
        return caption
    # The phrase that shares the most words with the prompt is the one that was painted.
    match, word = max(choices, key=lambda choice: len(words & {*mask_prompt(caption, choice[0]).casefold().split()}))
    return replace_keyword(caption, match, word, EXTENDED)


def check_caption(caption: str, original: str, concept: str) -> None:
    """Checks a new caption."""
    if not caption.strip():
        raise ValueError("The new caption is empty. Describe the edited image, in the words of the original caption.")
    problem = caption_problem(caption)
    if problem:
        raise ValueError(f"The new caption cannot be used: {problem}.")
    if is_same_caption(caption, original):
        raise ValueError("The new caption is the original one. Change it so that it is true of the edited image.")
    if concept != "object":
        return
    before, after = ({one.keyword for one in keywords_of(text, concept)} for text in (original, caption))
    # Added objects are compared with removed ones. A caption that only adds an object replaces none.
    categories = {_CATEGORY[word] for word in before - after}
    for word in sorted(after - before):
        if categories and _CATEGORY[word] not in categories:
            allowed = [name for one in sorted(categories) for name in SUPER_CATEGORIES[one]]
            raise ValueError(
                f"{word!r} is not of the super-category of what it replaces ({', '.join(sorted(categories))}). "
                f"Expected one of {', '.join(allowed)}."
            )


@lru_cache(maxsize=1024)  # the prompts and the caption of an item are made of the same ones
def _phrases(caption: str) -> tuple[NounPhrase, ...]:
    return tuple(noun_phrases(next(iter(cached_parser("rules").parse([caption])))))


def _holds(phrase: NounPhrase, match: KeywordMatch) -> bool:
    return any(start <= match.start and match.end <= end for start, end in phrase.spans)


def _has_its_sense(caption: str, match: KeywordMatch) -> bool:
    if match.keyword not in _CATEGORY:
        return True
    phrase = next((one for one in _phrases(caption) if _holds(one, match)), None)
    if phrase is None:
        return True
    is_last = phrase.spans[-1][1] == match.end
    # "orange" as a whole phrase may be the fruit or the color: the verb before it decides.
    may_be_color = match.keyword in COLORS and phrase.spans == ((match.start, match.end),)
    is_noun = is_last and not (may_be_color and _PREDICATE.search(caption[: match.start]))
    return is_noun == (match.concept == "object")


def _phrase_of(caption: str, match: KeywordMatch) -> NounPhrase | None:
    """The phrase that a keyword is said of."""
    phrases = _phrases(caption)
    own = next((one for one in phrases if _holds(one, match)), None)
    if own is not None or match.concept == "object" or not phrases:
        return own
    before = [one for one in phrases if one.spans[-1][1] <= match.start]
    return before[-1] if before else phrases[0]


def _without_article(text: str) -> str:
    return next((text[len(one) :] for one in _ARTICLES if text.lower().startswith(one)), text)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")
