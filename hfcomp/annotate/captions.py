"""Captions of edited images: replacements for keywords, initial prompts and captions, and checks of new captions."""

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
# Concepts of the published dataset (section 4).
CONCEPTS: tuple[Concept, ...] = get_args(Concept)
_CATEGORY = {name: category for category, names in SUPER_CATEGORIES.items() for name in names}
# What precedes an adjective that is parsed as a noun: "the wall is orange", but not "it is an orange".
_PREDICATE = re.compile(r"\b(?:is|are|was|were|painted|colored) (?:\w+ly )?$", re.IGNORECASE)
_ARTICLES = ("a ", "an ", "the ")


def load_caption_parser() -> None:
    """Loads the parser in advance. It takes seconds, and the first caption would wait for it."""
    list(cached_parser("rules").parse(["a red bus"]))


def concept_keywords(caption: str, concept: str) -> list[KeywordMatch]:
    """Finds the keywords of a concept in a caption, in any case and number."""
    return find_keywords(caption, concept, EXTENDED)


def editable_keywords(caption: str, concept: str) -> list[KeywordMatch]:
    """Finds the keywords that can be replaced by painting.

    Such a keyword has replacements and is used in the sense of its concept. An object must be the last word of its
    noun phrase, because "bus stop" does not name a bus, nor "an orange jacket" an orange. A color that is also an
    object must not be the last word, as it is in "an orange on a plate". Our choice: the paper leaves this to the
    annotators.
    """
    matches = [match for match in concept_keywords(caption, concept) if replacements(concept, match.keyword)]
    return [match for match in matches if _has_its_sense(caption, match)]


def replacements(concept: str, keyword: str) -> tuple[str, ...]:
    """Returns the words that may be painted in place of a keyword (section A.3).

    An object is replaced by another object of its COCO super-category, so that the new object is plausible there. A
    color is replaced by any other color, and a size by its opposite. "person" is the only object of its super-category
    and has no replacements.
    """
    words = PAPER_TABLE.concepts[concept].replacements.get(keyword, ())
    if concept != "object":
        return words
    return tuple(word for word in words if _CATEGORY[word] == _CATEGORY[keyword])


def contains_word(text: str, concept: str, word: str) -> bool:
    """Whether a text contains a word of a concept in any case and number.

    The word may also be one that only occurs as a replacement, such as "tiny".
    """
    if word in PAPER_TABLE.concepts[concept].replacements:
        return any(match.keyword == word for match in concept_keywords(text, concept))
    return re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) is not None


def is_same_caption(text: str, other: str) -> bool:
    """Whether two captions differ at most in case, spaces and the final full stop."""
    return _normalize(text) == _normalize(other)


def mask_prompt(caption: str, match: KeywordMatch) -> str:
    """Returns what to segment: the noun phrase that contains the keyword, without its article.

    For a color or size outside any phrase ("the car is red"), it is the phrase before the keyword, or else the first
    phrase. In a caption without phrases, it is the keyword itself.
    """
    phrase = _described_phrase(caption, match)
    return caption[match.start : match.end] if phrase is None else _without_article(phrase.text)


def inpaint_prompt(caption: str, match: KeywordMatch, replacement: str) -> str:
    """Returns what to paint: the phrase of `mask_prompt` with the replacement, inflected like the keyword."""
    phrase = _described_phrase(caption, match)
    text = caption[match.start : match.end] if phrase is None else phrase.text
    own = next((other for other in concept_keywords(text, match.concept) if other.keyword == match.keyword), None)
    if own is None:
        return f"{replacement} {_without_article(text)}"
    return _without_article(replace_keyword(text, own, replacement, EXTENDED))


def proposed_caption(caption: str, concept: str, prompt: str) -> str:
    """Returns the caption with its keyword replaced as in an inpainting prompt.

    If several keywords could be replaced by what the prompt names, the one whose phrase shares the most words with the
    prompt is replaced: in "a red car beside a red bus", the prompt "a blue bus" changes the bus. If the prompt names
    no replacement, the caption is returned unchanged.
    """
    words = {*prompt.casefold().split()}
    choices = [
        (match, word)
        for match in concept_keywords(caption, concept)
        for word in replacements(concept, match.keyword)
        if contains_word(prompt, concept, word) and not contains_word(prompt, concept, match.keyword)
    ]
    if not choices:
        return caption
    # The phrase that shares the most words with the prompt is the one being painted.
    match, word = max(choices, key=lambda choice: len(words & {*mask_prompt(caption, choice[0]).casefold().split()}))
    return replace_keyword(caption, match, word, EXTENDED)


def check_caption(caption: str, original: str, concept: str) -> None:
    """Raises ValueError if a new caption is empty, unusable, unchanged, or swaps in an object of another category."""
    if not caption.strip():
        raise ValueError("The new caption is empty. Describe the edited image in the words of the original caption.")
    problem = caption_problem(caption)
    if problem:
        raise ValueError(f"The new caption cannot be used: {problem}.")
    if is_same_caption(caption, original):
        raise ValueError("The new caption is the same as the original. Change it so that it fits the edited image.")
    if concept != "object":
        return
    before, after = ({match.keyword for match in concept_keywords(text, concept)} for text in (original, caption))
    # Compare added objects with removed ones. A caption that only adds an object replaces none.
    categories = {_CATEGORY[word] for word in before - after}
    for word in sorted(after - before):
        if categories and _CATEGORY[word] not in categories:
            allowed = [name for category in sorted(categories) for name in SUPER_CATEGORIES[category]]
            raise ValueError(
                f"{word!r} is not in the super-category of the object it replaces ({', '.join(sorted(categories))}). "
                f"Expected one of {', '.join(allowed)}."
            )


@lru_cache(maxsize=1024)  # the prompts and the caption of an item come from the same phrases
def _phrases(caption: str) -> tuple[NounPhrase, ...]:
    return tuple(noun_phrases(next(iter(cached_parser("rules").parse([caption])))))


def _contains(phrase: NounPhrase, match: KeywordMatch) -> bool:
    return any(start <= match.start and match.end <= end for start, end in phrase.spans)


def _has_its_sense(caption: str, match: KeywordMatch) -> bool:
    if match.keyword not in _CATEGORY:
        return True
    phrase = next((phrase for phrase in _phrases(caption) if _contains(phrase, match)), None)
    if phrase is None:
        return True
    is_last = phrase.spans[-1][1] == match.end
    # "orange" as a whole phrase may be the fruit or the color: the verb before it decides.
    may_be_color = match.keyword in COLORS and phrase.spans == ((match.start, match.end),)
    is_noun = is_last and not (may_be_color and _PREDICATE.search(caption[: match.start]))
    return is_noun == (match.concept == "object")


def _described_phrase(caption: str, match: KeywordMatch) -> NounPhrase | None:
    """Returns the phrase that a keyword belongs to or describes."""
    phrases = _phrases(caption)
    own = next((phrase for phrase in phrases if _contains(phrase, match)), None)
    if own is not None or match.concept == "object" or not phrases:
        return own
    before = [phrase for phrase in phrases if phrase.spans[-1][1] <= match.start]
    return before[-1] if before else phrases[0]


def _without_article(text: str) -> str:
    return next((text[len(article) :] for article in _ARTICLES if text.lower().startswith(article)), text)


def _normalize(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")
