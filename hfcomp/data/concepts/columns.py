"""Fills the columns `concepts` and `concept_spans` of a training set with phrases that an extractor finds."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from datasets import Dataset, Features, IterableDataset, Value

from hfcomp.data.columns import CONCEPT_FEATURES, require_columns
from hfcomp.parsing import Parser, cached_parser
from hfcomp.parsing.captions import caption_problem
from hfcomp.parsing.noun_phrases import REPEATED, NounPhrase, sift_noun_phrases
from hfcomp.parsing.words import EXCLUDED_WORDS, ExcludedWords

# Number of streamed captions whose phrases are extracted at a time.
ROWS_AT_A_TIME = 64


class Extracted(NamedTuple):
    """An extractor's result for one caption.

    Attributes:
        phrases: Phrases from left to right.
        left_out: Number of phrases that the extractor left out, by reason.
    """

    phrases: Sequence[NounPhrase]
    left_out: Counter[str]


# Maps captions to their phrases, in order, with a parser or a language model.
Extractor = Callable[[Sequence[str]], Iterable[Extracted]]


@dataclass
class ConceptCounts:
    """Counts of phrases in captions; counts of parts of a dataset can be added.

    Attributes:
        captions: Number of captions read.
        without_phrase: Number of captions that name no thing. Their list is empty, and the caption itself is the
            concept.
        unusable: Number of captions that are too long or not valid Unicode (`hfcomp.parsing.captions`). They are not
            read, and their list is empty too.
        concepts: Number of phrases in the columns.
        cut: Number of phrases over `max_concepts`.
        left_out: Number of phrases that are not concepts, by reason: `repeated` inside a caption, and the extractor's
            reasons.
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

    def __str__(self) -> str:
        left_out = ", ".join(f"{number:,} {reason}" for reason, number in sorted(self.left_out.items()) if number)
        unusable = f"; {self.unusable:,} captions are too long or not valid Unicode" if self.unusable else ""
        return (
            f"{self.concepts:,} phrases from {self.captions:,} captions; {self.without_phrase:,} captions name no "
            f"thing and are their own concept; left out: {left_out or 'no phrases'}{unusable}"
        )


