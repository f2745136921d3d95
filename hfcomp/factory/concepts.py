"""Noun phrases of captions as the columns `concepts` and `concept_spans` (C2LIP), and counts of omitted phrases.

A caption's concepts depend on the caption, the parser and the cap, but not on other rows, shards or processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from datasets import Value

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.data.concepts.columns import ConceptCounts, concept_columns, noun_phrase_extractor
from hfcomp.data.publishing import without_local_paths
from hfcomp.factory.build import DatasetBuild
from hfcomp.factory.builder import CAPTIONS
from hfcomp.factory.kinds import CONCEPT_COUNTS, LEFT_OUT
from hfcomp.factory.shards import COUNTS, Batch, Stage
from hfcomp.factory.sources import BuildInputs, output_features, read_captioned_rows
from hfcomp.factory.text_negatives import make_captions
from hfcomp.parsing import cached_parser

WITHOUT, UNUSABLE = CAPTIONS("without a phrase"), CAPTIONS("too long or not valid Unicode")
WRITTEN, CUT = CONCEPT_COUNTS("written"), f"{CONCEPT_COUNTS.prefix}cut by max_concepts"


class ConceptBuild(DatasetBuild):
    """Builds noun phrases."""

    def inputs(self) -> BuildInputs:
        """Rows without earlier concepts, and the stages, which record the parser's name and version."""
        settings = {"parser": self.options.parser, "max_concepts": self.options.max_concepts}
        facts = settings | {"parser": without_local_paths(cached_parser(self.options.parser).name)}
        stages = [
            Stage("captions", make_captions, {"which": self.options.captions}),
            Stage("concepts", make_concepts, settings, facts),
        ]
        dataset = read_captioned_rows(self.options, self.log, is_old=CONCEPT_FEATURES.__contains__)
        features = output_features(dataset, {"caption": Value("string"), **CONCEPT_FEATURES})
        return BuildInputs(dataset, stages, features, ["caption"])


def make_concepts(*, parser: str | None = None, max_concepts: int | None = None) -> Callable[[Batch], Batch]:
    """The stage that adds `concepts` and `concept_spans`; for `run_stages`, and for `Dataset.map(batched=True)`.

    Args:
        parser: `spacy:NAME` or `rules`; by default `spacy:en_core_web_sm`.
        max_concepts: Number of phrases to keep per caption, from the first; others are counted. None keeps all.
    """
    extract = noun_phrase_extractor(cached_parser(parser))

    def concepts(batch: Batch) -> Batch:
        columns, counts = concept_columns(batch["caption"], extract, max_concepts=max_concepts)
        return batch | columns | {COUNTS: _count_column(counts)}

    return concepts


def _count_column(counts: ConceptCounts) -> list[Counter[str]]:
    """The counts of a batch as a column, which is summed over the dataset."""
    named = Counter({WITHOUT: counts.without_phrase, WRITTEN: counts.concepts, CUT: counts.cut})
    named[UNUSABLE] = counts.unusable
    named.update({LEFT_OUT(reason): number for reason, number in counts.left_out.items()})
    column: list[Counter[str]] = [Counter() for _ in range(counts.captions)]
    if column:
        # Counts are summed over the dataset, so the first row may carry all counts of its batch. The plus drops zeros.
        column[0] = +named
    return column
