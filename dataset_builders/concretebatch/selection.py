"""What each order of selection chooses of captions, beside the paper's numbers."""

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
    """What each order of selection chooses of captions alone, beside the paper's numbers of its own sets.

    Nothing is written. `*` marks the order that a build of the options has.

    Args:
        source: with `caption`, a text or several.
        options: which configurations, and all settings of their targets; the order is each in turn.
        log: receives lines about what is done.
    """
    path = ratings_path(options.concreteness_ratings, options.download_ratings, log)
    ratings = ConcretenessRatings.from_file(path)
    usual = {config: options.choice(CONFIGS[config]) for config in options.configs}
    choices = [replace(usual[config], order=order) for config in options.configs for order in ORDERS]
    rows = []
    for choice, found in zip(choices, _chosen(source, options, choices, ratings), strict=True):
        config = next(name for name in usual if CONFIGS[name] == choice.mode)
        mark = " *" if choice == usual[config] else ""
        mean, median, *shares = found.cells()
        paper = "{:.2f} / {:.2f}".format(*PAPER_MEAN_AND_MEDIAN[choice.mode])
        numbers = [f"{choice.k}", f"{found.targets:,}", f"{mean} / {median}", paper, *shares]
        rows.append([config, f"{choice.order}{mark}", *numbers, f"{found.expressions:.1%}"])
    header = ["configuration", "order", "k", "targets", "concreteness", "the paper's", *CATEGORIES, "two words"]
    return Table("Mean and median concreteness of the keywords", header, rows, labels=2)


def _chosen(
    source: Dataset, options: ConcreteBatchOptions, choices: Sequence[Choice], ratings: ConcretenessRatings
) -> Iterator[TargetSummary]:
    """What each choice takes of the same candidates."""
    possible: list[list[dict[str, str]]] = [[] for _ in choices]  # of each caption, the rated word by category
    one_caption, parse = make_captions(which=options.captions), cached_parser(options.parser).parse
    for batch in source.select_columns("caption").iter(ROWS_PER_SHARD):
        made = one_caption(batch)
        captions = [text for text, problem in zip(made["caption"], made[SET_ASIDE], strict=True) if problem is None]
        captions = [text for text in captions if script_problem(text) is None]
        for caption, doc in zip(captions, parse(captions), strict=True):
            candidates = find_candidates(doc, ratings, lookup=options.lookup, prepositions=options.prepositions)
            for choice, rows in zip(choices, possible, strict=True):
                drawn = draw_targets(choice, caption, candidates, options.seed)
                rows.append({one.category: one.rated_word for one in drawn})
    for rows in possible:
        decided = balanced_categories(map(list, rows), attribute_share=options.attribute_share)
        pairs = zip(decided, rows, strict=True)
        yield summarize_targets([(category, words[category]) for category, words in pairs if words], ratings)
