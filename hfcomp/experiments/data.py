"""The training set of a recipe: loaded or drawn, filtered, with negatives and ratings joined, lost rows told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, Image, LargeList, List

from hfcomp.data.columns import rename_columns
from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.loading import load_training_set
from hfcomp.experiments.recipes import SANDBOX, ExperimentConfig
from hfcomp.negatives.keyword_matching import MATCHINGS
from hfcomp.negatives.keywords import negative_columns

Tell = Callable[[str], None]


def training_rows(config: ExperimentConfig, *, column_names: Any, seed: int, tell: Tell) -> Dataset:
    """The rows that the method and its controls train on.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own.
        seed: of the sandbox's scenes and of the keyword negatives.
        tell: receives a line about what was loaded, dropped or joined.
    """
    if config.dataset == SANDBOX:
        from hfcomp.sandbox import KIND_WEIGHTS, training_set

        kinds = config.negative_kinds
        return training_set(
            config.dataset_rows,
            seed,
            kind_weights={kind: KIND_WEIGHTS.get(kind, 1.0) for kind in kinds} if kinds else None,
            edit_noise=config.edit_noise,
            caption_noise=config.caption_noise,
            false_negatives=config.false_negatives,
        )
    dataset = load_training_set(config.dataset, split=config.dataset_split, config=config.dataset_config)
    tell(f"{len(dataset):,} rows from {config.dataset}")
    dataset = _filtered(dataset, config.dataset_filter, tell)
    dataset = longest_caption(rename_columns(dataset, column_names), tell)
    if config.keyword_negatives:
        dataset = _with_keyword_negatives(dataset, config, seed, tell)
    if config.concreteness_ratings:
        dataset = _with_concreteness(dataset, config.concreteness_ratings, tell)
    return dataset


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


def longest_caption(dataset: Dataset, tell: Tell) -> Dataset:
    """Slipform, section 2.2: the longest caption where there are several (most words; the first of equal ones).

    Args:
        dataset: with or without a column `caption`.
        tell: receives a line where rows hold lists.

    Raises:
        ValueError: for a row with a list of captions that holds no text.
    """
    if "caption" not in dataset.column_names or not isinstance(dataset.features["caption"], List | LargeList):
        return dataset
    chosen = []
    for row, captions in enumerate(dataset["caption"]):
        texts = [text for text in captions or [] if text and text.strip()]
        if not texts:
            raise ValueError(
                f"column 'caption', row {row}: {captions!r} holds no text. Remove the row, give it a caption, or "
                "leave such rows out with dataset_filter."
            )
        chosen.append(max(texts, key=lambda text: len(text.split())))
    tell("several captions per image: the longest is used")
    return dataset.remove_columns("caption").add_column("caption", chosen)


def _with_keyword_negatives(dataset: Dataset, config: ExperimentConfig, seed: int, tell: Tell) -> Dataset:
    """Replaces the negatives of a data set; its other columns that speak of the old ones go with them."""
    columns = negative_columns(
        dataset["caption"],
        concepts=config.keyword_negatives,
        num_negatives=1,
        seed=seed,
        matching=MATCHINGS[config.keyword_matching],
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
    tell(f"{made:,} captions have a keyword and got a negative; {len(dataset) - made:,} take part without")
    return dataset.add_column("negative_image", [None] * len(dataset), feature=Image())


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
