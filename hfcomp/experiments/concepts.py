"""A recipe's concepts: the noun phrases of its training captions, made when the data set is loaded."""

from __future__ import annotations

from collections.abc import Callable

from datasets import Dataset

from hfcomp.data.concepts.columns import ConceptCounts, concept_columns, noun_phrase_extractor
from hfcomp.data.features import CONCEPT_FEATURES
from hfcomp.generation.text_negatives import cached_parser


def with_concepts(dataset: Dataset, spec: str, tell: Callable[[str], None]) -> Dataset:
    """The rows with the columns `concepts` and `concept_spans`; a set that has concepts keeps its own.

    All phrases are kept: the trainer cuts those over its `max_concepts`, and counts them.

    Args:
        dataset: with one caption per row; where it is None, both lists are empty.
        spec: of a parser, `rules` or `spacy:NAME`.
        tell: receives a line about what was made.

    Raises:
        ValueError: for a parser that is not known, or captions without any phrase.
        OSError: for a parser that is not installed.
    """
    if "concepts" in dataset.column_names:
        tell(f"the data set's own concepts are used; concept_parser={spec} makes none")
        return dataset
    if "concept_spans" in dataset.column_names:
        dataset = dataset.remove_columns("concept_spans")
    parser = cached_parser(spec)
    captions = dataset["caption"][:]
    there = [row for row, caption in enumerate(captions) if caption is not None]
    texts = [captions[row] for row in there]
    columns, counts = concept_columns(texts, noun_phrase_extractor(parser), max_concepts=None)
    if not counts.concepts:
        raise ValueError(
            f"concept_parser: {parser.name} finds no noun phrase in any of the {len(texts):,} captions. Are they "
            "English? Name the column of captions with column_names, or another parser."
        )
    for name, values in columns.items():
        of_row = dict(zip(there, values, strict=True))
        lists = [of_row.get(row, []) for row in range(len(captions))]
        dataset = dataset.add_column(name, lists, feature=CONCEPT_FEATURES[name])
    tell(f"concepts by {parser.name}: {_told(counts)}")
    return dataset


def _told(counts: ConceptCounts) -> str:
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.left_out.items()) if number)
    unusable = f"; {counts.unusable:,} captions are too long or not valid Unicode" if counts.unusable else ""
    return (
        f"{counts.concepts:,} phrases of {counts.captions:,} captions; {counts.without_phrase:,} captions name no "
        f"thing and are their own concept; left out: {left_out or 'no phrase'}{unusable}"
    )
