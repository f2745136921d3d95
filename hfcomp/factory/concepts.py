"""Noun phrases of captions as the columns `concepts` and `concept_spans` (C2LIP), and counts of omitted phrases.

A caption's concepts depend on the caption, the parser or language model, and the cap, but not on other rows, shards or
processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from datasets import Value

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.data.concepts.columns import ConceptCounts, concept_columns, noun_phrase_extractor
from hfcomp.data.publishing import without_local_paths
from hfcomp.factory.build import DatasetBuild
from hfcomp.factory.builder import ANSWERS, CAPTIONS
from hfcomp.factory.kinds import CONCEPT_COUNTS, LEFT_OUT
from hfcomp.factory.shards import COUNTS, THIS_RUN, Batch, Stage, this_run
from hfcomp.factory.sources import BuildInputs, output_features, read_captioned_rows
from hfcomp.factory.text_negatives import make_captions
from hfcomp.factory.writers.llm_client import build_llm_client, writer_facts
from hfcomp.factory.writers.phrases import PhraseWriter
from hfcomp.factory.writers.prompts import PHRASES_FILE
from hfcomp.parsing import cached_parser

WITHOUT, UNUSABLE = CAPTIONS("without a phrase"), CAPTIONS("too long or not valid Unicode")
UNANSWERED = CAPTIONS("without a usable answer")
WRITTEN, CUT = CONCEPT_COUNTS("written"), f"{CONCEPT_COUNTS.prefix}cut by max_concepts"


class ConceptBuild(DatasetBuild):
    """Builds noun phrases."""

    def inputs(self) -> BuildInputs:
        """Rows without earlier concepts, and the stages, which record the parser or the language model."""
        stages = [Stage("captions", make_captions, {"which": self.options.captions}), self._concept_stage()]
        dataset = read_captioned_rows(self.options, self.log, is_old=CONCEPT_FEATURES.__contains__)
        features = output_features(dataset, {"caption": Value("string"), **CONCEPT_FEATURES})
        return BuildInputs(dataset, stages, features, ["caption"])

    def _concept_stage(self) -> Stage:
        options, shared = self.options, {"max_concepts": self.options.max_concepts}
        if options.writer == "parser":
            settings = {"parser": options.parser} | shared
            name = without_local_paths(cached_parser(options.parser).name)
            return Stage("concepts", make_concepts, settings, settings | {"parser": name})
        writer, shared = options.writer_settings(), shared | {"attempts": options.attempts, "seed": options.seed}
        settings = shared | {"writer": writer, "device": options.device}
        return Stage("concepts", make_written_concepts, settings, shared | writer_facts(writer, PHRASES_FILE))


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


def make_written_concepts(
    *,
    writer: Mapping[str, Any],
    attempts: int,
    seed: int = 0,
    max_concepts: int | None = None,
    device: str | None = None,
) -> Callable[[Batch], Batch]:
    """The stage of `make_concepts` with a language model. A caption without a usable answer has no phrases.

    `writer` holds the settings of `build_llm_client`; the others are those of `PhraseWriter` and `make_concepts`.
    """
    phrases = PhraseWriter(build_llm_client(**writer, device=device), attempts=attempts, seed=seed)

    def concepts(batch: Batch) -> Batch:
        before, rejected, unanswered = phrases.counts, Counter(phrases.rejected), phrases.unanswered
        columns, counts = concept_columns(batch["caption"], phrases.extract, max_concepts=max_concepts)
        refused = {ANSWERS(reason): number for reason, number in (phrases.rejected - rejected).items()}
        column = _count_column(counts, refused | {UNANSWERED: phrases.unanswered - unanswered})
        return batch | columns | {COUNTS: column, THIS_RUN: this_run(phrases.counts, before, counts.captions)}

    return concepts


def _count_column(counts: ConceptCounts, others: Mapping[str, int] | None = None) -> list[Counter[str]]:
    """The counts of a batch as a column, which is summed over the dataset."""
    named = Counter({WITHOUT: counts.without_phrase, WRITTEN: counts.concepts, CUT: counts.cut}) + Counter(others)
    named[UNUSABLE] = counts.unusable
    named.update({LEFT_OUT(reason): number for reason, number in counts.left_out.items()})
    column: list[Counter[str]] = [Counter() for _ in range(counts.captions)]
    if column:
        # Counts are summed over the dataset, so the first row may carry all counts of its batch. The plus drops zeros.
        column[0] = +named
    return column
