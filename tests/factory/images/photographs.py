"""Rows with a negative caption, and their builds."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pillow

from hfcomp.factory.images.options import ImageOptions
from hfcomp.factory.images.stage import READS, image_stages
from hfcomp.factory.runner import Build, run_stages

SOURCE = Features(
    {"image": Image(decode=False), "caption": Value("string"), "negative_captions": List(Value("string"))}
)
FEATURES = Features({**SOURCE, "image": Image(), "negative_image": Image()})
SIZE = 32
COLORS = ("red", "blue", "green", "white", "black", "brown", "yellow", "orange", "pink", "grey")


def photograph(number: int, *, width: int = 60, height: int = 48) -> bytes:
    """A JPEG of soft random shapes."""
    pixels = np.random.default_rng(number).integers(0, 255, (5, 6, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling.BICUBIC).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def row(number: int) -> dict[str, Any]:
    return {
        "image": {"bytes": photograph(number), "path": f"{number}.jpg"},
        "caption": f"a {COLORS[number]} dog",
        "negative_captions": [f"a {COLORS[number]} cat"],
    }


def source(rows: list[dict[str, Any]]) -> Dataset:
    return Dataset.from_list(rows, features=SOURCE)


def options(pipeline: Path, **changes: Any) -> ImageOptions:
    small = {"image_size": SIZE, "image_batch_size": 3, "device": "cpu"}
    return ImageOptions(source="", output=Path(), image_pipeline=str(pipeline), **small | changes)


def build(
    folder: Path, dataset: Dataset, pipeline: Path, *, rows_per_shard: int = 4, num_workers: int = 1, **changes: Any
) -> Build:
    stages = image_stages(options(pipeline, **changes))
    run = {"rows_per_shard": rows_per_shard, "num_workers": num_workers}
    return run_stages(dataset, stages, folder, features=FEATURES, reads=READS, **run)
