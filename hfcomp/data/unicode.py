"""Texts of Parquet and Arrow files, which may hold bytes that are no text: their readers do not look."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from datasets import Dataset


def check_unicode(rows: Any, name: str) -> None:
    """Checks that all texts of a table are valid UTF-8, also those in lists and in images' names.

    Args:
        rows: nothing is known of a stream.
        name: of the data set, for errors.

    Raises:
        ValueError: naming the data set, and the column and row of the first that is not.
    """
    if not isinstance(rows, Dataset):
        return
    for column in rows.column_names:
        start = 0
        for chunk in rows.data.column(column).chunks:
            if not _is_valid(chunk):
                row = start + next(place for place in range(len(chunk)) if not _is_valid(chunk.take([place])))
                raise ValueError(
                    f"{name}: column {column!r}, row {row}: damaged, as the text is not valid UTF-8. Write the file "
                    "again from its source, or download it again."
                )
            start += len(chunk)


def _is_valid(values: Any) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
