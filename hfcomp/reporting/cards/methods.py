"""The training part of a card: the method's idea and papers, from `methods.yaml`, and who chose each value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hfcomp.data.publishing import without_local_paths
from hfcomp.reading import read_yaml
from hfcomp.reporting.report import Table
from hfcomp.schemas import Strict, parse

COMMON_BASE = "CompositionalTrainer"
FILE = Path(__file__).with_name("methods.yaml")
SET, DEFAULT, UNSTATED = "set", "default", "not stated"
ON_COMMAND_LINE = f"{SET}, on the command line"
WHOSE = {"paper": "paper's", "code": "code's", "ours": "ours", SET: "user's", DEFAULT: DEFAULT}
MEANINGS = (
    "paper's: value in the paper; code's: value in its authors' code; ours: chosen by hfcomp where neither the paper "
    "nor its code gives a value; user's: set by the person who trained this model; default: hfcomp's default."
)
PLUMBING = frozenset(
    (
        *("method", "objective", "output_dir", "logging_steps", "dataloader_num_workers", "pixel_cache"),
        *("save_strategy", "save_steps", "save_total_limit"),
    )
)
"""Fields about the name, logs and files of a run, which do not affect what it learns."""
_SOURCE = re.compile(rf"^({'|'.join(WHOSE)})(?:'s)?\b[,:;]?\s*(.*)$", re.DOTALL)
_LONGEST = 120


class Paper(Strict):
    """A paper to cite."""

    title: str
    url: str
    bibtex: str


class _Entry(Strict):
    methods: list[str]
    trainers: list[str]
    idea: str
    papers: list[str]


class _File(Strict):
    methods: list[_Entry]
    papers: dict[str, Paper]


@dataclass(frozen=True)
class Method:
    """A method that hfcomp knows.

    Attributes:
        name: Name of the method, or the first of several.
        idea: Description in a sentence or two.
        papers: Papers to cite.
    """

    name: str
    idea: str
    papers: tuple[Paper, ...]


def find_method(name: str | None, trainers: Sequence[str]) -> Method | None:
    """Finds a method by name, otherwise by the first known class; `None` for a user's own objective.

    Args:
        name: Name of the method, as in recipes.
        trainers: Names of the trainer's class and of its base classes, the nearest first.
    """
    known = _methods_file()
    # The name comes first, because a method may have no trainer of its own, or share one with others.
    for entry in known.methods:
        if name in entry.methods:
            return _method(name, entry)
    for trainer in trainers:
        for entry in known.methods:
            if trainer in entry.trainers:
                return _method(entry.methods[0], entry)
    return None


def known_method(name: str) -> Method:
    method = find_method(name, [])
    if method is None:
        raise ValueError(f"{FILE.name} has no method {name!r}.")
    return method


def class_names(trainer: type) -> list[str]:
    """Names of a trainer's class and its base classes, the nearest first, up to but without the common base."""
    names = [base.__name__ for base in trainer.__mro__]
    return names[: names.index(COMMON_BASE)] if COMMON_BASE in names else names


@cache
def _methods_file() -> _File:
    return parse(_File, read_yaml(FILE), str(FILE))


def _method(name: str, entry: _Entry) -> Method:
    papers = _methods_file().papers
    return Method(name, entry.idea, tuple(papers[key] for key in entry.papers))


def values_table(
    values: Mapping[str, Any],
    *,
    sources: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
    default_sources: Mapping[str, str] | None = None,
) -> Table:
    """Returns a table with one row per value: name, value, who chose it, and a note.

    Args:
        values: Values that the recipe and the command line set.
        sources: Sources by field: its comment in the recipe, such as `paper, section 3`, or `ON_COMMAND_LINE`.
        defaults: Values of fields that were not set.
        default_sources: Sources of these defaults by field.
    """
    notes, kept = default_sources or {}, dict(defaults or {})
    # transformers ignores the number of epochs if the number of steps is set, so a card must not state both.
    if (values.get("max_steps") or 0) > 0:
        kept.pop("num_train_epochs", None)
    stated = {name: f"{DEFAULT}, {notes.get(name, '')}" for name in kept} | dict(sources)
    rows = [
        [name, *_cells(value, stated.get(name, ""))]
        for name, value in sorted({**kept, **values}.items())
        if name not in PLUMBING and not is_secret(name)
    ]
    header = ["name", "value", "whose", "note"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table("", header, rows, labels=len(header))


def whose(source: str) -> tuple[str, str]:
    """Splits the source of a value into who chose it and the rest."""
    match = _SOURCE.match(source)
    return (WHOSE[match[1]], match[2]) if match else (UNSTATED, source)


def is_secret(name: str) -> bool:
    """Whether a field may hold a token, which must not appear in a card."""
    return "token" in name


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Removes tokens, and shortens local paths to their last part, so others may read the values."""
    return without_local_paths({name: value for name, value in values.items() if not is_secret(name)})


def _cells(value: Any, source: str) -> Iterator[str]:
    yield yaml_text(value)
    yield from whose(source)


def yaml_text(value: Any) -> str:
    """Formats a value as YAML in one line."""
    text = yaml.safe_dump(without_local_paths(value), default_flow_style=True, width=10_000, allow_unicode=True)
    text = text.removesuffix("...\n").strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
