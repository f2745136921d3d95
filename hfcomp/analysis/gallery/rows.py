"""Selects the rows of a page, identifies them, and extracts the contents of their columns."""

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
"""Name of the built-in training set, unless a file or folder has this name, and its number of rows here."""
IMAGES = ("image", "negative_image", "mask")
_EDITED_PAIRS = {
    "image": "coco_image",
    "caption": "coco_caption",
    "negative_image": "inpaint_image",
    "negative_captions": "inpaint_caption",
    "negative_kinds": "concept",
}
"""Columns of InpaintCOCO and of datasets built by `hfcomp build inpaintcoco`."""
_BYTES_OF_ID = 16


@dataclass(frozen=True)
class ShownRows:
    whole: Dataset  # the dataset as read, with undecoded images
    fingerprint: str  # fingerprint of columns, texts and numbers; row ids cover the images
    dataset: Dataset  # the shown rows under the contract's names, with `image_id` per photograph
    numbers: list[int]  # positions of the rows in `whole`
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.dataset)

    @property
    def images(self) -> list[str]:
        return [name for name in IMAGES if isinstance(self.dataset.features.get(name), Image)]


def read_set(name: str, options: DataOptions, sandbox_rows: int | None = None) -> Dataset:
    """Reads a dataset under the contract's column names, with undecoded images.

    Args:
        name: Folder, file, Hub id, or `sandbox`.
        sandbox_rows: Number of rows of the built-in dataset. Defaults to 1,000.
    """
    names = parse_column_names(options.column_names)
    if is_sandbox(name):
        return undecoded(rename_columns(training_set(sandbox_rows or SANDBOX_ROWS, 0), names))
    dataset = load_training_set(name, split=options.split, config=options.config, column_names=names)
    # The path of an archive differs between machines, but row ids must not.
    return undecoded(dataset.remove_columns(SHARD_PATH) if SHARD_PATH in dataset.column_names else dataset)


def is_sandbox(name: str) -> bool:
    # A file or folder of this name takes precedence.
    return name == SANDBOX and not os.path.exists(name)


def set_fingerprint(dataset: Dataset) -> str:
    """Identifies a dataset by its columns and all their texts and numbers. Ignores images because they are large."""
    texts = [name for name, feature in dataset.features.items() if not isinstance(feature, Image)]
    return fingerprint(dataset, texts)


def row_id(row: Mapping[str, Any]) -> str:
    """Identifies a row by its content, including images. The id depends neither on the row order nor on the machine.

    Args:
        row: Row as read, with undecoded images. An image stored as a file counts by its name and size.
    """
    # Values that JSON cannot represent, such as dates, count as their text.
    text = json.dumps({name: _identity(value) for name, value in row.items()}, sort_keys=True, default=str)
    # A text may contain a lone surrogate, which strict UTF-8 rejects.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_BYTES_OF_ID]


def _identity(value: Any) -> Any:
    if not isinstance(value, dict) or value.keys() != {"bytes", "path"}:
        return value
    if value["bytes"] is not None:
        return hashlib.sha256(value["bytes"]).hexdigest()
    # Use the file name and size, because hashing every image of a large dataset would take minutes.
    path = value["path"]
    return [path and Path(path).name, os.path.getsize(path) if path and os.path.isfile(path) else None]


def choose_rows(whole: Dataset, name: str, options: GalleryOptions) -> ShownRows:
    """Selects the rows to show: the first ones, or a random sample."""
    if not len(whole):
        raise ValueError(f"{name} has no rows in the split {options.split!r}. Check --split.")
    renamed = _rename_edited_pairs(whole)
    require_columns(renamed, ("image", "caption"), needed_by=f"the gallery of {name}", rename=RENAME)
    if not isinstance(renamed.features["image"], Image):
        raise ValueError(
            f"{name}: column 'image' holds {renamed.features['image']}, expected images. Name the image column with "
            "--column_names image=..."
        )
    number = min(options.rows, len(renamed))
    if options.seed is None:
        numbers = list(range(number))
    else:
        sample = np.random.default_rng(options.seed).choice(len(renamed), size=number, replace=False)
        # Sampled at random, but shown in dataset order.
        numbers = sorted(sample.tolist())
    notes: list[str] = []
    # Only the shown rows need ids, because computing them may require the images.
    rows = with_image_ids(renamed.select(numbers))
    rows = choose_captions(rows, options.caption_choice, notes.append, keep_others=True, allow_missing=True)
    return ShownRows(whole, set_fingerprint(whole), rows, numbers, notes)


def _rename_edited_pairs(dataset: Dataset) -> Dataset:
    """Renames the columns of edited pairs to the contract's names. Returns other datasets unchanged."""
    columns = {*dataset.column_names}
    if "image" in columns or not {*_EDITED_PAIRS.values()} <= columns:
        return dataset
    return dataset.rename_columns({theirs: ours for ours, theirs in _EDITED_PAIRS.items()})


def row_record(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns the contents of a row for the page, except for images and scores."""
    captions = row_captions(row)
    caption = captions[0] if captions else None
    negatives = [
        {
            "text": text,
            "changes": word_changes(caption or "", text),
            "kind": entry(row, "negative_kinds", index) or "",
            "facts": negative_facts(row, index),
        }
        for index, text in enumerate(as_list(row.get("negative_captions")))
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
