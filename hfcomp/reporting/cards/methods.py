"""The training in a card: the method's idea and papers, from `methods.yaml`, and whose choice each value is."""

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
    "paper's: as the paper has it; code's: as its authors' code has it; ours: our choice, where neither says; "
    "user's: set by whoever trained this model; default: left as hfcomp has it."
)
PLUMBING = frozenset(
    (
        *("method", "objective", "output_dir", "logging_steps", "dataloader_num_workers", "pixel_cache"),
        *("save_strategy", "save_steps", "save_total_limit"),
    )
)
"""Fields that say what a run is called, logs and keeps: nothing that it learns from."""
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
        idea: A sentence or two.
        papers: Papers to cite.
    """

    name: str
    idea: str
    papers: tuple[Paper, ...]


def find_method(name: str | None, trainers: Sequence[str]) -> Method | None:
    """The method of that name, else that of the first known class; `None` for an objective of the user's own.

    Args:
        name: Name of the method, as in recipes.
        trainers: Names of the trainer's class and of those that it derives from, the nearest first.
    """
    known = _known()
    # The name first: a method may have no trainer of its own, or share one with others.
    for entry in known.methods:
        if name in entry.methods:
            return _method(name, entry)
    for trainer in trainers:
        for entry in known.methods:
            if trainer in entry.trainers:
                return _method(entry.methods[0], entry)
    return None


def known_method(name: str) -> Method:
    found = find_method(name, [])
    if found is None:
        raise ValueError(f"{FILE.name} has no method {name!r}.")
    return found


def class_names(trainer: type) -> list[str]:
    """The names of a trainer's class and of those that it derives from, the nearest first, below the common base."""
    names = [one.__name__ for one in trainer.__mro__]
    return names[: names.index(COMMON_BASE)] if COMMON_BASE in names else names


@cache
def _known() -> _File:
    return parse(_File, read_yaml(FILE), str(FILE))


def _method(name: str, entry: _Entry) -> Method:
    papers = _known().papers
    return Method(name, entry.idea, tuple(papers[key] for key in entry.papers))


def values_table(
    values: Mapping[str, Any],
    *,
    sources: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
    default_sources: Mapping[str, str] | None = None,
) -> Table:
    """A row for each value: name, value, whose choice it is, and a note.

    Args:
        values: Values that the recipe and the command line set.
        sources: By field, its comment in the recipe, such as `paper, section 3`, or `ON_COMMAND_LINE`.
        defaults: Fields that nobody set.
        default_sources: By such a field, the source of its default.
    """
    notes, kept = default_sources or {}, dict(defaults or {})
    # transformers ignores the number of epochs if it has one of steps, so a card must not state both.
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
    """Whose choice a value is, and the rest of its source."""
    found = _SOURCE.match(source)
    return (WHOSE[found[1]], found[2]) if found else (UNSTATED, source)


def is_secret(name: str) -> bool:
    """Whether a field may hold a token, which no card has."""
    return "token" in name


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that others may read: without tokens, and with only the last part of local paths."""
    return without_local_paths({name: value for name, value in values.items() if not is_secret(name)})


def _cells(value: Any, source: str) -> Iterator[str]:
    yield spelled(value)
    yield from whose(source)


def spelled(value: Any) -> str:
    """A value as YAML has it, in one line."""
    text = yaml.safe_dump(without_local_paths(value), default_flow_style=True, width=10_000, allow_unicode=True)
    text = text.removesuffix("...\n").strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
