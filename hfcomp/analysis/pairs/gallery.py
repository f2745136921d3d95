"""Pairs to look at, as the paper's Figure 7: of several sets the same images side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, Features, Image, Value

from hfcomp.analysis.gallery.drawing import draw_gallery
from hfcomp.analysis.pairs.images import PairImages
from hfcomp.analysis.pairs.items import IMAGES
from hfcomp.analysis.pairs.summary import ScoredSet
from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.pair_table import NEGATIVE_FACTS

FEATURES = Features(
    {
        **{column: Image(decode=False) for column in IMAGES},
        **{"image_id": Value("string"), "caption": Value("string")},
        **{name: kind for name, kind in NEGATIVE_FEATURES.items() if name != "negative_spans"},
    }
)
TRIES = 10
"""Times the number of pairs wanted that are tried, where images cannot be read."""


def gallery_png(sets: Mapping[str, ScoredSet], number: int, seed: int = 0, heading: str = "") -> bytes:
    """The PNG of pairs drawn at random: of images that all sets have, each with its pair of every set.

    Where the sets share no image, each shows its own. Only pairs whose images can be read are shown; empty where
    there are none.

    Args:
        sets: by name.
        number: of pairs.
        seed: of the choice.
        heading: above all.
    """
    chosen = _choose(sets, number, seed)
    pairs = [
        (name, row) for rows in zip(*chosen.values(), strict=True) for name, row in zip(chosen, rows, strict=True)
    ]
    if not pairs:
        return b""
    rows = [_shown(sets[name], row) for name, row in pairs]
    labels = [_label(name, row, shown["image_id"]) for (name, row), shown in zip(pairs, rows, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        drawn = draw_gallery(
            Dataset.from_list(rows, features=FEATURES),
            Path(folder) / "gallery.png",
            rows=range(len(rows)),
            columns=max(len(chosen), 2),  # sets side by side
            labels=labels,
            heading=heading,
        )
        return drawn.read_bytes()


def _label(name: str, row: int, image: str | None) -> str:
    return f"{name}, row {row}" + (f", image {image}" if image else "")


def _choose(sets: Mapping[str, ScoredSet], number: int, seed: int) -> dict[str, list[int]]:
    """By set the rows, as many of each; those in one place are of one image where sets share some."""
    tables = {
        name: one.pairs.items.drop_duplicates("image_id").set_index("image_id")["row"] for name, one in sets.items()
    }
    shared = sorted(set.intersection(*(set(table.index) for table in tables.values())))
    generator, wanted = np.random.default_rng(seed), max(1, number // len(sets))
    shows = {name: _looks(one) for name, one in sets.items()}
    if shared:
        ids = [shared[place] for place in generator.permutation(len(shared))[: TRIES * wanted]]
        whole = (one for one in ids if all(shows[name](int(table[one])) for name, table in tables.items()))
        kept = list(islice(whole, wanted))
        return {name: [int(table[one]) for one in kept] for name, table in tables.items()}
    found = {}
    for name, table in tables.items():
        rows = (int(row) for row in generator.permutation(table.to_numpy())[: TRIES * wanted])
        found[name] = list(islice(filter(shows[name], rows), wanted))
    least = min(map(len, found.values()))
    return {name: rows[:least] for name, rows in found.items()}


def _looks(one: ScoredSet) -> Callable[[int], bool]:
    """Whether the images of a row can be read; a missing negative image is shown as such."""
    images, dataset = PairImages(one.pairs), one.pairs.dataset

    def look(row: int) -> bool:
        without = (
            {"negative_image"} if "negative_image" in images.columns and not dataset[row]["negative_image"] else set()
        )
        return "image" in images.columns and all(images.readable(name, row) for name in set(images.columns) - without)

    return look


def _shown(one: ScoredSet, row: int) -> dict[str, Any]:
    """A row with the columns that are drawn, and its rating joined."""
    own = one.pairs.dataset[row]
    items = one.pairs.items[one.pairs.items["row"] == row]
    found = {column: own.get(column) for column in FEATURES}
    found["image_id"] = None if own.get("image_id") is None else str(own["image_id"])
    for column, kind in NEGATIVE_FACTS.items():
        if column in FEATURES:
            found[column] = [None if pd.isna(value) else value for value in items[kind]]
    return found | {"negative_captions": items["negative_caption"].tolist()}
