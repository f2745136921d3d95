"""Lists that are written as a text, as in a CSV file, which has no others: `["a dog", "a cat"]` in JSON or Python."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from typing import Any

from datasets import Dataset, List, Value

from hfcomp.data.features import CONCEPT_FEATURES, NEGATIVE_FEATURES
from hfcomp.data.formats.image_files import TEXTS

_TEXT_LISTS = ("caption", "positive_captions", "neighbour_ids", "hard_negative_groups")
LIST_FEATURES = {**dict.fromkeys(_TEXT_LISTS, List(Value("string"))), **NEGATIVE_FEATURES, **CONCEPT_FEATURES}
_LONGEST = 100_000
_MISSING = object()


def with_lists(dataset: Dataset) -> Dataset:
    """The data set with its written lists as lists, in columns of the contract that may hold some.

    A column is read so only if all its entries are lists; else it stays, and what needs lists reports it.

    Args:
        dataset: under the contract's names.
    """
    for column, feature in LIST_FEATURES.items():
        if column in dataset.column_names and dataset.features[column] in TEXTS:
            lists = _lists(dataset[column])
            if lists is not None:
                dataset = dataset.remove_columns(column).add_column(column, lists, feature=feature)
    return dataset


def _lists(texts: Sequence[str | None]) -> list[list[Any] | None] | None:
    """What the texts of a column spell; None where one of them is not a list, or all are missing."""
    found = []
    for text in texts:
        value = None if text is None else _read(text.strip())
        if value is _MISSING:
            return None
        found.append(value)
    return found if any(value is not None for value in found) else None


def read_list(text: str) -> list[Any] | None:
    """The list that a text spells in JSON or Python; `None` where it spells none."""
    value = _read(text.strip())
    return None if value is _MISSING else value


def _read(text: str) -> Any:
    if not (text.startswith("[") and text.endswith("]")) or len(text) > _LONGEST:
        return _MISSING
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, list) else _MISSING
    return _MISSING
