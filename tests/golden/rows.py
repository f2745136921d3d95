"""Data of a user's own on disk, drawn in the sandbox's world, in which the models that are scored know something."""

from __future__ import annotations

import json
from pathlib import Path

import datasets

from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUBSETS
from hfcomp.sandbox import levels_set, retrieval_set, training_set

SEED = 7


def sugarcrepe(root: Path, *, images: int = 16) -> None:
    """SugarCrepe's own files: an image takes part in several subsets."""
    rows = training_set(images, SEED, kind_weights=dict.fromkeys(SUBSETS, 1.0), num_negatives=len(SUBSETS))
    (root / "sugarcrepe").mkdir(parents=True)
    _photographs(root / "val2017", rows)
    for subset in SUBSETS:
        items = {}
        for index, row in enumerate(rows):
            for kind, negative in zip(row["negative_kinds"], row["negative_captions"], strict=True):
                if kind == subset:
                    names = {"filename": f"{index}.png", "caption": row["caption"], "negative_caption": negative}
                    items[str(len(items))] = names
        (root / "sugarcrepe" / f"{subset}.json").write_text(json.dumps(items))


def flickr8k(root: Path, *, images: int = 16) -> None:
    """Karpathy's file of Flickr8k, with two captions an image."""
    folder, rows = root / "flickr8k", retrieval_set(images, SEED)
    _photographs(folder / "flickr8k-images", rows)
    listed = [
        {
            "filename": f"{index}.png",
            "split": "test",
            "sentences": [{"raw": text} for text in (row["caption"], *row["positive_captions"])],
        }
        for index, row in enumerate(rows)
    ]
    (folder / "dataset_flickr8k.json").write_text(json.dumps({"images": listed}))


def magic(root: Path, *, images: int = 24) -> None:
    """A set with levels in the column contract, as Parquet."""
    (root / "magic").mkdir(parents=True)
    levels_set(images, SEED).to_parquet(root / "magic" / "test-00000-of-00001.parquet")


def own(root: Path, *, images: int = 48) -> Path:
    """Pairs with negatives in the column contract, as Parquet; two rows of the test split share an image's name."""
    folder = root / "pairs"
    folder.mkdir(parents=True)
    rows = training_set(images, SEED + 1, num_negatives=2)
    rows.to_parquet(folder / "train-00000-of-00001.parquet")
    held_out = training_set(20, SEED + 2, num_negatives=2)
    held_out = held_out.map(lambda _, index: {"image_id": f"image-{index // 2}"}, with_indices=True)
    held_out.to_parquet(folder / "test-00000-of-00001.parquet")
    return folder


def _photographs(folder: Path, rows: datasets.Dataset) -> None:
    folder.mkdir(parents=True)
    for index, row in enumerate(rows):
        row["image"].save(folder / f"{index}.png")
