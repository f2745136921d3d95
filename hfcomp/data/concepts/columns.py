"""The columns `concepts` and `concept_spans` of a training set, from whatever finds phrases in captions."""

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
    """What an extractor found in one caption.

    Attributes:
        phrases: From left to right.
        left_out: Number of phrases that it left out, by reason.
    """

    phrases: Sequence[NounPhrase]
    left_out: Counter[str]


# Maps captions to their phrases, in order. Either a parser or a language model does it.
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
        left_out: Phrases that are not concepts, by reason: `repeated` inside a caption, and those of the extractor.
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
            f"{self.concepts:,} phrases of {self.captions:,} captions; {self.without_phrase:,} captions name no "
            f"thing and are their own concept; left out: {left_out or 'no phrase'}{unusable}"
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
        ValueError: `max_concepts` is below 1, or a phrase is blank or outside its caption, or `extract` gave
            another number of results than captions.
    """
    if isinstance(captions, str):
        raise TypeError(f"captions is the string {captions[:40]!r}; expected several captions, such as [caption].")
    if max_concepts is not None and max_concepts < 1:
        raise ValueError(f"max_concepts is {max_concepts}; expected 1 or more, or None to keep all.")
    columns: dict[str, list[Any]] = {"concepts": [], "concept_spans": []}
    counts = ConceptCounts()
    found = _extract(captions, extract)
    for row, (caption, one) in enumerate(zip(captions, found, strict=True)):
        counts.captions += 1
        if one is None:
            columns["concepts"].append([])
            columns["concept_spans"].append([])
            counts.unusable += 1
            continue
        _check(caption, one.phrases, row)
        # Reversed twice: of equal phrases the first one is kept, in the place of the last.
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


def _extract(captions: Sequence[str], extract: Extractor) -> list[Extracted | None]:
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


def with_concepts(
    dataset: Dataset | IterableDataset, parser: str, log: Callable[[str], None]
) -> Dataset | IterableDataset:
    """The rows with the columns `concepts` and `concept_spans`; a set that has concepts keeps its own.

    All phrases are kept: the trainer cuts those over its `max_concepts`, and counts them. Those of a stream are found
    as it is read.
    """
    if "concepts" in dataset.column_names:
        log(f"the dataset's own concepts are used; concept_parser={parser} makes none")
        return dataset
    if isinstance(dataset, IterableDataset):
        return _streamed(dataset, parser)
    if "concept_spans" in dataset.column_names:
        dataset = dataset.remove_columns("concept_spans")
    loaded, captions = cached_parser(parser), dataset["caption"][:]
    rows = [row for row, caption in enumerate(captions) if caption is not None]
    columns, counts = concept_columns(
        [captions[row] for row in rows], noun_phrase_extractor(loaded), max_concepts=None
    )
    if not counts.concepts:
        raise ValueError(
            f"concept_parser: {loaded.name} finds no noun phrase in any of the {len(rows):,} captions. Are they "
            "English? Name the column of captions with column_names, or another parser."
        )
    for name, values in columns.items():
        of_row = dict(zip(rows, values, strict=True))
        lists = [of_row.get(row, []) for row in range(len(captions))]
        dataset = dataset.add_column(name, lists, feature=CONCEPT_FEATURES[name])
    log(f"concepts by {loaded.name}: {counts}")
    return dataset


def _streamed(dataset: IterableDataset, parser: str) -> IterableDataset:
    require_columns(dataset, ["caption"], needed_by="concept_parser")
    if not isinstance(dataset.features["caption"], Value):
        raise ValueError(
            f"streaming: column 'caption' holds {dataset.features['caption']}, expected one text a row. Name "
            "another column with column_names, or leave streaming out."
        )
    features = Features({**dataset.features, **CONCEPT_FEATURES})
    found = partial(_of_batch, parser=parser)
    return dataset.map(found, batched=True, batch_size=ROWS_AT_A_TIME, features=features)


def _of_batch(batch: dict[str, list[Any]], parser: str) -> dict[str, list[Any]]:
    texts = [caption or "" for caption in batch["caption"]]
    # Loaded here, because each worker that reads a stream has a parser of its own.
    columns, counts = concept_columns(texts, noun_phrase_extractor(cached_parser(parser)), max_concepts=None)
    if counts.unusable:
        problem = next(found for found in map(caption_problem, texts) if found)
        warnings.warn(f"concept_parser: {counts.unusable} captions are not read, such as {problem}", stacklevel=1)
    return columns
