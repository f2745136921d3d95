"""Finds the keywords of a table in a caption and replaces them (Rösch et al. 2024)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hfcomp.negatives.keywords.tables import PAPER_TABLE, Concept, KeywordTable, Plurals
from hfcomp.negatives.surface import fit_article

# For "sheep": allow one word in between. Two would also match "a man with sheep" and "a person feeding sheep".
_SINGULAR_BEFORE = re.compile(r"\b(?:a|an|one|another|each|this|that)(?: (?!of |few )[^ ]+)? $", re.IGNORECASE)
_WORD = r"""[^ .,;:!?)'"]+"""
# Captions are searched with a leading space, because a pattern that begins with a fixed character is tried only where
# that character occurs. `$` is deliberate: it also matches before a final newline, which some COCO captions have.
_BOUNDED = r""" (?:{})(?=[ .,;:!?)'"]|$)"""

Occurrence = tuple[int, int, str, int]
"""Start, end and keyword of a match, and the index of its concept."""


@dataclass(frozen=True)
class Matching:
    """Rules for finding and writing keywords. `PAPER` has every flag off, and `EXTENDED` has every flag on.

    Word boundaries are the same for all: a keyword starts the caption or follows a space, and precedes a space, the
    end or one of `. , ; : ! ? ) ' "`. It is therefore not found in "red-brick" or "(red".

    Attributes:
        any_case: Also match "Red" and "RED" (the letters A to Z). The replacement keeps a leading capital or full
            capitals.
        plurals: Also match plurals if the concept has them, and write the replacement in the same number ("two dogs",
            "two cats"). A word that is its own plural ("sheep") counts as plural unless "a", "one" or similar precedes
            it, with at most one word in between; the table lists words that are always or never plural. Words without
            a singular are not corrected: "a dog" can become "a scissors".
        articles: Adapt an "a" or "an" directly before the keyword to the sound of the replacement, as determined by
            `hfcomp.negatives.surface.starts_with_vowel_sound`.
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
        keyword: The keyword as written in the table, whatever case and number the caption uses.
        start: Index of its first character in the caption.
        end: Index after its last character.
        concept: Name of the concept: `object`, `color`, `location`, `size`, or a concept of your table.
    """

    keyword: str
    start: int
    end: int
    concept: str


def check_concept(concept: str, *, table: KeywordTable = PAPER_TABLE) -> None:
    if concept not in table.concepts:
        raise ValueError(f"concept {concept!r} is unknown. Expected one of {', '.join(table.names)}.")


def find_keywords(
    caption: str, concept: str, matching: Matching = PAPER, *, table: KeywordTable = PAPER_TABLE
) -> list[KeywordMatch]:
    """Finds the replaceable keywords of one concept, from left to right.

    The training and test sets of the paper consist of the captions for which the result is not empty (section 3.3,
    Table 8).

    Args:
        caption: Caption to search.
        concept: `object`, `color`, `location`, `size`, or a concept of your table.
        matching: `PAPER` or `EXTENDED`.
        table: Keyword table.

    Returns:
        Matches, which do not overlap. Empty if the caption contains no keyword.

    Raises:
        ValueError: If the concept is unknown.
    """
    occurrences = matcher((concept,), matching, table).find(caption)
    return [KeywordMatch(keyword, start, end, concept) for start, end, keyword, _ in occurrences]


def replace_keyword(
    caption: str,
    match: KeywordMatch,
    replacement: str,
    matching: Matching = PAPER,
    *,
    table: KeywordTable = PAPER_TABLE,
) -> str:
    """Replaces a keyword with another word, passed in lower case and singular, and keeps the rest of the caption.

    The match must come from `find_keywords` with the same caption, matching and table. The matching determines case,
    number and article of the replacement.
    """
    writer = matcher((match.concept,), matching, table)
    surface = caption[match.start : match.end]
    if writer.keyword_of(surface) != match.keyword:
        raise ValueError(
            f"characters {match.start} to {match.end} of caption {caption!r} are {surface!r}, not the keyword "
            f"{match.keyword!r}. Pass the caption and matching that were used to find the match."
        )
    if not replacement:
        raise ValueError(f"the replacement of {match.keyword!r} in caption {caption!r} is empty.")
    return writer.write(caption, (match.start, match.end, match.keyword, 0), replacement)


