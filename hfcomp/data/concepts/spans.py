"""Positions of a row's concepts in the text that the tokenizer normalized, their tokens, and random concepts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset

from hfcomp.data.loading import TrainingRows
from hfcomp.fields import FIELDS, columns_of
from hfcomp.parsing.captions import Span


def canonical_spans(caption: str, spans: Sequence[Sequence[int]], canonical: str) -> list[Span]:
    """Maps spans of a caption to the text as the tokenizer sees it.

    SigLIP lower-cases a caption, removes punctuation and collapses white space, so "A T-shirt, red." becomes "a tshirt
    red". SigLIP 2 lower-cases it. SentencePiece expands ligatures and full-width letters.

    Returns:
        `[start, end)` in characters of `canonical` for each span, without white space at the ends. A span without
        remaining characters is empty, `start == end`. A character that becomes several ("İ", "ﬁ") maps to all of them;
        an accent belongs to its letter.

    Raises:
        ValueError: If a span is outside the caption, or `canonical` has characters that the caption lacks.
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
    """Start and end of each caption character in the canonical text; equal if the character was removed."""
    # A tokenizer returns the normalized text, but no positions. So both texts are read side by side: a character that
    # matches at the current place of the canonical text advances that place; any other character was removed.
    starts, ends = [], []
    place = 0
    for unit in _units(caption):
        length = _length(unit, canonical, place)
        # The letter under an accent may be removed although the accent stays.
        for piece in [unit] if length else unit:
            length = length or _length(piece, canonical, place)
            starts += [place] * len(piece)
            place += length
            ends += [place] * len(piece)
            length = 0
    if place != len(canonical):
        raise ValueError(
            f"{canonical[:60]!r} is not a tokenizer's normalization of {caption[:60]!r}: found nothing in the "
            f"caption that matches {canonical[place : place + 20]!r}. Expected the caption's characters in the same "
            "order and in any case, except for removed ones."
        )
    return [*starts, place], [*ends, place]


def _units(text: str) -> Iterator[str]:
    # A character and the accents that follow it are one unit, because normalization may merge them into one character.
    if text.isascii():
        yield from text
        return
    start = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or not unicodedata.combining(text[place]):
            yield text[start:place]
            start = place


def _length(unit: str, canonical: str, place: int) -> int:
    """Number of characters that a unit of the caption occupies at a place in the canonical text."""
    if canonical.startswith((unit, lower := unit.lower()), place):
        return len(unit) if canonical.startswith(unit, place) else len(lower)
    if unit.isspace():
        return int(canonical.startswith(" ", place))
    if not unit.isascii():
        for form in (unit, lower):
            for normalization in ("NFC", "NFKC", "NFD", "NFKD"):
                other = unicodedata.normalize(normalization, form)
                if other and canonical.startswith(other, place):
                    return len(other)
        # The sigma at the end of a word is a separate letter.
        if canonical[place : place + 1].casefold() == unit.casefold():
            return 1
    return 0


_SPACE = "\u2581"  # SentencePiece's symbol for a space


class Concept(NamedTuple):
    """A phrase of a caption.

    Attributes:
        text: Text of the phrase.
        spans: `[start, end)` in characters of the caption; empty if they were not requested.
    """

    text: str
    spans: Sequence[Span] = ()


class TokenPlaces(NamedTuple):
    """Positions of a text's tokens.

    Attributes:
        text: The text, with its original length.
        canonical: The text as the tokenizer reads it, lower-cased or without punctuation.
        tokens: `[start, end)` of each token in `canonical`; empty for a token without characters.
        reach: Number of characters of `canonical` that remained after truncation; later text lost tokens.
    """

    text: str
    canonical: str
    tokens: list[Span]
    reach: int


def with_spans(named: Sequence[str | None], spans: Any, *, caption: str, row: int) -> list[Concept]:
    """Returns the concepts of a row with their spans in its caption, without empty concepts."""
    where = f"column 'concept_spans', row {row}"
    spans = _plain(spans)
    spans = spans if isinstance(spans, list) else []
    if len(spans) != len(named):
        raise ValueError(
            f"{where}: found {len(spans) or 'no'} entries, but 'concepts' has {len(named)}. Every concept needs a "
            "list of [start, end) in the caption; without them set concept_source='phrase' (concept_tokens=False in "
            "your own collator)."
        )
    concepts = []
    for index, (text, places) in enumerate(zip(named, spans, strict=True)):
        if not text or not text.strip():
            continue
        if not isinstance(places, list) or not places or not all(_is_span(place, len(caption)) for place in places):
            raise ValueError(
                f"{where}, entry {index}: found {places!r} for the concept {text!r}, expected a list of [start, end) "
                f"within the {len(caption)} characters of the caption, such as [[0, 5]]. Create both columns with "
                "hfcomp.data.concepts.columns.concept_columns, or set concept_source='phrase'."
            )
        concepts.append(Concept(text, [(start, end) for start, end in places]))
    return concepts


