"""The concepts of a row, as texts of their own and as tokens of the caption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

from hfcomp.data.concepts.spans import canonical_spans
from hfcomp.parsing.captions import Span

_SPACE = "\u2581"  # what SentencePiece writes for a space


class Concept(NamedTuple):
    """A phrase of a caption.

    Attributes:
        text: the phrase.
        spans: `[start, end)` in characters of the caption; empty where they were not asked for.
    """

    text: str
    spans: Sequence[Span] = ()


class TokenPlaces(NamedTuple):
    """Where the tokens of a text stand in it.

    Attributes:
        text: the text, of the same length as it was given.
        canonical: the text as the tokenizer reads it, lower-cased or without punctuation.
        tokens: `[start, end)` in `canonical` of each token; empty for one without characters.
        reach: the characters of `canonical` that truncation left; of what is behind, tokens were cut off.
    """

    text: str
    canonical: str
    tokens: list[Span]
    reach: int


def with_spans(named: Sequence[str | None], spans: Any, *, caption: str, row: int) -> list[Concept]:
    """The concepts of a row with their places in its caption; empty ones are left out.

    Args:
        named: the row's `concepts`.
        spans: its `concept_spans`, for each concept a list of `[start, end)`.
        caption: its caption.
        row: its index in the data set, for errors.

    Raises:
        ValueError: for spans of another form or number, or outside the caption, naming the row.
    """
    where = f"column 'concept_spans', row {row}"
    spans = _plain(spans)
    spans = spans if isinstance(spans, list) else []
    if len(spans) != len(named):
        raise ValueError(
            f"{where}: found {len(spans) or 'no'} entries, but 'concepts' has {len(named)}. Every concept needs its "
            "list of [start, end) in the caption; without them set concept_source='phrase' (concept_tokens=False of "
            "an own collator)."
        )
    concepts = []
    for index, (text, places) in enumerate(zip(named, spans, strict=True)):
        if not text or not text.strip():
            continue
        if not isinstance(places, list) or not places or not all(_is_span(place, len(caption)) for place in places):
            raise ValueError(
                f"{where}, entry {index}: found {places!r} for the concept {text!r}, expected a list of [start, end) "
                f"within the {len(caption)} characters of the caption, such as [[0, 5]]. Make both columns with "
                "hfcomp.data.concepts.columns.concept_columns, or set concept_source='phrase'."
            )
        concepts.append(Concept(text, [(start, end) for start, end in places]))
    return concepts


def _plain(value: Any) -> Any:
    """Lists in place of the arrays and tensors of a data set's format."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _is_span(place: Any, length: int) -> bool:
    numbers = isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(x, Integral) for x in place)
    return numbers and 0 <= place[0] < place[1] <= length


def tokens_of(concepts: Sequence[Concept], places: TokenPlaces) -> list[tuple[list[int], bool]]:
    """The tokens of a caption that make up its concepts.

    A token belongs to every concept with which it shares a character, so that a word's tokens stay together where the
    tokenizer knows words only.

    Args:
        concepts: of the caption, with spans.
        places: of its tokens.

    Returns:
        For each concept the positions of its tokens, and whether all of it is there: not where truncation took a part
        or the tokenizer reads none of it.
    """
    spans = [span for concept in concepts for span in concept.spans]
    mapped = iter(canonical_spans(places.text, spans, places.canonical))
    found = []
    for concept in concepts:
        parts = [next(mapped) for _ in concept.spans]
        tokens = [
            position
            for position, (start, end) in enumerate(places.tokens)
            if any(max(start, first) < min(end, last) for first, last in parts)
        ]
        whole = bool(tokens) and all(last <= places.reach for _, last in parts)
        found.append((tokens, whole))
    return found


def word_places(tokenizer: Any, text: str, max_length: int) -> TokenPlaces:
    """Where the tokens of a text stand, for SigLIP's slow tokenizer, which knows no offsets.

    It reads the canonical text, in which no token crosses a space: each word is cut as it is cut alone, and all tokens
    of a word take its place.

    Args:
        tokenizer: with `canonicalize_text` and `tokenize`.
        text: as written.
        max_length: tokens that are kept, the last one being the end of the text.

    Returns:
        A place for each token that is kept. Where words alone make other tokens (a special token inside the text), no
        token has a place.

    Raises:
        TypeError: for a tokenizer of another kind without offsets.
    """
    if not hasattr(tokenizer, "canonicalize_text"):
        raise TypeError(
            f"{type(tokenizer).__name__} gives no token offsets. Use the model's fast "
            "tokenizer, or set concept_source='phrase'."
        )
    text = text.replace(_SPACE, " ")
    canonical = tokenizer.canonicalize_text(text)
    pieces: list[str] = []
    tokens: list[Span] = []
    for word in re.finditer(r"\S+", canonical):
        of_word = _pieces(tokenizer, word.group())
        pieces += of_word
        tokens += [word.span()] * len(of_word)
    found = tokenizer.tokenize(text)
    if pieces != found:
        tokens = [(0, 0)] * len(found)
    kept, cut = tokens[: max_length - 1], tokens[max_length - 1 :]
    # of a word that loses a token the others are left
    reach = min((start for start, _ in cut), default=len(canonical))
    return TokenPlaces(text, canonical, [*kept, (0, 0)], reach)


@lru_cache(maxsize=1 << 16)
def _pieces(tokenizer: Any, word: str) -> tuple[str, ...]:
    """The tokens of a word; the slow tokenizer takes a quarter of a millisecond for each."""
    return tuple(tokenizer.tokenize(word))
