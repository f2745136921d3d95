"""Outcomes per item of one model, on the sandbox's held-out scenes or on SugarCrepe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.benchmarks.sugarcrepe import sugarcrepe_items
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import group_match as group
from hfcomp.experiments.recipes import ExperimentConfig
from hfcomp.metrics.retrieval import retrieval_ranks

# Rows of the sandbox's retrieval set; its captions are all distinct.
RETRIEVAL_ROWS = 500


def outcomes(embedder: Embedder, config: ExperimentConfig, *, seed: int, tell: Callable[[str], None]) -> pd.DataFrame:
    """One row per item and metric.

    Returns:
        Columns `benchmark`, `subset`, `metric`, `chance`, `item`, `image_id`, `value` (0 or 1), `tie`.
    """
    if config.evaluation == "sugarcrepe":
        return _sugarcrepe(embedder, config, tell)
    return pd.concat([_sandbox_choice(embedder, config.evaluation_items, seed), _sandbox_retrieval(embedder, seed)])


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


@cache
def _choice_rows(items: int, seed: int) -> Any:
    """Drawn once for all models."""
    from datasets import Image

    from hfcomp.sandbox import choice_set

    rows = choice_set(items, seed)
    return rows.cast_column("image", Image(decode=False)).cast_column("negative_image", Image(decode=False))


def _sandbox_choice(embedder: Embedder, items: int, seed: int) -> pd.DataFrame:
    rows = _choice_rows(items, seed)
    image = embedder.images(rows["image"])
    other_image = embedder.images(rows["negative_image"], column="negative_image")
    negatives = [texts[0] for texts in rows["negative_captions"]]
    texts = embedder.texts([*rows["caption"], *negatives]).vectors
    caption, negative = np.split(texts, 2)
    chosen = choice.caption_choice(image, caption, negative)
    matched = group.group_match(image, caption, other_image, negative)
    shared = (rows["kind"], rows["image_id"], rows["image_id"])
    kinds, names, images = (list(part) for part in shared)
    return pd.concat(
        [
            _table("sandbox", kinds, "caption choice", choice.CHANCE, names, images, chosen.correct, chosen.tie),
            _table("sandbox", kinds, "group", group.CHANCE["group"], names, images, matched.group, matched.tie),
        ]
    )


def _sandbox_retrieval(embedder: Embedder, seed: int) -> pd.DataFrame:
    from datasets import Image

    from hfcomp.sandbox import retrieval_set

    rows = retrieval_set(RETRIEVAL_ROWS, seed).cast_column("image", Image(decode=False))
    image, text = embedder.images(rows["image"]), embedder.texts(rows["caption"]).vectors
    names = list(rows["image_id"])
    tables = []
    for metric, queries, keys in (
        ("text-to-image recall@1", text, image),
        ("image-to-text recall@1", image, text),
    ):
        ranks = retrieval_ranks(queries, keys)
        subset = ["all"] * len(names)
        chance = 1 / len(names)
        none = np.zeros(len(names), dtype=bool)
        tables.append(_table("sandbox retrieval", subset, metric, chance, names, names, ranks == 1, none))
    return pd.concat(tables)


def _sugarcrepe(embedder: Embedder, config: ExperimentConfig, tell: Callable[[str], None]) -> pd.DataFrame:
    items, absent = sugarcrepe_items(config.sugarcrepe_folder, config.coco_images)
    tell(f"SugarCrepe: {len(items):,} items, {absent:,} left out for want of their photograph")
    files = sorted({item.image for item in items})
    position = {file: index for index, file in enumerate(files)}
    image = embedder.images(files, progress=True)[[position[item.image] for item in items]]
    texts = embedder.texts([item.caption for item in items] + [item.negative_caption for item in items])
    caption, negative = np.split(texts.vectors, 2)
    if texts.truncated:
        tell(f"SugarCrepe: {texts.truncated} texts are longer than the text tower and were cut")
    chosen = choice.caption_choice(image, caption, negative)
    return _table(
        "SugarCrepe",
        [item.subset for item in items],
        "caption choice",
        choice.CHANCE,
        [item.item for item in items],
        [item.image.stem for item in items],
        chosen.correct,
        chosen.tie,
    )
