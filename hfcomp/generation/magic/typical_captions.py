"""Generalised captions without a language model: the most typical caption of an image, without its details."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hfcomp.generation.magic.names import canonical_name
from hfcomp.negatives.surface import fit_article
from hfcomp.parsing import cached_parser

if TYPE_CHECKING:
    from spacy.tokens import Doc

_WORD = re.compile(r"[^\W\d_]+")
_NOUNS = ("NN", "NNS", "NNP", "NNPS")
_DETAILS = ("JJ", "JJR", "JJS", "CD", "RB", "RBR", "RBS")
_BETWEEN = (*_DETAILS, "CC", ",", "HYPH")
# What may not be the end of a caption once a phrase behind it is cut off.
_LOOSE = frozenset(("IN", "RB", "JJ", "DT", "CC", "TO", "WDT", "WP", "PRP$", ","))
_LOOSE_WORDS = frozenset(("next", "front", "top", "side", "is", "are", "was", "were", "has", "have", "be", "that"))
_CLOSING = (",", ".", ":", "-RRB-")
SHORTEST = 4
"""Words that a caption keeps when its last phrase is cut off. Our choice."""


def generalised_caption(captions: Sequence[str], chain: Sequence[str]) -> str:
    """The most typical caption without adjectives, numbers, and the phrase at its end.

    The most typical one shares the most words with the others; of equal ones the shortest, then the first. It is no
    name of the chain: one that would be begins with "there is".

    Args:
        captions: of one image, at least one.
        chain: the names of its concepts.
    """
    words = [{word.lower() for word in _WORD.findall(text)} for text in captions]
    shared = [sum(len(own & other) for other in words) / (1 + len(own)) for own in words]
    best = min(range(len(captions)), key=lambda place: (-shared[place], len(captions[place]), place))
    text = " ".join(captions[best].split())
    (doc,) = cached_parser("rules").parse([text])
    found = _without_details(doc) or text
    return f"there is {found}" if canonical_name(found) in chain else found


def _without_details(doc: Doc) -> str:
    tags = [token.tag_ for token in doc]
    kept = [place for place in range(len(doc)) if _is_compound(doc, place) or not _is_detail(tags, place)]
    cut = next((number for number in range(len(kept) - 1, 0, -1) if tags[kept[number]] == "IN"), None)
    if cut is not None:
        while cut and (tags[kept[cut - 1]] in _LOOSE or doc[kept[cut - 1]].lower_ in _LOOSE_WORDS):
            cut -= 1
        if cut >= SHORTEST and any(tags[place] in _NOUNS for place in kept[:cut]):
            kept = kept[:cut]
    return _joined(doc, kept).strip(" ,;:-.")


def _joined(doc: Doc, kept: Sequence[int]) -> str:
    """The words that are kept, with the spaces of the caption and articles that fit."""
    text, end = "", 0
    for place in kept:
        is_apart = text.endswith(",") or any(doc[other].whitespace_ for other in range(end, place))
        before = f"{text} " if is_apart and doc[place].tag_ not in _CLOSING else text
        text = fit_article(before, doc[place].text) + doc[place].text
        end = place
    return text


def _is_compound(doc: Doc, place: int) -> bool:
    """Whether a word is part of a noun: "double" of "double-decker", "close" of "close up"."""
    around = [token.text for token in doc[max(place - 1, 0) : place + 2]]
    return "-" in around or doc[place : place + 2].text.lower() == "close up"


def _is_detail(tags: Sequence[str], place: int) -> bool:
    """Whether a word only describes a noun that follows it: "red and blue" of "red and blue kites"."""
    if tags[place] not in _BETWEEN:
        return False
    if tags[place] not in _DETAILS and (not place or tags[place - 1] not in _DETAILS):
        return False
    following = next((tag for tag in tags[place + 1 :] if tag not in _BETWEEN), "")
    return following in _NOUNS