def noun_phrase_extractor(
    parser: Parser, *, excluded: ExcludedWords = EXCLUDED_WORDS, num_processes: int = 1
) -> Extractor:
    """Makes an extractor that reads noun phrases from a parser's trees.

    Args:
        parser: Parser from `hfcomp.parsing.load_parser`.
        excluded: Nouns that are not concepts.
        num_processes: Number of parsing processes; see `Parser.parse`.
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
        captions: Captions, one per row.
        extract: Function that finds their phrases, such as the result of `noun_phrase_extractor`.
        max_concepts: Maximum number of phrases per row, of which the first are kept; None keeps all.

    Returns:
        The columns `concepts` (a list of texts per row) and `concept_spans` (a list of `[start, end)` in characters of
        the caption per text), and the counts. Both lists are empty if a caption has no phrases or is too long.

    Raises:
        TypeError: If `captions` is a single string.
        ValueError: If `max_concepts` is below 1, a phrase is blank or outside its caption, or `extract` returned a
            different number of results than there are captions.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the string {captions[:40]!r}; expected several captions, such as [caption].")
    if max_concepts is not None and max_concepts < 1:
        raise ValueError(f"max_concepts: found {max_concepts}, expected 1 or more, or None to keep all.")
    columns: dict[str, list[Any]] = {"concepts": [], "concept_spans": []}
    counts = ConceptCounts()
    for row, (caption, extracted) in enumerate(zip(captions, _extract(captions, extract), strict=True)):
        counts.captions += 1
        if extracted is None:
            columns["concepts"].append([])
            columns["concept_spans"].append([])
            counts.unusable += 1
            continue
        _check(caption, extracted.phrases, row)
        # Reversed twice: of equal phrases, the first one is kept, at the position of the last.
        distinct = {phrase.text.casefold(): phrase for phrase in reversed(extracted.phrases)}
        phrases = list(reversed(distinct.values()))
        kept = phrases[:max_concepts]
        columns["concepts"].append([phrase.text for phrase in kept])
        columns["concept_spans"].append([[list(span) for span in phrase.spans] for phrase in kept])
        counts.without_phrase += not phrases
        counts.concepts += len(kept)
        counts.cut += len(phrases) - len(kept)
        counts.left_out += extracted.left_out + Counter({REPEATED: len(extracted.phrases) - len(phrases)})
    return columns, counts


def _extract(captions: Sequence[str], extract: Extractor) -> list[Extracted | None]:
    usable = [row for row, caption in enumerate(captions) if caption_problem(caption) is None]
    results = list(extract([captions[row] for row in usable]))
    if len(results) != len(usable):
        raise ValueError(
            f"the extractor returned {len(results)} results for {len(usable)} captions, expected one per caption."
        )
    by_row = dict(zip(usable, results, strict=True))
    return [by_row.get(row) for row in range(len(captions))]


def _check(caption: str, phrases: Sequence[NounPhrase], row: int) -> None:
    for phrase in phrases:
        inside = all(0 <= start < end <= len(caption) for start, end in phrase.spans)
        if not phrase.text.strip() or not phrase.spans or not inside:
            raise ValueError(
                f"caption {row}, {caption[:60]!r}: the extractor returned the phrase {phrase.text!r} at "
                f"{list(phrase.spans)}, expected a string and spans [start, end) within the {len(caption)} characters."
            )


def with_concepts(
    dataset: Dataset | IterableDataset, parser: str, log: Callable[[str], None]
) -> Dataset | IterableDataset:
    """Adds the columns `concepts` and `concept_spans`; a dataset that already has concepts keeps its own.

    All phrases are kept; the trainer cuts and counts those over its `max_concepts`. For a stream, phrases are
    extracted as it is read.
    """
    if "concepts" in dataset.column_names:
        log(f"using the dataset's own concepts; concept_parser={parser} has no effect")
        return dataset
    if isinstance(dataset, IterableDataset):
        return _stream_concepts(dataset, parser)
    if "concept_spans" in dataset.column_names:
        dataset = dataset.remove_columns("concept_spans")
    loaded, captions = cached_parser(parser), dataset["caption"][:]
    rows = [row for row, caption in enumerate(captions) if caption is not None]
    columns, counts = concept_columns(
        [captions[row] for row in rows], noun_phrase_extractor(loaded), max_concepts=None
    )
    if not counts.concepts:
        raise ValueError(
            f"concept_parser: {loaded.name} found no noun phrase in any of the {len(rows):,} captions. Are they "
            "English? Map the caption column with column_names, or choose another parser."
        )
    for name, values in columns.items():
        by_row = dict(zip(rows, values, strict=True))
        lists = [by_row.get(row, []) for row in range(len(captions))]
        dataset = dataset.add_column(name, lists, feature=CONCEPT_FEATURES[name])
    log(f"concepts by {loaded.name}: {counts}")
    return dataset


def _stream_concepts(dataset: IterableDataset, parser: str) -> IterableDataset:
    require_columns(dataset, ["caption"], needed_by="concept_parser")
    if not isinstance(dataset.features["caption"], Value):
        raise ValueError(
            f"streaming: column 'caption' contains {dataset.features['caption']}, expected one string per row. Map "
            "another column with column_names, or remove streaming."
        )
    features = Features({**dataset.features, **CONCEPT_FEATURES})
    extract = partial(_batch_concepts, parser=parser)
    return dataset.map(extract, batched=True, batch_size=ROWS_AT_A_TIME, features=features)


def _batch_concepts(batch: dict[str, list[Any]], parser: str) -> dict[str, list[Any]]:
    texts = [caption or "" for caption in batch["caption"]]
    # Load the parser here, because each worker that reads a stream needs its own.
    columns, counts = concept_columns(texts, noun_phrase_extractor(cached_parser(parser)), max_concepts=None)
    if counts.unusable:
        problem = next(filter(None, map(caption_problem, texts)))
        warnings.warn(f"concept_parser: {counts.unusable} captions are skipped, for example: {problem}", stacklevel=1)
    return columns
