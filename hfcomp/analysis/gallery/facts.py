"""What is said of a row beside its images and captions, as short texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hfcomp.data.pair_table import entry

LONGEST = 300
"""Characters of a value that are shown."""
_NEGATIVE = (
    ("negative_kinds", ""),
    ("negative_categories", ""),
    ("negative_keywords", "keyword "),
    ("negative_concreteness", "concreteness "),
)
_SHOWN_ELSEWHERE = ("caption", "positive_captions", "negative_captions", "image_id", *(name for name, _ in _NEGATIVE))
_OFFSETS = ("negative_spans", "concept_spans")


def negative_facts(row: Mapping[str, Any], place: int) -> str:
    """Kind, category, keyword and concreteness of a negative, those that are given.

    Args:
        row: in the column contract.
        place: of the negative in the row's lists, from 0.
    """
    found = []
    for column, title in _NEGATIVE:
        value = entry(row, column, place)
        if value not in (None, ""):
            found.append(title + (f"{value:.2f}" if isinstance(value, float) else str(value)))
    return ", ".join(found)


def other_facts(row: Mapping[str, Any], columns: Sequence[str]) -> list[tuple[str, str]]:
    """The row's other columns, such as concepts, groups and levels, as names and values, without empty ones.

    Args:
        row: in the column contract.
        columns: the row's columns that are no images.
    """
    shown = (name for name in columns if name not in _SHOWN_ELSEWHERE + _OFFSETS)
    found = ((name, _text(row[name])) for name in shown)
    return [(name, value) for name, value in found if value]


def _text(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        text = ", ".join(map(str, value))
    elif isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
