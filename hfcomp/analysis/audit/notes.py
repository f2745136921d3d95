"""What a reader has to know of the data of an audit: what is absent, and columns that nothing reads."""

from __future__ import annotations

from collections.abc import Sequence

from datasets import Dataset

from hfcomp.data.columns import COLUMNS
from hfcomp.data.known_names import proposed_names
from hfcomp.reading import nearest_name

READ = {*COLUMNS, "captions", "subset"}
"""Columns of the contract, and those of benchmarks; that a check does not need one of them is no news."""
GUESSED = ("negative_captions", "positive_captions", "image_id")
"""Columns without which an audit says less, so that a likely name for one is proposed."""


def unread_columns(rows: Dataset) -> list[str]:
    """Columns under names that are not the contract's, each with the name that may be meant."""
    unread = [name for name in rows.column_names if name not in READ]
    missing = [name for name in GUESSED if name not in rows.column_names]
    meant = {theirs: ours for ours, theirs in proposed_names(rows, missing).items()}
    notes, others = [], []
    for name in unread:
        ours = meant.get(name) or nearest_name(name.lower(), missing)
        if ours:
            notes.append(f"column {name!r} is not read; did you mean --column_names {ours}={name}?")
        else:
            others.append(repr(name))
    if others:
        hint = "" if meant or notes or "negative_captions" not in missing else _WITHOUT_NEGATIVES
        notes.append(f"not read: column{'s' * (len(others) > 1)} {', '.join(others)}{hint}")
    return notes


_WITHOUT_NEGATIVES = ". If one holds the negatives: --column_names negative_captions=NAME"


def photographs(has_column: bool, ids: Sequence[str | None], given: int) -> list[str]:
    """How rows without an `image_id` are assigned to photographs.

    Args:
        has_column: whether there is a column `image_id`.
        ids: of `photograph_ids`.
        given: how many rows have an `image_id`.
    """
    unknown = sum(one is None for one in ids)
    by_file = len(ids) - given - unknown
    notes = []
    if by_file:
        where = "the column image_id is missing" if not has_column else f"{_rows(by_file)} no image_id"
        notes.append(f"{where}: rows with the same image file are of one photograph")
    if unknown:
        notes.append(
            f"{_rows(unknown)} neither an image_id nor an image: each counts as a photograph of its own, which "
            "intervals and folds take for independent"
        )
    return notes


def absent(rows: Sequence[int], what: str, example: str = "") -> list[str]:
    """Rows that lack something, counted, with the first of them.

    Args:
        rows: their numbers.
        what: they lack.
        example: of the first one, in words.
    """
    return [f"{_rows(len(rows))} {what}; the first: row {rows[0]}{example}"] if len(rows) else []


def _rows(number: int) -> str:
    return f"{number:,} row has" if number == 1 else f"{number:,} rows have"