def _plain(value: Any) -> Any:
    """Converts the arrays and tensors of a dataset's format to lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _is_span(place: Any, length: int) -> bool:
    numbers = isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(x, Integral) for x in place)
    return numbers and 0 <= place[0] < place[1] <= length


def tokens_of(concepts: Sequence[Concept], places: TokenPlaces) -> list[tuple[list[int], bool]]:
    """Finds the caption tokens of each concept. A token belongs to every concept with which it shares a character.

    Returns:
        The positions of each concept's tokens, and whether the concept is complete: False if it was truncated or the
        tokenizer drops it entirely.
    """
    spans = [span for concept in concepts for span in concept.spans]
    mapped = iter(canonical_spans(places.text, spans, places.canonical))
    results = []
    for concept in concepts:
        parts = [next(mapped) for _ in concept.spans]
        tokens = [
            position
            for position, (start, end) in enumerate(places.tokens)
            if any(max(start, first) < min(end, last) for first, last in parts)
        ]
        whole = bool(tokens) and all(last <= places.reach for _, last in parts)
        results.append((tokens, whole))
    return results


def word_places(tokenizer: Any, text: str, max_length: int) -> TokenPlaces:
    """Finds token positions for SigLIP's slow tokenizer, which provides no offsets.

    Returns:
        A position for each kept token. If tokenizing word by word gives different tokens (because of a special token
        inside the text), no token has a position.
    """
    if not hasattr(tokenizer, "canonicalize_text"):
        raise TypeError(
            f"{type(tokenizer).__name__} provides no token offsets. Use the model's fast "
            "tokenizer, or set concept_source='phrase'."
        )
    text = text.replace(_SPACE, " ")
    # No token crosses a space in the canonical text. So each word is tokenized separately, and all its tokens get the
    # word's position.
    canonical = tokenizer.canonicalize_text(text)
    pieces: list[str] = []
    tokens: list[Span] = []
    for word in re.finditer(r"\S+", canonical):
        word_pieces = _pieces(tokenizer, word.group())
        pieces += word_pieces
        tokens += [word.span()] * len(word_pieces)
    expected = tokenizer.tokenize(text)
    if pieces != expected:
        tokens = [(0, 0)] * len(expected)
    kept, cut = tokens[: max_length - 1], tokens[max_length - 1 :]
    # If truncation removes one token of a word, the word's other tokens stay.
    reach = min((start for start, _ in cut), default=len(canonical))
    return TokenPlaces(text, canonical, [*kept, (0, 0)], reach)


@lru_cache(maxsize=1 << 16)
def _pieces(tokenizer: Any, word: str) -> tuple[str, ...]:
    # Cached, because the slow tokenizer takes a quarter of a millisecond per word.
    return tuple(tokenizer.tokenize(word))


_WORD = re.compile(r"\S+")


class RandomSpans(TrainingRows):
    """Training rows with random `concepts` and `concept_spans`; a row gets the same ones on every read."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        super().__init__(dataset, columns_of(FIELDS))
        self.seed = seed

    def column(self, name: str) -> list[Any]:
        if name not in ("concepts", "concept_spans"):
            return super().column(name)
        texts = zip(super().column("caption"), super().column("concepts"), strict=True)
        return [self._draw(index, *row)[name] for index, row in enumerate(texts)]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        rows = super().__getitems__(indices)
        return [{**row, **self._draw(row["row"], row["caption"], row["concepts"])} for row in rows]

    def _draw(self, index: int, caption: Any, phrases: list[Any] | None) -> dict[str, list[Any]]:
        numbers = np.random.default_rng((self.seed, index))
        if isinstance(caption, list):  # with one list of phrases per caption
            parts = [_spans(text, own, numbers) for text, own in zip(caption, phrases or [], strict=True)]
            return {name: [part[name] for part in parts] for name in ("concepts", "concept_spans")}
        return _spans(caption, phrases, numbers)


def _spans(caption: str | None, phrases: list[str] | None, numbers: np.random.Generator) -> dict[str, list[Any]]:
    spans = random_spans(caption or "", phrases or [], numbers)
    return {
        "concepts": [caption[start:end] for start, end in spans],
        "concept_spans": [[[start, end]] for start, end in spans],
    }


def random_spans(caption: str, phrases: list[str], generator: np.random.Generator) -> list[tuple[int, int]]:
    """For each phrase, draws a run of words of the same length from the caption, uniformly over all positions.

    Returns:
        Characters `(start, end)` in the caption, one pair per phrase.
    """
    words = list(_WORD.finditer(caption))
    spans = []
    for phrase in phrases:
        length = min(len(words), max(1, len(phrase.split())))
        first = int(generator.integers(len(words) - length + 1))
        spans.append((words[first].start(), words[first + length - 1].end()) if words else (0, len(caption)))
    return spans