class Matcher:
    """Finds and replaces the keywords of some concepts. A word of several concepts has one match for each."""

    def __init__(self, concepts: Sequence[Concept], matching: Matching) -> None:
        self.concepts = tuple(concepts)
        self.matching = matching
        self._forms = [_forms(concept, matching) for concept in self.concepts]
        # Without ASCII, IGNORECASE also matches letters such as the long s, which lower() does not convert back.
        flags = re.ASCII | (re.IGNORECASE if matching.any_case else 0)
        self._passes = [(re.compile(_pattern(meanings), flags), meanings) for meanings in _passes(self._forms)]

    def find(self, caption: str) -> list[Occurrence]:
        """Finds the keywords of a caption, from left to right."""
        occurrences: list[Occurrence] = []
        for pattern, meanings in self._passes:
            # A match begins with a space. Its position in the padded text is the position of the keyword in the
            # caption, but its end is off by one.
            for match in pattern.finditer(" " + caption):
                start, end = match.start(), match.end() - 1
                for keyword, concept in meanings[match.group()[1:].lower()]:
                    occurrences.append((start, end, keyword, concept))
        occurrences.sort()
        return occurrences

    def keyword_of(self, surface: str) -> str | None:
        """Returns the first concept's keyword that a piece of a caption spells, or None."""
        return self._forms[0].get(surface.lower() if self.matching.any_case else surface)

    def write(self, caption: str, occurrence: Occurrence, replacement: str) -> str:
        """Returns the caption with a keyword that `find` returned replaced."""
        start, end, keyword, concept = occurrence
        word, before = replacement, caption[:start]
        plurals = self.concepts[concept].plurals if self.matching.plurals else None
        if plurals and _is_plural(caption, start, end, keyword, plurals):
            word = plurals.plural_of(word)
        if self.matching.any_case:
            word = _copy_case(caption[start:end], word, starts_caption=start == 0)
        if self.matching.articles:
            before = fit_article(before, word)
        return before + word + caption[end:]


@lru_cache(maxsize=256)
def matcher(concepts: tuple[str, ...], matching: Matching, table: KeywordTable) -> Matcher:
    """Returns the matcher for concepts by name, cached for further captions."""
    for concept in concepts:
        check_concept(concept, table=table)
    return Matcher([table.concepts[name] for name in concepts], matching)


def _forms(concept: Concept, matching: Matching) -> dict[str, str]:
    """Maps each form in which a concept may appear in a caption to its keyword."""
    forms = {keyword: keyword for keyword in concept.replacements}
    if matching.plurals and concept.plurals:
        forms.update({concept.plurals.plural_of(keyword): keyword for keyword in concept.replacements})
    return forms


Meanings = dict[str, list[tuple[str, int]]]


def _passes(forms_of: Sequence[dict[str, str]]) -> list[Meanings]:
    """Groups forms that a single regular expression can search, each with its keywords and their concepts.

    One pass over a caption takes a third of the time of four passes. But concepts are matched independently, so
    concepts need separate passes if two different forms share a word and could therefore match the same text.
    """
    # First fit, as in graph coloring: a concept joins the first pass in which no other concept could match its text.
    # The four concepts of Table 6 fit into one pass ("orange" is one form with two meanings).
    passes: list[Meanings] = []
    for concept, forms in enumerate(forms_of):
        meanings = next((others for others in passes if not _could_overlap(forms, others)), None)
        if meanings is None:
            meanings = {}
            passes.append(meanings)
        for form, keyword in forms.items():
            meanings.setdefault(form, []).append((keyword, concept))
    return passes


def _could_overlap(forms: Iterable[str], others: Iterable[str]) -> bool:
    # Equal forms do not conflict, because the match has both meanings. "dog" of one concept and "hot dog" of another
    # do: whichever matches first would hide the other from its concept.
    forms_by_word: dict[str, set[str]] = {}
    for form in others:
        for word in re.findall(_WORD, form):
            forms_by_word.setdefault(word, set()).add(form)
    return any(forms_by_word.get(word, set()) - {form} for form in forms for word in re.findall(_WORD, form))


def _pattern(forms: Iterable[str]) -> str:
    # Group forms by first letter, so most words of a caption fail on a few letters instead of on all forms. `re` takes
    # the first alternative that matches, not the longest, so "hot dog" must come before "hot". Sorting before grouping
    # keeps that order within each letter, and forms with different first letters cannot compete.
    rests: dict[str, list[str]] = {}
    for form in sorted(forms, key=len, reverse=True):
        rests.setdefault(form[0], []).append(re.escape(form[1:]))
    return _BOUNDED.format("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items()))


def _is_plural(caption: str, start: int, end: int, keyword: str, plurals: Plurals) -> bool:
    # Check the table, then the words before a keyword that is its own plural, then the form in the caption.
    if keyword in plurals.always or keyword in plurals.never:
        return keyword in plurals.always
    if plurals.plural_of(keyword) == keyword:
        return _SINGULAR_BEFORE.search(caption[:start]) is None
    return caption[start:end].lower() != keyword


def _copy_case(surface: str, word: str, *, starts_caption: bool) -> str:
    if surface.isupper():
        return word.upper()
    # An acronym ("TV monitor") does not pass on its capitals, except where any word would have one.
    if surface[0].isupper() and (starts_caption or not surface[1].isupper()):
        return word[0].upper() + word[1:]
    return word
