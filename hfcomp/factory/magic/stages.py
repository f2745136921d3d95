"""The stages of MAGIC's builds: the concept of each image, and its generalized caption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hfcomp.data.concepts.level_names import LEVELS
from hfcomp.factory.builder import ANSWERS
from hfcomp.factory.magic.source import ConceptSource, SourceAnswer
from hfcomp.factory.shards import COUNTS, SET_ASIDE, THIS_RUN, Batch, this_run
from hfcomp.factory.text_negatives import NO_CAPTION, SKIPPED
from hfcomp.parsing.captions import caption_problem

CONCEPT, GENERALIZED = "concept", "generalized_caption"
UNREAD = f"{SKIPPED}more than a prompt holds"
WITHOUT = {CONCEPT: "no concept", GENERALIZED: "no generalized caption"}


def make_concepts(**settings: Any) -> Callable[[Batch], Batch]:
    """The stage that adds `concept`, the first-level concept of an image from all its captions."""
    source = make_source(**settings)

    def concepts(batch: Batch) -> Batch:
        return batch | _answer_columns(source, batch["caption"], CONCEPT, lambda texts, _: source.concepts(texts))

    return concepts


def make_generalized(**settings: Any) -> Callable[[Batch], Batch]:
    """The stage that adds `generalized_caption`, from the captions of an image and the names of its concepts.

    It is a list if `captions_per_image` is more than 1.
    """
    source, several = make_source(**settings), settings["captions_per_image"] > 1

    def generalize(batch: Batch) -> Batch:
        chains = list(zip(*(batch[level] for level in LEVELS), strict=True))

        def ask(texts: Sequence[Sequence[str]], places: Sequence[int]) -> list[SourceAnswer]:
            return source.generalize(texts, [chains[place] for place in places])

        return batch | _answer_columns(source, batch["caption"], GENERALIZED, ask, several=several)

    return generalize


def _answer_columns(
    source: ConceptSource,
    captions: Sequence[Sequence[str]],
    column: str,
    ask: Callable[[Sequence[Sequence[str]], Sequence[int]], list[SourceAnswer]],
    *,
    several: bool = False,
) -> Batch:
    """The column of answers. Rows without one are set aside with the last reason; a model's rejections are counted."""
    counts: list[Counter[str]] = []
    usable: dict[int, list[str]] = {}
    for place, texts in enumerate(captions):
        problems = [caption_problem(text) for text in texts]
        counts.append(Counter(f"{SKIPPED}{problem.partition(':')[0]}" for problem in problems if problem))
        good = [text for text, problem in zip(texts, problems, strict=True) if problem is None]
        if good:
            # A prompt has room for only some captions. The others are counted.
            usable[place] = list(source.read(good))
            counts[place] += Counter({UNREAD: len(good) - len(usable[place])})  # without zeros
    places, before = list(usable), source.counts
    answers = dict(zip(places, ask(list(usable.values()), places) if places else [], strict=True))
    # Only a language model's rejections are counted; a taxonomy's all have the same reason.
    for place, answer in answers.items() if source.is_model else ():
        counts[place].update(ANSWERS(reason.partition(":")[0]) for reason in answer.refused)
    rows = [answers.get(place) for place in range(len(captions))]
    return {
        column: [answer and (list(answer.texts) if several else answer.text) for answer in rows],
        SET_ASIDE: [_reason(answer, WITHOUT[column]) for answer in rows],
        COUNTS: counts,
        THIS_RUN: this_run(source.counts, before, len(counts)),
    }


def _reason(answer: SourceAnswer | None, without: str) -> str | None:
    if answer is None:
        return NO_CAPTION
    if answer.text is not None:
        return None
    return f"{without}, {answer.refused[-1]}" if answer.refused else without


def make_source(*, writer: str, **settings: Any) -> ConceptSource:
    """Makes a source from the settings of `MagicOptions.source_settings`, and `captions_of` if it needs parents."""
    if writer == "taxonomy":
        from hfcomp.factory.magic.taxonomy import TaxonomySource

        place = settings["taxonomy"]
        return TaxonomySource(None if place is None else Path(place), settings["captions_per_image"])
    from hfcomp.factory.magic.source import LanguageModelSource

    return LanguageModelSource(**settings)
