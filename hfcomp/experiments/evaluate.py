"""Outcomes per item of a model: on the sandbox's held-out scenes, on SugarCrepe, or on a set of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, Image
from numpy.typing import NDArray

from hfcomp.data.columns import rename_columns, require_columns
from hfcomp.data.loading import load_training_set
from hfcomp.evaluation.benchmarks.sugarcrepe import sugarcrepe_items
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import group_match as group
from hfcomp.experiments.recipes import ExperimentConfig
from hfcomp.metrics.retrieval import retrieval_ranks

# Rows of the sandbox's retrieval set; its captions are all distinct.
RETRIEVAL_ROWS = 500

Evaluation = Callable[[Embedder], pd.DataFrame]


def prepare_evaluation(
    config: ExperimentConfig, *, column_names: Any, seed: int, tell: Callable[[str], None]
) -> Evaluation:
    """Loads the items before anything is trained, so that a missing file costs no training.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own, for `own`.
        seed: of the sandbox's scenes.
        tell: receives what was left out.

    Returns:
        A function from an embedder to one row per item and metric, with the columns `benchmark`, `subset`, `metric`,
        `chance`, `item`, `image_id`, `value` (0 or 1) and `tie`.
    """
    if config.evaluation == "sugarcrepe":
        return _sugarcrepe(config, tell)
    if config.evaluation == "own":
        return _own(config, column_names, tell)
    return _sandbox(config.evaluation_items, seed)


def _table(
    benchmark: str,
    subsets: Sequence[str],
    metric: str,
    chance: float,
    items: Sequence[str],
    images: Sequence[str],
    value: NDArray[Any],
    tie: NDArray[Any],
) -> pd.DataFrame:
    columns = {"subset": subsets, "item": items, "image_id": images}
    table = pd.DataFrame({**columns, "value": value.astype(float), "tie": tie.astype(bool)})
    return table.assign(benchmark=benchmark, metric=metric, chance=chance)


def _sandbox(items: int, seed: int) -> Evaluation:
    from hfcomp.sandbox import choice_set, retrieval_set

    pairs = _undecoded(choice_set(items, seed))
    scenes = _undecoded(retrieval_set(RETRIEVAL_ROWS, seed))

    def evaluate(embedder: Embedder) -> pd.DataFrame:
        image, other_image = embedder.images(pairs["image"]), embedder.images(pairs["negative_image"])
        negatives = [texts[0] for texts in pairs["negative_captions"]]
        caption, negative = np.split(embedder.texts([*pairs["caption"], *negatives]).vectors, 2)
        chosen = choice.caption_choice(image, caption, negative)
        matched = group.group_match(image, caption, other_image, negative)
        kinds, names = list(pairs["kind"]), list(pairs["image_id"])
        by_choice = _table("sandbox", kinds, "caption choice", choice.CHANCE, names, names, chosen.correct, chosen.tie)
        by_group = _table("sandbox", kinds, "group", group.CHANCE["group"], names, names, matched.group, matched.tie)
        found = embedder.images(scenes["image"]), embedder.texts(scenes["caption"]).vectors
        names = list(scenes["image_id"])
        return pd.concat([by_choice, by_group, _retrieval("sandbox retrieval", *found, names, names)])

    return evaluate


def _undecoded(dataset: Dataset) -> Dataset:
    for column, feature in dataset.features.items():
        if isinstance(feature, Image):
            dataset = dataset.cast_column(column, Image(decode=False))
    return dataset


def _retrieval(
    benchmark: str,
    image: NDArray[np.float32],
    text: NDArray[np.float32],
    items: Sequence[str],
    clusters: Sequence[str],
) -> pd.DataFrame:
    tables = []
    for metric, queries, keys in (
        ("text-to-image recall@1", text, image),
        ("image-to-text recall@1", image, text),
    ):
        hits = retrieval_ranks(queries, keys) == 1
        nothing = np.zeros(len(items), dtype=bool)
        tables.append(_table(benchmark, ["all"] * len(items), metric, 1 / len(items), items, clusters, hits, nothing))
    return pd.concat(tables)


def _own(config: ExperimentConfig, column_names: Any, tell: Callable[[str], None]) -> Evaluation:
    source = config.evaluation_dataset or config.dataset
    rows = load_training_set(source, split=config.evaluation_split, config=config.dataset_config)
    rows = rename_columns(rows, column_names)
    require_columns(rows, ("image", "caption"), needed_by="evaluation: own")
    rows = _undecoded(rows)
    items = [str(index) for index in range(len(rows))]
    clusters = [str(name) for name in rows["image_id"]] if "image_id" in rows.column_names else items
    listed = rows["negative_captions"] if "negative_captions" in rows.column_names else [[]] * len(rows)
    negatives = [next(filter(None, texts or []), "") for texts in listed]
    chosen = [index for index, text in enumerate(negatives) if text]
    tell(f"evaluation: {len(rows):,} rows of {source} ({config.evaluation_split}), {len(chosen):,} with a negative")

    def evaluate(embedder: Embedder) -> pd.DataFrame:
        image = embedder.images(rows["image"], progress=True)
        text = embedder.texts(list(rows["caption"])).vectors
        tables = [_retrieval("own", image, text, items, clusters)]
        if chosen:
            negative = embedder.texts([negatives[index] for index in chosen]).vectors
            outcome = choice.caption_choice(image[chosen], text[chosen], negative)
            named = [items[index] for index in chosen], [clusters[index] for index in chosen]
            all_of_them = ["all"] * len(chosen)
            table = _table("own", all_of_them, "caption choice", choice.CHANCE, *named, outcome.correct, outcome.tie)
            tables.insert(0, table)
        return pd.concat(tables)

    return evaluate


def _sugarcrepe(config: ExperimentConfig, tell: Callable[[str], None]) -> Evaluation:
    items, absent = sugarcrepe_items(config.sugarcrepe_folder, config.coco_images)
    tell(f"SugarCrepe: {len(items):,} items, {absent:,} left out for want of their photograph")
    files = sorted({item.image for item in items})
    position = {file: index for index, file in enumerate(files)}

    def evaluate(embedder: Embedder) -> pd.DataFrame:
        image = embedder.images(files, progress=True)[[position[item.image] for item in items]]
        texts = embedder.texts([item.caption for item in items] + [item.negative_caption for item in items])
        if texts.truncated:
            tell(f"SugarCrepe: {texts.truncated} texts are longer than the text tower and were cut")
        chosen = choice.caption_choice(image, *np.split(texts.vectors, 2))
        return _table(
            "SugarCrepe",
            [item.subset for item in items],
            "caption choice",
            choice.CHANCE,
            [f"{item.subset}/{item.item}" for item in items],
            [item.image.stem for item in items],
            chosen.correct,
            chosen.tie,
        )

    return evaluate
