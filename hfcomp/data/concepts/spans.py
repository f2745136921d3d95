"""The concepts of a row: their places in a text that a tokenizer normalized, and their tokens; random ones."""

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
    """Maps parts of a caption to the text as the tokenizer sees it.

    SigLIP lower-cases a caption, takes punctuation out and makes one space of each white space, so that "A T-shirt,
    red." becomes "a tshirt red"; SigLIP 2 lower-cases; SentencePiece writes ligatures and full-width letters out.

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
    # A tokenizer returns what it made of a text, but no positions. Both texts are read side by side: what fits at the
    # present place of the canonical text moves that place on, and what does not fit was taken out.
    starts, ends = [], []
    place = 0
    for unit in _units(caption):
        length = _length(unit, canonical, place)
        # The letter under an accent may be gone while the accent is kept.
        for piece in [unit] if length else unit:
            length = length or _length(piece, canonical, place)
            starts += [place] * len(piece)
            place += length
            ends += [place] * len(piece)
            length = 0
    if place != len(canonical):
        raise ValueError(
            f"{canonical[:60]!r} is not a tokenizer's normalization of {caption[:60]!r}: found nothing in the "
            "caption for "
            f"{canonical[place : place + 20]!r}. Expected its characters in the same order, lower case or not, less "
            "those taken out."
        )
    return [*starts, place], [*ends, place]


def _units(text: str) -> Iterator[str]:
    # A character with the accents that follow it is one unit: normalization may make one character of it.
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
        # The sigma at the end of a word is a letter of its own.
        if canonical[place : place + 1].casefold() == unit.casefold():
            return 1
    return 0


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
    """The concepts of a row with their places in its caption; empty ones are left out."""
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
    """Lists in place of the arrays and tensors of a dataset's format."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _is_span(place: Any, length: int) -> bool:
    numbers = isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(x, Integral) for x in place)
    return numbers and 0 <= place[0] < place[1] <= length


def tokens_of(concepts: Sequence[Concept], places: TokenPlaces) -> list[tuple[list[int], bool]]:
    """The tokens of a caption that make up its concepts: a token belongs to all with which it shares a character.

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

    Returns:
        A place for each token that is kept. Where words alone make other tokens (a special token inside the text), no
        token has a place.
    """
    if not hasattr(tokenizer, "canonicalize_text"):
        raise TypeError(
            f"{type(tokenizer).__name__} gives no token offsets. Use the model's fast "
            "tokenizer, or set concept_source='phrase'."
        )
    text = text.replace(_SPACE, " ")
    # No token crosses a space in the canonical text. So each word is cut in isolation, and all its tokens take the
    # word's place.
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
    # If a word loses a token, its other tokens are kept.
    reach = min((start for start, _ in cut), default=len(canonical))
    return TokenPlaces(text, canonical, [*kept, (0, 0)], reach)


@lru_cache(maxsize=1 << 16)
def _pieces(tokenizer: Any, word: str) -> tuple[str, ...]:
    # Cached: the slow tokenizer takes a quarter of a millisecond per word.
    return tuple(tokenizer.tokenize(word))


_WORD = re.compile(r"\S+")


class RandomSpans(TrainingRows):
    """Training rows with `concepts` and `concept_spans` drawn at random, the same whenever it is read."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        super().__init__(dataset, columns_of(FIELDS))
        self.seed = seed

    def column(self, name: str) -> list[Any]:
        if name not in ("concepts", "concept_spans"):
            return super().column(name)
        texts = zip(super().column("caption"), super().column("concepts"), strict=True)
        return [self._drawn(index, *row)[name] for index, row in enumerate(texts)]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        rows = super().__getitems__(indices)
        return [{**row, **self._drawn(row["row"], row["caption"], row["concepts"])} for row in rows]

    def _drawn(self, index: int, caption: Any, phrases: list[Any] | None) -> dict[str, list[Any]]:
        numbers = np.random.default_rng((self.seed, index))
        if isinstance(caption, list):  # with the phrases of each
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
    """Draw a run of words of the caption for each phrase, as long as it, every place as likely.

    Returns:
        Characters `(start, end)` in the caption, one for each phrase.
    """
    words = list(_WORD.finditer(caption))
    spans = []
    for phrase in phrases:
        length = min(len(words), max(1, len(phrase.split())))
        first = int(generator.integers(len(words) - length + 1))
        spans.append((words[first].start(), words[first + length - 1].end()) if words else (0, len(caption)))
    return spans
