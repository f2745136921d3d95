"""What a card says of a method: its idea and the papers to cite, from `methods.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hfcomp.reading import read_yaml
from hfcomp.schemas import Strict, parse

COMMON_BASE = "CompositionalTrainer"
FILE = Path(__file__).with_name("methods.yaml")


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
        name: its own, or of several the first.
        idea: a sentence or two.
        papers: what to cite.
    """

    name: str
    idea: str
    papers: tuple[Paper, ...]


def find_method(name: str | None, trainers: Sequence[str]) -> Method | None:
    """The method of that name, else that of the first known class; `None` for an objective of the user's own.

    Args:
        name: of the method, as recipes have it.
        trainers: names of the trainer's class and of those that it derives from, the nearest first.
    """
    known = _known()
    for entry in known.methods:
        if name in entry.methods:
            return _method(name, entry)
    for trainer in trainers:
        for entry in known.methods:
            if trainer in entry.trainers:
                return _method(entry.methods[0], entry)
    return None


def known_method(name: str) -> Method:
    """The method of that name.

    Raises:
        ValueError: for a name that `methods.yaml` lacks.
    """
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
