"""Finding the keywords of a table in a caption, and replacing one by another (Rösch et al. 2024)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hfcomp.negatives.keywords.tables import PAPER_TABLE, Concept, KeywordTable, Plurals
from hfcomp.negatives.surface import fit_article

# For "sheep": one word between, because two would let in "a man with sheep" and "a person feeding sheep".
_SINGULAR_BEFORE = re.compile(r"\b(?:a|an|one|another|each|this|that)(?: (?!of |few )[^ ]+)? $", re.IGNORECASE)
_WORD = r"""[^ .,;:!?)'"]+"""
# Captions are searched with a space before them: a pattern that begins with a fixed character is only tried where that
# stands. `$` on purpose: it also stands before a final newline, which some COCO captions carry.
_BOUNDED = r""" (?:{})(?=[ .,;:!?)'"]|$)"""

Place = tuple[int, int, str, int]
"""Start, end and keyword of a match, and the number of its concept."""


@dataclass(frozen=True)
class Matching:
    """How keywords are found and written. Boundaries are the same for all: `PAPER` has every flag off, `EXTENDED` on.

    A keyword stands at the start of the caption or after a space, and before a space, the end or one of
    `. , ; : ! ? ) ' "`; so not inside "red-brick" or "(red".

    Attributes:
        any_case: Match "Red" and "RED" too (the letters A to Z); the replacement takes over a leading capital or full
            capitals.
        plurals: Match plurals too, where the concept has them, and write the replacement in the number that was found
            ("two dogs", "two cats"). A word that is its own plural ("sheep") counts as plural unless "a", "one" or the
            like stands before it, with one word between at most; the table lists words that always or never are.
            Words without a singular are not corrected: "a dog" can become "a scissors".
        articles: Write "a" or "an", when it stands directly before the keyword, to fit the replacement,
            by sound, according to `hfcomp.negatives.surface.starts_like_a_vowel`.
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
        keyword: As the table writes it, whatever case and number the caption uses.
        start: Index of its first character in the caption.
        end: Index after its last character.
        concept: Name of the concept: `object`, `color`, `location` or `size`, or one of your table.
    """

    keyword: str
    start: int
    end: int
    concept: str


def check_concept(concept: str, *, table: KeywordTable = PAPER_TABLE) -> None:
    if concept not in table.concepts:
        raise ValueError(f"concept {concept!r} is not known. The concepts are {', '.join(table.names)}.")


def find_keywords(
    caption: str, concept: str, matching: Matching = PAPER, *, table: KeywordTable = PAPER_TABLE
) -> list[KeywordMatch]:
    """Finds the replaceable keywords of one concept, from left to right.

    The training and test sets of the paper are the captions for which this is not empty (section 3.3, Table 8).

    Args:
        caption: One caption.
        concept: `object`, `color`, `location` or `size`, or one of your table.
        matching: `PAPER` or `EXTENDED`.
        table: The keywords.

    Returns:
        The matches; they do not overlap. Empty if the caption holds no keyword.

    Raises:
        ValueError: The concept is not known.
    """
    places = matcher((concept,), matching, table).find(caption)
    return [KeywordMatch(keyword, start, end, concept) for start, end, keyword, _ in places]


def replace_keyword(
    caption: str,
    match: KeywordMatch,
    replacement: str,
    matching: Matching = PAPER,
    *,
    table: KeywordTable = PAPER_TABLE,
) -> str:
    """Replaces a keyword by another word, given in lower case and singular, and keeps the rest of the caption.

    The match has to come from `find_keywords` with the same caption, matching and table. The matching decides on case,
    number and article of the replacement.
    """
    found = matcher((match.concept,), matching, table)
    surface = caption[match.start : match.end]
    if found.keyword_of(surface) != match.keyword:
        raise ValueError(
            f"characters {match.start} to {match.end} of caption {caption!r} are {surface!r}, not the keyword "
            f"{match.keyword!r}. Pass the caption and the matching with which the match was found."
        )
    if not replacement:
        raise ValueError(f"the replacement of {match.keyword!r} in caption {caption!r} is empty.")
    return found.write(caption, (match.start, match.end, match.keyword, 0), replacement)


