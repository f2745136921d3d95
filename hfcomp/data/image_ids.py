"""The column `image_id`: which rows of a training set, and of a batch, show one image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from numbers import Integral
from typing import Any

IMAGE_ID = "image_id"


def image_key(value: Any, row: int) -> int:
    """A number for an image, the same in every process; below 0 for a row without an id, which no other row has.

    Args:
        value: a text or an integer; missing or empty means no id.
        row: its index in the data set.

    Raises:
        ValueError: for another type.
    """
    if value is None or (isinstance(value, str) and not value.strip()) or value != value:
        return -1 - row
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise ValueError(
            f"column {IMAGE_ID!r}, row {row}: found {value!r}, expected a text or a whole number, equal for rows of "
            f"one image, or null. Correct it with dataset.map, or remove it: dataset.remove_columns({IMAGE_ID!r})."
        )
    return int.from_bytes(blake2b(str(value).encode(), digest_size=8).digest(), "big") >> 1


def shared_rows(values: Sequence[Any]) -> int:
    """How many rows have an `image_id` that another row has too.

    Args:
        values: the column.

    Raises:
        ValueError: for an invalid id, or one id for all rows.
    """
    number = Counter(image_key(value, row) for row, value in enumerate(values))
    if len(number) == 1 and len(values) > 1:
        raise ValueError(
            f"column {IMAGE_ID!r}: all {len(values):,} rows have the value {values[0]!r}, so no row would be a "
            "negative of another. Give rows of different images different values, or remove the column: "
            f"dataset.remove_columns({IMAGE_ID!r}). A recipe with captions: all fills the column with row indices: "
            "use a data set with several images."
        )
    return sum(count for count in number.values() if count > 1)
