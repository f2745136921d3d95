"""The fields of a batch that are one number for each row, or for each negative of a row: columns to tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hfcomp.data.columns import kind_id
from hfcomp.data.image_ids import image_key
from hfcomp.data.text_ids import row_text_key
from hfcomp.fields import FIELDS, Field


def row_fields(rows: Sequence[dict[str, Any]], names: Sequence[int]) -> dict[str, torch.Tensor]:
    """The batch's keys `[B]` of which rows have the column: `image_id`, `text_id`; a collator adds them to its batch.

    Args:
        rows: of a batch.
        names: their indices in the data set.

    Raises:
        ValueError: for an invalid entry, naming column and row.
    """
    found = {}
    for name, field in FIELDS.items():
        if field.dtype is not None and not field.per_negative and field.column in rows[0]:
            values = [read_value(name, row[field.column], index) for row, index in zip(rows, names, strict=True)]
            found[name] = torch.tensor(values, dtype=field.dtype)
    return found


def negative_fields() -> dict[str, Field]:
    """The fields that are one number for each negative."""
    return {name: field for name, field in FIELDS.items() if field.per_negative}


def read_value(name: str, value: Any, row: int) -> float:
    """An entry of a column as the number that stands in the batch.

    Args:
        name: of the field.
        value: the entry, for a field of negatives that of one negative; null is the field's `missing`.
        row: its index in the data set.

    Raises:
        ValueError: for an invalid entry, naming column and row.
    """
    field = FIELDS[name]
    value = field.missing if value is None else value
    if name in READERS:
        return READERS[name](value, row)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {field.column!r}, row {row}: found {value!r}, expected a number. Correct it in the file, or "
            "remove the row, in Python with dataset.filter."
        ) from None


def _kind(kind: str, row: int) -> int:
    return kind_id(kind, where=f"column 'negative_kinds', row {row}")


def _rating(rating: float, row: int) -> float:
    """A rating of concreteness, which NaN leaves out as null does."""
    if not math.isnan(rating) and not 1 <= rating <= 5:
        raise ValueError(
            f"column 'negative_concreteness', row {row}: found {rating!r}, expected 1 (abstract) to 5 (concrete). "
            "Rescale the ratings in the file, or use null for an unknown value."
        )
    return float(rating)


READERS: dict[str, Callable[[Any, int], float]] = {
    "image_id": image_key,
    "text_id": row_text_key,
    "negative_text_id": row_text_key,
    "negative_kind": _kind,
    "negative_concreteness": _rating,
}
"""Of fields whose entries are not plain numbers: the entry and its row to the number in the batch."""
