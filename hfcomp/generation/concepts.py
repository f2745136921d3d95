"""Sets with the noun phrases of captions as the columns `concepts` and `concept_spans` (C2LIP)."""

from __future__ import annotations

from datasets import Value

from hfcomp.data.features import CONCEPT_FEATURES
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.options import ConceptOptions
from hfcomp.generation.shards import Stage
from hfcomp.generation.sources import BuildInputs, Log, output_features, read_captioned_rows
from hfcomp.generation.text_concepts import make_concepts
from hfcomp.generation.text_negatives import make_captions
from hfcomp.parsing import cached_parser


def concept_inputs(options: ConceptOptions, log: Log) -> BuildInputs:
    """Rows without earlier concepts, and the stages, which record the parser's name and version.

    Raises:
        ValueError: for missing columns, or a `caption` that is not a text.
        OSError: for a parser that is not installed.
    """
    settings = {"parser": options.parser, "max_concepts": options.max_concepts}
    facts = settings | {"parser": without_local_paths(cached_parser(options.parser).name)}
    stages = [
        Stage("captions", make_captions, {"which": options.captions}),
        Stage("concepts", make_concepts, settings, facts),
    ]
    dataset = read_captioned_rows(options, log, is_old=CONCEPT_FEATURES.__contains__)
    features = output_features(dataset, {"caption": Value("string"), **CONCEPT_FEATURES})
    return BuildInputs(dataset, stages, features, ["caption"])