class Matcher:
    """Finds and writes the keywords of some concepts; a word that belongs to several has a match for each."""

    def __init__(self, concepts: Sequence[Concept], matching: Matching) -> None:
        self.concepts = tuple(concepts)
        self.matching = matching
        self._forms = [_forms(concept, matching) for concept in self.concepts]
        # Without ASCII, IGNORECASE also takes letters such as the long s, which lower() does not bring back.
        flags = re.ASCII | (re.IGNORECASE if matching.any_case else 0)
        self._passes = [(re.compile(_pattern(meanings), flags), meanings) for meanings in _passes(self._forms)]

    def find(self, caption: str) -> list[Place]:
        """The places of keywords in a caption, from left to right."""
        places: list[Place] = []
        for pattern, meanings in self._passes:
            # A match begins with a space, whose place in the longer text is that of the keyword in the caption; its
            # end is off by one.
            for found in pattern.finditer(" " + caption):
                start, end = found.start(), found.end() - 1
                for keyword, concept in meanings[found.group()[1:].lower()]:
                    places.append((start, end, keyword, concept))
        places.sort()
        return places

    def keyword_of(self, surface: str) -> str | None:
        """The keyword of the first concept that a piece of a caption spells, if any."""
        return self._forms[0].get(surface.lower() if self.matching.any_case else surface)

    def write(self, caption: str, place: Place, replacement: str) -> str:
        """The caption with a replacement for the keyword at a place from `find`."""
        start, end, keyword, concept = place
        word, before = replacement, caption[:start]
        plurals = self.concepts[concept].plurals if self.matching.plurals else None
        if plurals and _is_plural(caption, start, end, keyword, plurals):
            word = plurals.of(word)
        if self.matching.any_case:
            word = _in_case_of(caption[start:end], word, starts_caption=start == 0)
        if self.matching.articles:
            before = fit_article(before, word)
        return before + word + caption[end:]


@lru_cache(maxsize=256)
def matcher(concepts: tuple[str, ...], matching: Matching, table: KeywordTable) -> Matcher:
    """The matcher of concepts by name, kept for the next caption."""
    for concept in concepts:
        check_concept(concept, table=table)
    return Matcher([table.concepts[name] for name in concepts], matching)


def _forms(concept: Concept, matching: Matching) -> dict[str, str]:
    """What a caption may hold of a concept, each with its keyword."""
    forms = {keyword: keyword for keyword in concept.replacements}
    if matching.plurals and concept.plurals:
        forms.update({concept.plurals.of(keyword): keyword for keyword in concept.replacements})
    return forms


Meanings = dict[str, list[tuple[str, int]]]


def _passes(forms_of: Sequence[dict[str, str]]) -> list[Meanings]:
    """Forms that one regular expression may look for together, each with its keywords and their concepts.

    One pass over a caption takes a third of the time of four. But concepts do not see each other, so those of which
    two different forms could take the same text, as they have a word in common, need passes of their own.
    """
    # First fit, as in coloring a graph: a concept joins the first pass in which no other could take its text. The four
    # concepts of Table 6 fit into one pass ("orange" is one form with two meanings).
    passes: list[Meanings] = []
    for concept, forms in enumerate(forms_of):
        meanings = next((one for one in passes if not _could_overlap(forms, one)), None)
        if meanings is None:
            meanings = {}
            passes.append(meanings)
        for form, keyword in forms.items():
            meanings.setdefault(form, []).append((keyword, concept))
    return passes


def _could_overlap(forms: Iterable[str], others: Iterable[str]) -> bool:
    # Equal forms are no conflict, since a match then has both meanings. "dog" of one concept and "hot dog" of another
    # are: whichever matches first would hide the other from its concept.
    holders: dict[str, set[str]] = {}
    for form in others:
        for word in re.findall(_WORD, form):
            holders.setdefault(word, set()).add(form)
    return any(holders.get(word, set()) - {form} for form in forms for word in re.findall(_WORD, form))


def _pattern(forms: Iterable[str]) -> str:
    # Grouped by their first letter: most words of a caption then fail on a few letters and not on all forms. `re`
    # takes the first alternative that fits and not the longest, so "hot dog" must stand before "hot". Sorting before
    # the grouping keeps that order inside each letter, and forms of different letters cannot compete.
    rests: dict[str, list[str]] = {}
    for form in sorted(forms, key=len, reverse=True):
        rests.setdefault(form[0], []).append(re.escape(form[1:]))
    return _BOUNDED.format("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items()))


def _is_plural(caption: str, start: int, end: int, keyword: str, plurals: Plurals) -> bool:
    # The table first, then the words before a keyword that is its own plural, then the form that was found.
    if keyword in plurals.always or keyword in plurals.never:
        return keyword in plurals.always
    if plurals.of(keyword) == keyword:
        return _SINGULAR_BEFORE.search(caption[:start]) is None
    return caption[start:end].lower() != keyword


def _in_case_of(surface: str, word: str, *, starts_caption: bool) -> str:
    if surface.isupper():
        return word.upper()
    # An acronym ("TV monitor") does not pass on its capitals, except where any word would have one.
    if surface[0].isupper() and (starts_caption or not surface[1].isupper()):
        return word[0].upper() + word[1:]
    return word
