"""Captions of edited images: what a keyword may become, prompts and a caption to begin with, and what is refused."""

from __future__ import annotations

from difflib import SequenceMatcher
from html import escape

from hfcomp.negatives.keywords.matching import EXTENDED, KeywordMatch, find_keywords, replace_keyword
from hfcomp.negatives.keywords.tables import PAPER_TABLE, SUPER_CATEGORIES
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.noun_phrases import noun_phrases
from hfcomp.parsing.parsers import cached_parser

CONCEPTS = ("object", "color", "size")
"""Of the published set (section 4)."""
_CATEGORY = {name: category for category, names in SUPER_CATEGORIES.items() for name in names}
_ARTICLES = ("a ", "an ", "the ")


def keywords_of(caption: str, concept: str) -> list[KeywordMatch]:
    """The keywords of a concept in a caption, of any case and number."""
    return find_keywords(caption, concept, EXTENDED)


def replacements(concept: str, keyword: str) -> tuple[str, ...]:
    """What may be painted in place of a keyword (section A.3).

    An object becomes another of its super-category of COCO, so that nothing is painted where it cannot be; any other
    color; the opposite of a size. "person" is the only one of its super-category and has none.
    """
    words = PAPER_TABLE.concepts[concept].replacements.get(keyword, ())
    if concept != "object":
        return words
    return tuple(word for word in words if _CATEGORY[word] == _CATEGORY[keyword])


def mask_prompt(caption: str, match: KeywordMatch) -> str:
    """What to segment: the noun phrase with the keyword, without its article; without a phrase the keyword itself."""
    start, end = _phrase(caption, match)
    return _without_article(caption[start:end])


def inpaint_prompt(caption: str, match: KeywordMatch, replacement: str) -> str:
    """What to paint: the phrase of `mask_prompt` with the replacement."""
    start, end = _phrase(caption, match)
    whole = replace_keyword(caption, match, replacement, EXTENDED)
    return _without_article(whole[start : len(whole) - (len(caption) - end)])


def proposed_caption(caption: str, concept: str, prompt: str) -> str:
    """The caption with its keyword as in an inpainting prompt; the caption itself where the prompt names no other.

    Args:
        caption: of the original image.
        concept: of the item.
        prompt: for the inpainting, such as "a yellow jacket".
    """
    own = keywords_of(caption, concept)
    named = {one.keyword for one in keywords_of(prompt, concept)}
    for match in own:
        for word in replacements(concept, match.keyword):
            if word in named and match.keyword not in named:
                return replace_keyword(caption, match, word, EXTENDED)
    return caption


def check_caption(caption: str, original: str, concept: str) -> None:
    """Checks a new caption.

    Raises:
        ValueError: for one that is empty, no caption, the same as the original, or that names an object of another
            super-category in place of one.
    """
    problem = caption_problem(caption)
    if problem:
        raise ValueError(f"The new caption cannot be used: {problem}.")
    if _plain(caption) == _plain(original):
        raise ValueError("The new caption is the original one. Change it so that it is true of the edited image.")
    if concept != "object":
        return
    before, after = ({one.keyword for one in keywords_of(text, concept)} for text in (original, caption))
    categories = {_CATEGORY[word] for word in before - after}
    for word in sorted(after - before):
        if categories and _CATEGORY[word] not in categories:
            allowed = [name for one in sorted(categories) for name in SUPER_CATEGORIES[one]]
            raise ValueError(
                f"{word!r} is not of the super-category of what it replaces ({', '.join(sorted(categories))}). "
                f"Expected one of {', '.join(allowed)}."
            )


def difference_html(original: str, caption: str) -> str:
    """The new caption with its new words marked, and the words that are gone struck through; escaped."""
    before, after = original.split(), caption.split()
    parts = []
    for tag, start, end, other, other_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal" and end > start:
            parts.append(f"<del>{escape(' '.join(before[start:end]))}</del>")
        if other_end > other:
            words = escape(" ".join(after[other:other_end]))
            parts.append(words if tag == "equal" else f"<ins>{words}</ins>")
    return " ".join(parts)


def _phrase(caption: str, match: KeywordMatch) -> tuple[int, int]:
    """Where the phrase with a keyword begins and ends."""
    for phrase in noun_phrases(next(iter(cached_parser("rules").parse([caption])))):
        start, end = phrase.spans[0]
        if len(phrase.spans) == 1 and start <= match.start and match.end <= end:
            return start, end
    return match.start, match.end


def _without_article(text: str) -> str:
    return next((text[len(one) :] for one in _ARTICLES if text.lower().startswith(one)), text)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
