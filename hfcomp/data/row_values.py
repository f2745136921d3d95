"""Converts columns with one number per row or per negative to tensors, and detects equal texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import torch

from hfcomp.data.columns import kind_id
from hfcomp.data.image_ids import image_key
from hfcomp.fields import FIELDS, Field


def text_key(text: str) -> int:
    """Returns a number for a text, 0 to 2^63 - 1, the same in every process and regardless of case and white space."""
    # blake2b rather than hash(), because ids are compared across processes and hash() differs between them. One bit is
    # dropped so that the number fits into a signed 64-bit tensor.
    words = " ".join(text.casefold().split())
    # Lone surrogates are reported elsewhere, with their row, when the text is read.
    return int.from_bytes(blake2b(words.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def row_text_key(value: Any, row: int) -> int:
    # Below 0 and different in every row, so an entry that is not a text never equals another.
    return text_key(value) if isinstance(value, str) else -1 - row


def rows_with_equal_texts(captions: Sequence[Any]) -> int:
    """Number of rows that share a caption with another row; in lists of captions, any shared caption counts."""
    row_keys = [
        set(map(text_key, caption)) if isinstance(caption, list) else {row_text_key(caption, row)}
        for row, caption in enumerate(captions)
    ]
    number = Counter(key for keys in row_keys for key in keys)
    return sum(any(number[key] > 1 for key in keys) for keys in row_keys)


def row_fields(rows: Sequence[dict[str, Any]], names: Sequence[int]) -> dict[str, torch.Tensor]:
    """Makes the batch tensors `[B]` for columns that the rows have, such as `image_id` and `text_id`.

    A collator adds them to its batch.

    Args:
        rows: Rows of a batch.
        names: Indices of the rows in the dataset.

    Raises:
        ValueError: If an entry is invalid. The message names column and row.
    """
    tensors = {}
    for name, field in FIELDS.items():
        if field.dtype is not None and not field.per_negative and field.column in rows[0]:
            values = [read_value(name, row[field.column], index) for row, index in zip(rows, names, strict=True)]
            tensors[name] = torch.tensor(values, dtype=field.dtype)
    return tensors


def negative_fields() -> dict[str, Field]:
    return {name: field for name, field in FIELDS.items() if field.per_negative}


def read_value(name: str, value: Any, row: int) -> float:
    """Converts an entry of a column, or of one negative in it, to its number; null becomes the field's `missing`."""
    field = FIELDS[name]
    value = field.missing if value is None else value
    if name in READERS:
        return READERS[name](value, row)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"column {field.column!r}, row {row}: found {value!r}, expected a number. Correct it in the file, or "
            "remove the row in Python with dataset.filter."
        ) from None


def _kind(kind: str, row: int) -> int:
    return kind_id(kind, where=f"column 'negative_kinds', row {row}")


def _rating(rating: float, row: int) -> float:
    """Checks a concreteness rating; NaN means missing, like null."""
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
"""Converters for fields whose entries are not plain numbers: from the entry and its row to the number in the batch."""
