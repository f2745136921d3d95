"""The training set of a recipe: loaded or drawn, filtered, with negatives, ratings, concepts, lost rows reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, IterableDataset

from hfcomp.data.caption_files import with_captions_of
from hfcomp.data.columns import rename_columns
from hfcomp.data.concepts.columns import with_concepts
from hfcomp.data.loading import load_training_set, load_training_stream
from hfcomp.data.negatives.columns import with_concreteness, with_keyword_negatives
from hfcomp.data.row_selection import complete_rows, rows_where
from hfcomp.data.several_captions import every_caption, longest_caption
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table

Tell = Callable[[str], None]


def training_rows(
    config: ExperimentConfig, *, column_names: Any, seed: int, tell: Tell, num_negatives: int = 1
) -> Dataset | IterableDataset:
    """The rows that the method and its controls train on.

    With `captions: all` the rows are all first captions, then all second ones and so on.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own.
        seed: of the sandbox's scenes and of the keyword negatives.
        tell: receives a line about what was loaded, dropped or joined.
        num_negatives: entries of a row's negatives, where they are made here; at least 1.
    """
    if config.dataset == SANDBOX:
        dataset = rename_columns(_sandbox_rows(config, seed, num_negatives), column_names)
    else:
        dataset = _loaded_rows(config, column_names, tell)
    if config.keyword_negatives:
        dataset = with_keyword_negatives(
            dataset,
            config.keyword_negatives,
            num_negatives=num_negatives,
            seed=seed,
            matching=MATCHINGS[config.keyword_matching],
            table=read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE,
            others="are left out" if config.keyword_captions_only else "take part without",
            log=tell,
        )
    if config.concreteness_ratings:
        dataset = with_concreteness(dataset, config.concreteness_ratings, tell)
    if config.concept_parser:
        dataset = with_concepts(dataset, config.concept_parser, tell)
    if config.streaming:
        return dataset
    captions = config.captions == "all" or bool(config.captions_file)
    dataset = complete_rows(dataset, captions=captions, negatives=config.keyword_captions_only)
    if config.keyword_captions_only and not len(dataset):
        raise ValueError(
            f"keyword_captions_only: no caption holds a keyword of {', '.join(config.keyword_negatives or [])}. "
            "Other concepts, or keyword_matching: extended, find more."
        )
    return dataset


def _loaded_rows(config: ExperimentConfig, column_names: Any, tell: Tell) -> Dataset | IterableDataset:
    """The rows of a data set under the contract's names, each with one caption where they are not streamed."""
    load = load_training_stream if config.streaming else load_training_set
    dataset = load(config.dataset, split=config.dataset_split, config=config.dataset_config)
    if config.streaming:
        tell(f"{config.dataset} is streamed: its rows are read while training goes on")
    else:
        tell(f"{len(dataset):,} rows from {config.dataset}")
    if config.captions_file:
        dataset = with_captions_of(
            dataset,
            config.captions_file,
            key_column=config.key_column,
            file_columns=config.captions_columns,
            column_names=column_names,
            tell=tell,
        )
    if config.dataset_filter:
        dataset = rows_where(dataset, config.dataset_filter, tell)
    dataset = rename_columns(dataset, column_names)
    if config.streaming:
        return dataset
    return (every_caption if config.captions == "all" else longest_caption)(dataset, tell)


def _sandbox_rows(config: ExperimentConfig, seed: int, num_negatives: int) -> Dataset:
    from hfcomp.sandbox import KIND_WEIGHTS, training_set

    kinds = config.negative_kinds
    return training_set(
        config.dataset_rows,
        seed,
        kind_weights={kind: KIND_WEIGHTS.get(kind, 1.0) for kind in kinds} if kinds else None,
        # more negatives would draw other scenes: with keyword negatives the scenes are the same for any number
        num_negatives=1 if config.keyword_negatives else num_negatives,
        edit_noise=config.edit_noise,
        caption_noise=config.caption_noise,
        false_negatives=config.false_negatives,
    )
