"""The values of a column of a benchmark's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # slow to import, and whoever only lists or compares imports this module
    from datasets import Dataset


def column_values(rows: Dataset, name: str) -> list[Any]:
    """All values of a column, which are those of `rows[name][:]`.

    `datasets` copies the description of all columns for each one that is read so: milliseconds, where the texts of a
    thousand rows take one. Images and rows in another order are left to it.

    Args:
        rows: the data set, unformatted or not.
        name: of a column that it has.
    """
    from datasets.features.features import require_decoding

    feature = (rows.info.features or {}).get(name)
    if feature is None or require_decoding(feature) or rows.format["type"] is not None or rows._indices is not None:
        return rows[name][:]
    return rows.data.column(name).to_pylist()
