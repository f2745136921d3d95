"""Sets with the noun phrases of captions as the columns `concepts` and `concept_spans` (C2LIP)."""

from __future__ import annotations

from datasets import Dataset, Features

from hfcomp.data.features import CONCEPT_FEATURES
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.options import ConceptOptions
from hfcomp.generation.shards import Stage
from hfcomp.generation.sources import Tell, output_features, read_captioned_rows
from hfcomp.generation.text_concepts import make_concepts
from hfcomp.generation.text_negatives import make_captions
from hfcomp.parsing import cached_parser


def concept_rows(options: ConceptOptions, tell: Tell) -> Dataset:
    """The rows that get concepts, without concepts of before.

    Args:
        options: of the build.
        tell: receives a line about what was read and left behind.

    Raises:
        ValueError: for missing columns, or a `caption` that is not a text.
    """
    return read_captioned_rows(options, tell, is_old=CONCEPT_FEATURES.__contains__)


def concept_features(dataset: Dataset) -> Features:
    """The columns of the built set: the source's, with one caption per row, and those of concepts."""
    return output_features(dataset, CONCEPT_FEATURES)


def concept_stages(options: ConceptOptions) -> list[Stage]:
    """The stages of a build, with the parser that was found.

    Raises:
        ValueError: for options that do not fit.
        OSError: for a parser that is not installed.
    """
    number = options.max_concepts
    if number is not None and number < 1:
        raise ValueError(f"--max_concepts: found {number}, expected 1 or more; leave it out to keep all.")
    settings = {"parser": options.parser, "max_concepts": number}
    facts = settings | {"parser": without_local_paths(cached_parser(options.parser).name)}
    return [
        Stage("captions", make_captions, {"which": options.captions}),
        Stage("concepts", make_concepts, settings, facts),
    ]
