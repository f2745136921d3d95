"""Small builds for the tests: stages, sources and what is in a folder."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, Value
from PIL import Image as Pillow

from hfcomp.factory.runner import COUNTS, SET_ASIDE, Batch, Build, Stage, run_stages

FEATURES = Features({"image": Image(), "caption": Value("string"), "loud": Value("string")})


def png(number: int) -> bytes:
    stream = io.BytesIO()
    Pillow.fromarray(np.full((4, 4, 3), number, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def source(rows: int = 10, *, first: str = "caption 0") -> Dataset:
    """Rows with the bytes of an image each; every fifth caption is empty."""
    captions = [first, *(f"caption {row}" if row % 5 else "" for row in range(1, rows))]
    images = [{"bytes": png(row), "path": f"/somewhere/{row}.png"} for row in range(rows)]
    features = Features({"image": Image(decode=False), "caption": Value("string")})
    return Dataset.from_dict({"image": images, "caption": captions}, features=features)


def build(folder: Path, dataset: Dataset | None = None, stages: Sequence[Stage] | None = None, **options) -> Build:
    """A set of these stages, four rows a shard."""
    options = {"features": FEATURES, "rows_per_shard": 4} | options
    return run_stages(
        source() if dataset is None else dataset, loud_stages() if stages is None else stages, folder, **options
    )


def make_loud(*, mark: str, seconds: float = 0.0):
    """A stage that writes captions in capitals; empty ones are set aside."""

    def loud(batch: Batch) -> Batch:
        time.sleep(seconds)
        captions = batch["caption"]
        return batch | {
            "loud": [text.upper() + mark for text in captions],
            SET_ASIDE: [None if text else "empty: no text at all" for text in captions],
            COUNTS: [{"letters": len(text)} for text in captions],
        }

    return loud


def make_failing(*, at: str):
    """A stage that raises for one caption."""

    def fail(batch: Batch) -> Batch:
        if at in batch["caption"]:
            raise KeyError(f"cannot do {at}")
        return batch | {"loud": batch["caption"]}

    return fail


def make_picked(*, rows: list[int]):
    """A stage that hands on some rows, in any order and number."""

    def pick(batch: Batch) -> Batch:
        picked = {name: [values[row] for row in rows] for name, values in batch.items()}
        return picked | {"loud": [str(row) for row in rows]}

    return pick


def loud_stages(mark: str = "!", **settings) -> list[Stage]:
    return [Stage("loud", make_loud, {"mark": mark, **settings}, {"mark": mark})]


def hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file in a folder, hidden ones included."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
