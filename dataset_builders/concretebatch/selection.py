"""Keywords that each selection order chooses from captions, next to the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from datasets import Dataset

from hfcomp.data.built_sets.files import ROWS_PER_SHARD
from hfcomp.factory.concretebatch.options import CONFIGS, ConcreteBatchOptions
from hfcomp.factory.concretebatch.targets import draw_targets, ratings_path
from hfcomp.factory.shards import SET_ASIDE
from hfcomp.factory.sources import Log
from hfcomp.factory.targets.candidates import CATEGORIES, find_candidates
from hfcomp.factory.targets.choice import (
    ORDERS,
    PAPER_MEAN_AND_MEDIAN,
    Choice,
    TargetSummary,
    balanced_categories,
    summarize_targets,
)
from hfcomp.factory.text_negatives import make_captions
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.parsing import cached_parser
from hfcomp.parsing.captions import script_problem
from hfcomp.reporting.report import Table


def selection_table(source: Dataset, options: ConcreteBatchOptions, *, log: Log) -> Table:
    """Compares the keywords that each selection order chooses from captions, next to the paper's numbers.

    Nothing is written. `*` marks the order that a build with these options uses.

    Args:
        source: Dataset with `caption`, one text or several.
        options: Configurations and all settings of their targets; each order is used in turn.
        log: Receives progress lines.
    """
    path = ratings_path(options.concreteness_ratings, options.download_ratings, log)
    ratings = ConcretenessRatings.from_file(path)
    usual = {config: options.choice(CONFIGS[config]) for config in options.configs}
    choices = [replace(usual[config], order=order) for config in options.configs for order in ORDERS]
    rows = []
    for choice, summary in zip(choices, _summarize(source, options, choices, ratings), strict=True):
        config = next(name for name in usual if CONFIGS[name] == choice.mode)
        mark = " *" if choice == usual[config] else ""
        mean, median, *shares = summary.cells()
        paper = "{:.2f} / {:.2f}".format(*PAPER_MEAN_AND_MEDIAN[choice.mode])
        numbers = [f"{choice.k}", f"{summary.targets:,}", f"{mean} / {median}", paper, *shares]
        rows.append([config, f"{choice.order}{mark}", *numbers, f"{summary.expressions:.1%}"])
    header = ["configuration", "order", "k", "targets", "concreteness", "in the paper", *CATEGORIES, "two words"]
    return Table("Mean and median concreteness of the keywords", header, rows, labels=2)


def _summarize(
    source: Dataset, options: ConcreteBatchOptions, choices: Sequence[Choice], ratings: ConcretenessRatings
) -> Iterator[TargetSummary]:
    """Summarizes the targets that each choice selects from the same candidates."""
    possible: list[list[dict[str, str]]] = [[] for _ in choices]  # per caption, the rated word by category
    one_caption, parse = make_captions(which=options.captions), cached_parser(options.parser).parse
    for batch in source.select_columns("caption").iter(ROWS_PER_SHARD):
        prepared = one_caption(batch)
        captions = [
            text for text, problem in zip(prepared["caption"], prepared[SET_ASIDE], strict=True) if problem is None
        ]
        captions = [text for text in captions if script_problem(text) is None]
        for caption, doc in zip(captions, parse(captions), strict=True):
            settings = {"lookup": options.lookup, "prepositions": options.prepositions, "words": options.target_words}
            candidates = find_candidates(doc, ratings, **settings)
            for choice, rows in zip(choices, possible, strict=True):
                drawn = draw_targets(choice, caption, candidates, options.seed)
                rows.append({target.category: target.rated_word for target in drawn})
    for rows in possible:
        categories = balanced_categories(map(list, rows), attribute_share=options.attribute_share)
        pairs = zip(categories, rows, strict=True)
        yield summarize_targets([(category, words[category]) for category, words in pairs if words], ratings)
