"""Columns of one number for each row, or each negative of a row, as tensors; and which texts are equal."""

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
    """A number for a text, 0 to 2^63 - 1, the same in every process: equal but for upper case and white space."""
    # blake2b and not hash(): the ids of all processes are compared, and hash() differs between processes. One bit is
    # dropped so that the number fits into a signed 64-bit tensor.
    words = " ".join(text.casefold().split())
    # A lone surrogate is reported elsewhere, with its row, when the text is read.
    return int.from_bytes(blake2b(words.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def row_text_key(value: Any, row: int) -> int:
    # Below 0 and different in every row: an entry that is not a text equals nothing.
    return text_key(value) if isinstance(value, str) else -1 - row


def rows_with_equal_texts(captions: Sequence[Any]) -> int:
    """Number of rows with a caption that another row has too; of a list of captions any one counts."""
    of_row = [
        set(map(text_key, one)) if isinstance(one, list) else {row_text_key(one, row)}
        for row, one in enumerate(captions)
    ]
    number = Counter(key for keys in of_row for key in keys)
    return sum(any(number[key] > 1 for key in keys) for keys in of_row)


def row_fields(rows: Sequence[dict[str, Any]], names: Sequence[int]) -> dict[str, torch.Tensor]:
    """The batch's keys `[B]` of which rows have the column: `image_id`, `text_id`; a collator adds them to its batch.

    Args:
        rows: of a batch.
        names: their indices in the dataset.

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
    return {name: field for name, field in FIELDS.items() if field.per_negative}


def read_value(name: str, value: Any, row: int) -> float:
    """An entry of a column, or of one negative in it, as the number in the batch; null is the field's `missing`."""
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
