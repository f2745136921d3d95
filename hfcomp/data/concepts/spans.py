"""Concept spans in a tokenizer's normalised text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from hfcomp.parsing.captions import Span


def canonical_spans(caption: str, spans: Sequence[Sequence[int]], canonical: str) -> list[Span]:
    """Maps parts of a caption to the text as the tokenizer sees it.

    SigLIP lower-cases a caption, takes punctuation out and makes one space of each white space, so that "A T-shirt,
    red." becomes "a tshirt red"; SigLIP 2 lower-cases; SentencePiece writes ligatures and full-width letters out. Both
    texts are read side by side, character by character: what the second lacks was taken out.

    Args:
        caption: The text as written.
        spans: `[start, end)` in its characters, in any order, of one phrase or of several.
        canonical: The text as the tokenizer sees it, as by `SiglipTokenizer.canonicalize_text(caption)`.

    Returns:
        `[start, end)` in characters of `canonical` for each span, without white space at the ends. A span without
        remaining characters is empty, `start == end`. A character that becomes several ("İ", "ﬁ") takes all along; an
        accent goes with its letter.

    Raises:
        ValueError: A span is outside the caption, or `canonical` has characters that the caption lacks.
    """
    starts, ends = _places(caption, canonical)
    mapped = []
    for start, end in spans:
        if not 0 <= start <= end <= len(caption):
            raise ValueError(
                f"the span [{start}, {end}) is outside {caption[:60]!r}, which has {len(caption)} characters."
            )
        first, last = (starts[start], ends[end - 1]) if start < end else (starts[start], starts[start])
        part = canonical[first:last]
        first += len(part) - len(part.lstrip())
        mapped.append((first, max(first, last - (len(part) - len(part.rstrip())))))
    return mapped


def _places(caption: str, canonical: str) -> tuple[list[int], list[int]]:
    """For each character of a caption, start and end in the canonical text; both one place where it was taken out."""
    starts, ends = [], []
    place = 0
    for unit in _units(caption):
        length = _length(unit, canonical, place)
        # the letter under an accent may be gone, and the accent not
        for piece in [unit] if length else unit:
            length = length or _length(piece, canonical, place)
            starts += [place] * len(piece)
            place += length
            ends += [place] * len(piece)
            length = 0
    if place != len(canonical):
        raise ValueError(
            f"{canonical[:60]!r} is not a tokenizer's normalisation of {caption[:60]!r}: found nothing in the "
            "caption for "
            f"{canonical[place : place + 20]!r}. Expected its characters in the same order, lower case or not, less "
            "those taken out."
        )
    return [*starts, place], [*ends, place]


def _units(text: str) -> Iterator[str]:
    """Characters with the accents that follow them."""
    if text.isascii():
        yield from text
        return
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or not unicodedata.combining(text[place]):
            yield text[start:place]
            start = place


def _length(unit: str, canonical: str, place: int) -> int:
    """Number of characters that a unit of the caption has at a place of the canonical text."""
    if canonical.startswith((unit, lower := unit.lower()), place):
        return len(unit) if canonical.startswith(unit, place) else len(lower)
    if unit.isspace():
        return int(canonical.startswith(" ", place))
    if not unit.isascii():
        for form in (unit, lower):
            for written in ("NFC", "NFKC", "NFD", "NFKD"):
                other = unicodedata.normalize(written, form)
                if other and canonical.startswith(other, place):
                    return len(other)
        # the sigma at the end of a word has a letter of its own
        if canonical[place : place + 1].casefold() == unit.casefold():
            return 1
    return 0
