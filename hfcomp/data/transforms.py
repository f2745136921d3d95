"""Applies transforms of `datasets.Dataset` (`with_transform`), the usual way to augment images, to training rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset, Image, LargeList, List
from transformers.utils import logging

from hfcomp.data.formats.image_files import TEXTS
from hfcomp.data.loading import TrainingRows, undecoded

logger = logging.get_logger(__name__)

PIXELS = "pixel_values"
"""Column that a transform may return instead of `image`, like the one in transformers' run_clip.py."""
IMAGES = ("image", "negative_image")
START = "the dataset's transform"
_PROBED_ROWS = 8
Decode = Callable[..., Any]


class ImageTransform:
    """A dataset's transform and its input columns, under the dataset's own names."""

    def __init__(self, dataset: Dataset, decode: Decode) -> None:
        self._function = dataset.format["format_kwargs"]["transform"]
        rows = dataset.with_format(None).select_columns(dataset.format["columns"])
        features = rows.features
        self._images = [name for name, type_ in features.items() if isinstance(type_, Image) and type_.decode]
        self._rows, self._decode = undecoded(rows), decode

    def __call__(self, indices: Sequence[int]) -> Mapping[str, Any]:
        # Decode the images here rather than in `datasets`: by the same rules and limits as without a transform, and
        # with row and column in errors.
        batch = self._rows[list(indices)]
        for name in self._images:
            cells = zip(batch[name], indices, strict=True)
            batch[name] = [cell and self._decode(cell, where=f"column {name!r}, row {row}") for cell, row in cells]
        returned = self._function(batch)
        if not isinstance(returned, Mapping):
            raise TypeError(
                f"{START} returned a {type(returned).__name__}, expected a dictionary of columns. Return the batch "
                "dictionary with the images in it."
            )
        return returned


def image_transform(dataset: Any, decode: Decode) -> ImageTransform | None:
    is_transformed = isinstance(dataset, Dataset) and dataset.format["type"] == "custom"
    return ImageTransform(dataset, decode) if is_transformed else None


class TransformedRows(TrainingRows):
    """Training rows whose images come from the dataset's transform; everything else is read as stored.

    The values of `image` and `negative_image` are the transform's output: a PIL image, or pixels `[3, H, W]` for the
    model, either uint8 or normalized floats. `pixel_values` replaces `image`.
    """

    def __init__(self, rows: TrainingRows, transform: ImageTransform, column_names: Mapping[str, str] | None) -> None:
        self.dataset = rows.dataset
        self._transform = transform
        names, present = column_names or {}, rows.dataset.column_names
        self._images = {ours: names.get(ours, ours) for ours in IMAGES if ours in present}
        self._stored = rows.dataset.select_columns([name for name in present if name not in self._images])
        features = self._stored.features
        self._texts = {name: names.get(name, name) for name, feature in features.items() if _is_text(feature)}
        self._probe()

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        batch, returned = self._stored[indices], self._transform(indices)
        for name, theirs in self._texts.items():
            if theirs in returned:
                _check_unchanged(name, batch[name], returned[theirs], indices)
        batch |= {ours: self._pixels(ours, theirs, returned, indices) for ours, theirs in self._images.items()}
        _check_alike(batch)
        return [
            {"row": row, **{name: values[place] for name, values in batch.items()}}
            for place, row in enumerate(indices)
        ]

    def _pixels(self, ours: str, theirs: str, returned: Mapping[str, Any], indices: Sequence[int]) -> list[Any]:
        column = PIXELS if ours == "image" and PIXELS in returned else theirs
        if column not in returned:
            names = f"{theirs!r} or {PIXELS!r}" if ours == "image" else f"{theirs!r}"
            raise ValueError(
                f"{START} returned the columns {', '.join(map(repr, returned))}, expected {names}. Return the images "
                f"as {names}; other columns may be left out."
            )
        values = returned[column]
        if len(values) != len(indices):
            raise ValueError(
                f"{START} returned {len(values)} entries in {column!r} for {len(indices)} rows. Return one per row."
            )
        return [_pixels(value, column, row) for value, row in zip(values, indices, strict=True)]

    def _probe(self) -> None:
        # Read a few rows now, so an unsuitable transform fails before training. Pixels in 0..1 are the usual mistake
        # (ToTensor without Normalize), and no later check could distinguish them from normalized pixels.
        if not len(self):
            return
        rows = self.__getitems__(list(range(min(_PROBED_ROWS, len(self)))))
        pixels = [row["image"] for row in rows if isinstance(row["image"], torch.Tensor)]
        if pixels and all(image.is_floating_point() and image.min() >= 0 and image.max() <= 1 for image in pixels):
            logger.warning(
                f"{START} returned pixels between 0 and 1 in the first {len(pixels)} rows, but float pixels must be "
                "normalized: subtract the processor's image_mean and divide by its image_std, or return uint8."
            )


def _is_text(feature: Any) -> bool:
    while isinstance(feature, List | LargeList):
        feature = feature.feature
    return feature in TEXTS


def _check_unchanged(name: str, stored: Sequence[Any], returned: Sequence[Any], indices: Sequence[int]) -> None:
    for before, after, row in zip(stored, returned, indices, strict=False):
        if not isinstance(after, str | list | None) or before == after:
            continue
        raise ValueError(
            f"{START} changed column {name!r}, row {row}, from {before!r} to {after!r}, but only its images are used. "
            "Change texts with dataset.map before with_transform, or set draw_captions to draw one of several."
        )


def _check_alike(batch: Mapping[str, Sequence[Any]]) -> None:
    kinds = {
        name: {isinstance(value, torch.Tensor) for value in batch[name] if value is not None}
        for name in IMAGES
        if name in batch
    }
    if len(set().union(*kinds.values())) > 1:
        kinds_text = ", ".join(
            f"{name!r} contains {' and '.join('tensors' if is_tensor else 'PIL images' for is_tensor in sorted(kind))}"
            for name, kind in reversed(kinds.items())
            if kind
        )
        raise ValueError(
            f"{START}: {kinds_text}. Return one kind for all, such as PIL images, which hfcomp normalizes."
        )


def _pixels(value: Any, column: str, row: int) -> Any:
    if isinstance(value, np.ndarray) and (column == PIXELS or value.dtype.kind == "f"):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return value.as_subclass(torch.Tensor)  # a plain tensor: operations on torchvision's tensors differ
    if column == PIXELS:
        raise TypeError(
            f"{START}, {PIXELS!r}, row {row}: found a {type(value).__name__}, expected a tensor [3, H, W] of "
            "normalized floats or of uint8."
        )
    return value
