"""Finding the keywords of Table 6 in a caption, and writing another in the place of one (Rösch et al. 2024)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from hfcomp.negatives.keyword_tables import CONCEPTS, OBJECTS, REPLACEMENTS

IRREGULAR_PLURALS = {
    "person": "people",
    "mouse": "mice",
    "knife": "knives",
    "sheep": "sheep",
    "skis": "skis",
    "scissors": "scissors",
    "broccoli": "broccoli",
}
_ALWAYS_PLURAL = frozenset({"skis", "scissors"})
# For "sheep": one word between, because with two "a man with sheep" and "a person feeding sheep" come in.
_SINGULAR_BEFORE = re.compile(r"\b(?:a|an|one|another|each|this|that)(?: (?!of |few )[^ ]+)? $", re.IGNORECASE)
_ARTICLE_BEFORE = re.compile(r"(?<![^ ])an?(?= $)", re.IGNORECASE)
# `$` on purpose: it also stands before a final newline, which some COCO captions carry.
_BOUNDED = r"""(?<![^ ])(?:{})(?=[ .,;:!?)'"]|$)"""


@dataclass(frozen=True)
class Matching:
    """How keywords are found and written. Boundaries are the same for all: `PAPER` has every flag off, `EXTENDED` on.

    A keyword stands at the start of the caption or after a space, and before a space, the end or one of
    `. , ; : ! ? ) ' "`; so not inside "red-brick" or "(red".

    Attributes:
        any_case: Match "Red" and "RED" too; the replacement takes over a leading capital or full capitals.
        plurals: Match the plurals of objects too, and write the replacement in the number that was found ("two dogs",
            "two cats"). Other concepts have none. "skis" and "scissors" count as plural, "broccoli" as singular,
            "sheep" as plural unless "a", "one" or the like stands before it, with one word between at most. Words
            without a singular are not mended: "a dog" can become "a scissors".
        articles: Write "a" or "an", when it stands directly before the keyword, to fit the replacement.
    """

    any_case: bool = False
    plurals: bool = False
    articles: bool = False


PAPER = Matching()
EXTENDED = Matching(any_case=True, plurals=True, articles=True)
MATCHINGS = {"paper": PAPER, "extended": EXTENDED}


@dataclass(frozen=True)
class KeywordMatch:
    """A keyword found in a caption.

    Attributes:
        keyword: As Table 6 writes it, whatever case and number the caption uses.
        start: Index of its first character in the caption.
        end: Index after its last character.
        concept: `object`, `color`, `location` or `size`.
    """

    keyword: str
    start: int
    end: int
    concept: str


def check_concept(concept: str) -> None:
    """Raises `ValueError` for a concept that Table 6 does not have."""
    if concept not in REPLACEMENTS:
        raise ValueError(f"concept {concept!r} is not known. The concepts are {', '.join(CONCEPTS)}.")


def _plural(word: str) -> str:
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word + "s"


@cache
def _surface_forms(concept: str, plurals: bool) -> dict[str, str]:
    forms = {keyword: keyword for keyword in REPLACEMENTS[concept]}
    if plurals and concept == "object":
        forms.update({_plural(keyword): keyword for keyword in OBJECTS})
    return forms


@cache
def _pattern(concept: str, matching: Matching) -> re.Pattern[str]:
    longest_first = sorted(_surface_forms(concept, matching.plurals), key=len, reverse=True)
    # Without ASCII, IGNORECASE also takes letters such as the long s, which lower() does not bring back to the table.
    flags = re.ASCII | (re.IGNORECASE if matching.any_case else 0)
    return re.compile(_BOUNDED.format("|".join(map(re.escape, longest_first))), flags)


def find_keywords(caption: str, concept: str, matching: Matching = PAPER) -> list[KeywordMatch]:
    """Finds the replaceable keywords of one concept, from left to right.

    The training and test sets of the paper are the captions for which this is not empty (section 3.3, Table 8).

    Args:
        caption: One caption.
        concept: `object`, `color`, `location` or `size`.
        matching: `PAPER` or `EXTENDED`.

    Returns:
        The matches; they do not overlap. Empty if the caption holds no keyword.

    Raises:
        ValueError: The concept is not known.
    """
    check_concept(concept)
    forms = _surface_forms(concept, matching.plurals)
    return [
        KeywordMatch(keyword=forms[found.group().lower()], start=found.start(), end=found.end(), concept=concept)
        for found in _pattern(concept, matching).finditer(caption)
    ]


def _is_plural(caption: str, match: KeywordMatch) -> bool:
    if match.keyword == "sheep":
        return _SINGULAR_BEFORE.search(caption[: match.start]) is None
    return match.keyword in _ALWAYS_PLURAL or caption[match.start : match.end].lower() != match.keyword


def _in_case_of(surface: str, word: str, *, starts_caption: bool) -> str:
    if surface.isupper():
        return word.upper()
    # An acronym ("TV monitor") is no capital to hand on, except where any word would have one.
    if surface[0].isupper() and (starts_caption or not surface[1].isupper()):
        return word[0].upper() + word[1:]
    return word


def _fit_article(before: str, word: str) -> str:
    found = _ARTICLE_BEFORE.search(before)
    if found is None:
        return before
    article = "an" if word[0].lower() in "aeiou" else "a"
    if found.group()[0] == "A":
        article = article.upper() if word.isupper() else article.capitalize()
    return before[: found.start()] + article + before[found.end() :]


def replace_keyword(caption: str, match: KeywordMatch, replacement: str, matching: Matching = PAPER) -> str:
    """Writes another word in the place of a keyword and leaves the rest of the caption as it is.

    Args:
        caption: The caption in which the match was found.
        match: From `find_keywords` with the same matching.
        replacement: Lower case and singular, as Table 6 writes it; the matching's flags decide what is made of it.
        matching: `PAPER` writes the replacement as it is; see `Matching` for case, number and article.

    Returns:
        The new caption.

    Raises:
        ValueError: The caption does not hold the match's keyword at that place, or the replacement is empty.
    """
    surface = caption[match.start : match.end]
    folded = surface.lower() if matching.any_case else surface
    if _surface_forms(match.concept, matching.plurals).get(folded) != match.keyword:
        raise ValueError(
            f"characters {match.start} to {match.end} of caption {caption!r} are {surface!r}, not the keyword "
            f"{match.keyword!r}. Pass the caption and the matching with which the match was found."
        )
    if not replacement:
        raise ValueError(f"the replacement of {match.keyword!r} in caption {caption!r} is empty.")
    word, before = replacement, caption[: match.start]
    if matching.plurals and match.concept == "object" and _is_plural(caption, match):
        word = _plural(word)
    if matching.any_case:
        word = _in_case_of(surface, word, starts_caption=match.start == 0)
    if matching.articles:
        before = _fit_article(before, word)
    return before + word + caption[match.end :]
