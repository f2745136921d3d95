"""Detects concept names among training texts: a model that has read them cannot be tested on them as unseen."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LEVELS = ("level_1", "level_2", "level_3", "level_4")
"""Columns with the names of an image's concepts, from the concept of its captions to the most abstract one."""
LEVEL_COLUMNS = ("group", *LEVELS)
"""Columns that name concepts; a group is named after its concept."""

AROUND = string.punctuation + " \u2018\u2019\u201c\u201d"
"""Punctuation and quotation marks that may surround a name."""


class LevelName(NamedTuple):
    """A training text that is the name of a concept."""

    column: str
    text: str
    level: str  # column that contains the name


def level_columns(dataset: Any, column_names: Mapping[str, str] | None) -> list[str]:
    """Returns the names in `LEVEL_COLUMNS` that a dataset has after its columns are renamed."""
    renamed = column_names or {}
    names = {*(getattr(dataset, "column_names", None) or ()), *renamed}  # renaming keeps these, see `rename_columns`
    return [name for name in LEVEL_COLUMNS if name in names]


def level_names(rows: Any, columns: Sequence[str]) -> dict[int, LevelName]:
    """Finds rows with a text that equals any row's concept name, ignoring case, white space and outer punctuation.

    `columns` contain the training texts. Returns the first such text of each row, by row.
    """
    level_of: dict[str, str] = {}
    for level in level_columns(rows.dataset, None):
        for value in rows.column(level):
            names = value if isinstance(value, list) else [value]
            plain = (_plain(name) for name in names if isinstance(name, str))
            level_of |= {name: level for name in plain if name and name not in level_of}
    if not level_of:
        return {}
    matches: dict[int, LevelName] = {}
    for column in columns:
        for row, texts in enumerate(rows.column(column)):
            for text in texts if isinstance(texts, list) else [texts]:
                if isinstance(text, str) and row not in matches and (name := _plain(text)) in level_of:
                    matches[row] = LevelName(column, text, level_of[name])
    return dict(sorted(matches.items()))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(AROUND)
