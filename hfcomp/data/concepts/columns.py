"""The columns `concepts` and `concept_spans` of a training set, from whatever finds phrases in captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hfcomp.parsing import Parser
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.noun_phrase_words import EXCLUDED_WORDS, ExcludedWords
from hfcomp.parsing.noun_phrases import REPEATED, NounPhrase, sift_noun_phrases


class Extracted(NamedTuple):
    """What an extractor found in one caption.

    Attributes:
        phrases: From left to right.
        left_out: Number of phrases that it left out, by reason.
    """

    phrases: Sequence[NounPhrase]
    left_out: Counter[str]


# Captions to their phrases, in order: by a parser, or by a language model.
Extractor = Callable[[Sequence[str]], Iterable[Extracted]]


@dataclass
class ConceptCounts:
    """What became of the phrases of a set of captions; adds up over parts of the set.

    Attributes:
        captions: Captions read.
        without_phrase: Captions that name no thing. Their list is empty, and the caption itself is the concept.
        unusable: Captions that are too long or not valid Unicode (`hfcomp.parsing.captions`). They are not
            read; their list is empty too.
        concepts: Phrases in the columns.
        cut: Phrases over `max_concepts`.
        left_out: Phrases that are no concepts, by reason: `repeated` inside a caption, and those of the extractor.
    """

    captions: int = 0
    without_phrase: int = 0
    concepts: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    unusable: int = 0

    def __add__(self, other: ConceptCounts) -> ConceptCounts:
        return ConceptCounts(
            self.captions + other.captions,
            self.without_phrase + other.without_phrase,
            self.concepts + other.concepts,
            self.cut + other.cut,
            self.left_out + other.left_out,
            self.unusable + other.unusable,
        )


def noun_phrase_extractor(
    parser: Parser, *, excluded: ExcludedWords = EXCLUDED_WORDS, num_processes: int = 1
) -> Extractor:
    """An extractor that reads noun phrases off the trees of a parser.

    Args:
        parser: Of `hfcomp.parsing.load_parser`.
        excluded: Nouns that make no concept.
        num_processes: Processes that parse; see `Parser.parse`.
    """

    def extract(captions: Sequence[str]) -> Iterator[Extracted]:
        for doc in parser.parse(captions, num_processes=num_processes):
            yield Extracted(*sift_noun_phrases(doc, excluded=excluded))

    return extract


def concept_columns(
    captions: Sequence[str], extract: Extractor, *, max_concepts: int | None
) -> tuple[dict[str, list[Any]], ConceptCounts]:
    """Builds the concept columns of a training set.

    Args:
        captions: One per row.
        extract: Finds their phrases, as `noun_phrase_extractor` makes it.
        max_concepts: Phrases that a row keeps, the first ones; None keeps all.

    Returns:
        `concepts`, a list of texts per row, and `concept_spans`, for each text a list of `[start, end)` in characters
        of the caption; and what was counted. Both lists are empty for a caption without phrases
        or one that is too long.

    Raises:
        TypeError: `captions` is one string.
        ValueError: `max_concepts` is below 1, or a phrase is blank or lies outside its caption, or `extract` gave
            another number of results than captions.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the string {captions[:40]!r}; expected several captions, such as [caption].")
    if max_concepts is not None and max_concepts < 1:
        raise ValueError(f"max_concepts is {max_concepts}; expected 1 or more, or None to keep all.")
    columns: dict[str, list[Any]] = {"concepts": [], "concept_spans": []}
    counts = ConceptCounts()
    found = _extracted(captions, extract)
    for row, (caption, one) in enumerate(zip(captions, found, strict=True)):
        counts.captions += 1
        if one is None:
            columns["concepts"].append([])
            columns["concept_spans"].append([])
            counts.unusable += 1
            continue
        _check(caption, one.phrases, row)
        distinct = {phrase.text.casefold(): phrase for phrase in reversed(one.phrases)}
        phrases = list(reversed(distinct.values()))
        kept = phrases[:max_concepts]
        columns["concepts"].append([phrase.text for phrase in kept])
        columns["concept_spans"].append([[list(span) for span in phrase.spans] for phrase in kept])
        counts.without_phrase += not phrases
        counts.concepts += len(kept)
        counts.cut += len(phrases) - len(kept)
        counts.left_out += one.left_out + Counter({REPEATED: len(one.phrases) - len(phrases)})
    return columns, counts


def _extracted(captions: Sequence[str], extract: Extractor) -> list[Extracted | None]:
    """What an extractor found in each caption; None for those that it cannot read."""
    usable = [row for row, caption in enumerate(captions) if caption_problem(caption) is None]
    found = list(extract([captions[row] for row in usable]))
    if len(found) != len(usable):
        raise ValueError(f"the extractor gave {len(found)} results for {len(usable)} captions; expected one for each.")
    of_row = dict(zip(usable, found, strict=True))
    return [of_row.get(row) for row in range(len(captions))]


def _check(caption: str, phrases: Sequence[NounPhrase], row: int) -> None:
    for phrase in phrases:
        inside = all(0 <= start < end <= len(caption) for start, end in phrase.spans)
        if not phrase.text.strip() or not phrase.spans or not inside:
            raise ValueError(
                f"caption {row}, {caption[:60]!r}: the extractor gave the phrase {phrase.text!r} at "
                f"{list(phrase.spans)}; expected a text, and spans [start, end) inside the {len(caption)} characters."
            )
