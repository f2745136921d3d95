"""The stage that gives captions their concepts: noun phrases with their places, and counts of what was left out.

A caption's concepts depend on the caption, the parser and the cap: not on other rows, shards or processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hfcomp.data.concepts.columns import ConceptCounts, concept_columns, noun_phrase_extractor
from hfcomp.generation.shards import COUNTS, Batch
from hfcomp.generation.text_negatives import CAPTION_COUNT
from hfcomp.parsing import cached_parser

# Names of counts begin so.
CONCEPTS, LEFT_OUT = "concepts: ", "phrases left out: "
WITHOUT, UNUSABLE = f"{CAPTION_COUNT}without a phrase", f"{CAPTION_COUNT}too long or not valid Unicode"
WRITTEN, CUT = f"{CONCEPTS}written", f"{CONCEPTS}cut by max_concepts"


def make_concepts(*, parser: str | None = None, max_concepts: int | None = None) -> Callable[[Batch], Batch]:
    """The stage that adds `concepts` and `concept_spans`; for `run_stages`, and for `Dataset.map(batched=True)`.

    Args:
        parser: `spacy:NAME` or `rules`; by default `spacy:en_core_web_sm`.
        max_concepts: phrases that a caption keeps, the first ones; further ones are counted. None keeps all.
    """
    extract = noun_phrase_extractor(cached_parser(parser))

    def concepts(batch: Batch) -> Batch:
        columns, counts = concept_columns(batch["caption"], extract, max_concepts=max_concepts)
        return batch | columns | {COUNTS: _on_first_row(counts)}

    return concepts


def _on_first_row(counts: ConceptCounts) -> list[Counter[str]]:
    """Counts of a batch as a column to be summed."""
    named = Counter({WITHOUT: counts.without_phrase, WRITTEN: counts.concepts, CUT: counts.cut})
    named[UNUSABLE] = counts.unusable
    named.update({f"{LEFT_OUT}{reason}": number for reason, number in counts.left_out.items()})
    found: list[Counter[str]] = [Counter() for _ in range(counts.captions)]
    if found:
        found[0] = +named
    return found
