"""Names that were spelled the British way before November 2026, and that files and commands may still have."""

from __future__ import annotations

from typing import Any

COLUMNS = {"neighbour_ids": "neighbor_ids", "generalised_caption": "generalized_caption"}
KINDS = {"neighbours": "neighbors"}
"""Kinds of `hfcomp build`."""

_NAMES = {
    **COLUMNS,
    "num_neighbours": "num_neighbors",
    "eval_caption_to_generalised_recall@1": "eval_caption_to_generalized_recall@1",
    "eval_generalised_to_caption_recall@1": "eval_generalized_to_caption_recall@1",
    "sandbox zero-shot: colour accuracy": "sandbox zero-shot: color accuracy",
    "sandbox novel zero-shot: colour accuracy": "sandbox novel zero-shot: color accuracy",
}
_SPELLINGS = {"neighbour": "neighbor", "generalised": "generalized", "licence": "license"}


def current_name(name: str) -> str:
    """The present spelling of a field, a column or a score."""
    return _NAMES.get(name, name)


def current_names(value: Any) -> Any:
    """A document of a recipe or a plan with the present spelling of all its names."""
    if isinstance(value, dict):
        return {current_names(key): current_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [current_names(item) for item in value]
    return current_name(value) if isinstance(value, str) else value


def current_columns(dataset: Any) -> Any:
    """A dataset or stream with the present names of its columns."""
    names = dataset.column_names or ()
    renamed = {old: new for old, new in COLUMNS.items() if old in names and new not in names}
    return dataset.rename_columns(renamed) if renamed else dataset


def current_spelling(text: str) -> str:
    """A text such as a build plan in JSON with the words of old names respelled, to compare it with another one."""
    for old, new in _SPELLINGS.items():
        text = text.replace(old, new)
    return text
