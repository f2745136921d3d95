"""The training set of a recipe: loaded or drawn, filtered, with negatives, ratings, concepts, lost rows told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, Image, IterableDataset

from hfcomp.data.caption_files import with_captions_of
from hfcomp.data.columns import rename_columns
from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.loading import load_training_set
from hfcomp.data.several_captions import every_caption, longest_caption
from hfcomp.experiments.concepts import with_concepts
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.streamed_data import streamed_rows
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, negative_columns, read_keyword_table
from hfcomp.parsing.captions import caption_problem

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
    if config.streaming:
        return streamed_rows(config, column_names=column_names, tell=tell)
    if config.dataset == SANDBOX:
        dataset = rename_columns(_sandbox_rows(config, seed, num_negatives), column_names)
    else:
        dataset = load_training_set(config.dataset, split=config.dataset_split, config=config.dataset_config)
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
        dataset = rename_columns(_filtered(dataset, config.dataset_filter, tell), column_names)
        dataset = (every_caption if config.captions == "all" else longest_caption)(dataset, tell)
    if config.keyword_negatives:
        dataset = _with_keyword_negatives(dataset, config, seed, num_negatives, tell)
    if config.concreteness_ratings:
        dataset = _with_concreteness(dataset, config.concreteness_ratings, tell)
    if config.concept_parser:
        dataset = with_concepts(dataset, config.concept_parser, tell)
    return _taking_part(dataset, config, tell)


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


def _filtered(dataset: Dataset, condition: str | None, tell: Tell) -> Dataset:
    if not condition:
        return dataset
    column, _, wanted = condition.partition("=")
    if column not in dataset.column_names:
        raise ValueError(
            f"dataset_filter={condition!r}: no column {column!r}; has: {', '.join(dataset.column_names)}."
        )
    keep = [index for index, value in enumerate(dataset[column]) if str(value).lower() == wanted.lower()]
    tell(f"{len(keep):,} of them have {condition}; {len(dataset) - len(keep):,} are left out")
    return dataset.select(keep)


def _with_keyword_negatives(
    dataset: Dataset, config: ExperimentConfig, seed: int, num_negatives: int, tell: Tell
) -> Dataset:
    """Replaces the negatives of a data set; its other columns that speak of the old ones go with them."""
    captions = [caption or "" for caption in dataset["caption"]]
    problems = {row: problem for row, caption in enumerate(captions) if (problem := caption_problem(caption))}
    for row in problems:
        captions[row] = ""
    columns = negative_columns(
        captions,
        concepts=config.keyword_negatives,
        num_negatives=num_negatives,
        seed=seed,
        matching=MATCHINGS[config.keyword_matching],
        table=read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE,
    )
    replaced = [name for name in dataset.column_names if name.startswith("negative_")]
    if replaced and "mask" in dataset.column_names:
        replaced.append("mask")  # of the negative image
    if replaced:
        tell(f"keyword negatives take the place of the data set's own, with its columns {', '.join(replaced)}")
        dataset = dataset.remove_columns(replaced)
    for name, values in columns.items():
        dataset = dataset.add_column(name, values, feature=NEGATIVE_FEATURES[name])
    made = sum(bool(texts[0]) for texts in columns["negative_captions"])
    others = sum(caption is not None for caption in dataset["caption"]) - made
    fate = "are left out" if config.keyword_captions_only else "take part without"
    tell(f"{made:,} captions have a keyword and got a negative; {others:,} {fate}")
    if problems:
        first = min(problems)
        tell(f"in {len(problems):,} of these keywords are not looked for; the first is row {first}: {problems[first]}")
    return dataset.add_column("negative_image", [None] * len(dataset), feature=Image())


def _taking_part(dataset: Dataset, config: ExperimentConfig, tell: Tell) -> Dataset:
    """The rows with a caption and, if asked, a keyword; last, because a column that is added writes a choice out."""
    keep = range(len(dataset))
    if config.captions == "all" or config.captions_file:
        keep = [row for row, caption in enumerate(dataset["caption"]) if caption is not None]
    if config.keyword_captions_only:
        negatives = dataset["negative_captions"][:]
        keep = [row for row in keep if negatives[row][0]]
        if not keep:
            raise ValueError(
                f"keyword_captions_only: no caption holds a keyword of {', '.join(config.keyword_negatives or [])}. "
                "Other concepts, or keyword_matching: extended, find more."
            )
    return dataset if len(keep) == len(dataset) else dataset.select(keep)


def _with_concreteness(dataset: Dataset, path: str, tell: Tell) -> Dataset:
    from hfcomp.negatives.concreteness import ConcretenessRatings, concreteness_column

    if "negative_keywords" not in dataset.column_names:
        raise ValueError(
            "concreteness_ratings are joined to the column 'negative_keywords', which the data set does not have; it "
            f"has: {', '.join(dataset.column_names)}. Set keyword_negatives (object, color, location, size), map the "
            "column with column_names, or leave concreteness_ratings out."
        )
    values, coverage = concreteness_column(dataset["negative_keywords"], ConcretenessRatings.from_file(path))
    if "negative_concreteness" in dataset.column_names:
        dataset = dataset.remove_columns("negative_concreteness")
    dataset = dataset.add_column("negative_concreteness", values, feature=NEGATIVE_FEATURES["negative_concreteness"])
    tell(f"concreteness of negatives' keywords: {coverage}")
    return dataset
