"""The rows that a page shows: which they are, what identifies them, and what is shown of their columns."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Image

from hfcomp.analysis.gallery.options import DataOptions, GalleryOptions
from hfcomp.data.columns import rename_columns, require_columns
from hfcomp.data.image_ids import with_image_ids
from hfcomp.data.known_names import parse_column_names
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.data.pair_table import POSITIVES, as_list, choose_captions, entry, row_captions, texts_of
from hfcomp.factory.options import RENAME
from hfcomp.factory.runner import fingerprint
from hfcomp.factory.sources import SHARD_PATH
from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.row_pictures import negative_facts, other_facts
from hfcomp.sandbox import training_set

SANDBOX, SANDBOX_ROWS = "sandbox", 1000
"""The name of the built-in world's training set, where there is no file or folder of this name, and its rows here."""
IMAGES = ("image", "negative_image", "mask")
_EDITED_PAIRS = {
    "image": "coco_image",
    "caption": "coco_caption",
    "negative_image": "inpaint_image",
    "negative_captions": "inpaint_caption",
    "negative_kinds": "concept",
}
"""Columns of InpaintCOCO and of sets of `hfcomp build inpaintcoco`."""
_BYTES_OF_ID = 16


@dataclass(frozen=True)
class ShownRows:
    whole: Dataset  # the dataset as it is read, images undecoded
    fingerprint: str  # of its columns, texts and numbers; images count in the ids of rows
    dataset: Dataset  # the rows that are shown, under the contract's names, each photograph as `image_id`
    numbers: list[int]  # positions of the rows in `whole`
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.dataset)

    @property
    def images(self) -> list[str]:
        return [name for name in IMAGES if isinstance(self.dataset.features.get(name), Image)]


def read_set(name: str, options: DataOptions, sandbox_rows: int | None = None) -> Dataset:
    """A dataset in the column contract, images undecoded.

    Args:
        name: a folder, a file, a Hub id, or `sandbox`.
        sandbox_rows: number of rows of the built-in world, 1,000 by default.
    """
    names = parse_column_names(options.column_names)
    if is_sandbox(name):
        return undecoded(rename_columns(training_set(sandbox_rows or SANDBOX_ROWS, 0), names))
    dataset = load_training_set(name, split=options.split, config=options.config, column_names=names)
    # The path of an archive differs between machines, and ids of rows must not.
    return undecoded(dataset.remove_columns(SHARD_PATH) if SHARD_PATH in dataset.column_names else dataset)


def is_sandbox(name: str) -> bool:
    # A file or folder of this name takes precedence.
    return name == SANDBOX and not os.path.exists(name)


def set_fingerprint(dataset: Dataset) -> str:
    """Identifies a dataset by its columns and all their texts and numbers, and not by its images, which are large."""
    texts = [name for name, feature in dataset.features.items() if not isinstance(feature, Image)]
    return fingerprint(dataset, texts)


def row_id(row: Mapping[str, Any]) -> str:
    """Identifies a row by its content, images included: the same in any order of rows and on any machine.

    Args:
        row: as it is read, images undecoded. Of an image that is a file its name and size count.
    """
    # Values that JSON lacks, such as dates, count as their text.
    text = json.dumps({name: _identity(value) for name, value in row.items()}, sort_keys=True, default=str)
    # A text may hold a lone surrogate, which strict UTF-8 rejects.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_BYTES_OF_ID]


def _identity(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"bytes", "path"}:
        return value
    if value["bytes"] is not None:
        return hashlib.sha256(value["bytes"]).hexdigest()
    # A file's name and size: reading every image of a large set for its hash would take minutes.
    path = value["path"]
    return [path and Path(path).name, os.path.getsize(path) if path and os.path.isfile(path) else None]


def choose_rows(whole: Dataset, name: str, options: GalleryOptions) -> ShownRows:
    """The rows that are shown: the first ones, or some that are drawn at random."""
    if not len(whole):
        raise ValueError(f"{name} has no rows in the split {options.split!r}. Check --split.")
    named = _named(whole)
    require_columns(named, ("image", "caption"), needed_by=f"the gallery of {name}", rename=RENAME)
    if not isinstance(named.features["image"], Image):
        raise ValueError(
            f"{name}: column 'image' holds {named.features['image']}, expected images. Name the column of images: "
            "--column_names image=..."
        )
    number = min(options.rows, len(named))
    if options.seed is None:
        numbers = list(range(number))
    else:
        drawn = np.random.default_rng(options.seed).choice(len(named), size=number, replace=False)
        # Drawn at random, but shown in the set's order.
        numbers = sorted(drawn.tolist())
    notes: list[str] = []
    # Only the shown rows need ids, which may have to be computed from the images.
    rows = with_image_ids(named.select(numbers))
    rows = choose_captions(rows, options.caption_choice, notes.append, keep_others=True, allow_missing=True)
    return ShownRows(whole, set_fingerprint(whole), rows, numbers, notes)


def _named(dataset: Dataset) -> Dataset:
    """Rows of edited pairs under the contract's names; any others as they are."""
    there = {*dataset.column_names}
    if "image" in there or not {*_EDITED_PAIRS.values()} <= there:
        return dataset
    return dataset.rename_columns({theirs: ours for ours, theirs in _EDITED_PAIRS.items()})


def row_record(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """What a page shows of a row, but for its images and scores."""
    captions = row_captions(row)
    caption = captions[0] if captions else None
    negatives = [
        {
            "text": text,
            "changes": word_changes(caption or "", text),
            "kind": entry(row, "negative_kinds", place) or "",
            "facts": negative_facts(row, place),
        }
        for place, text in enumerate(as_list(row.get("negative_captions")))
        if texts_of(text)
    ]
    image_id = row.get("image_id")
    return {
        "row": number,
        "image_id": None if image_id in (None, "") else str(image_id),
        "caption": caption,
        "positives": [*captions[1:], *texts_of(row.get(POSITIVES))],
        "negatives": negatives,
        "facts": other_facts(row, [name for name in row if name not in IMAGES]),
    }
