"""What installed packages add to hfcomp: objects that entry points name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

T = TypeVar("T")


def find_plugins(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """The entry points of a group by name, not loaded yet.

    Raises:
        ValueError: for a name that is among those `taken`, or that two packages use.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in (*taken, *found):
            raise ValueError(f"{_place(point)}: the name is taken. Expected one other than {', '.join(taken)}.")
        found[point.name] = point
    return found


def load_plugin(point: EntryPoint, kind: type[T], name_of: Callable[[T], str] | None = None) -> T:
    """The object of an entry point, whose own name (`name_of`) is that of the entry point.

    Raises:
        ValueError: for an object that cannot be imported, is not of the kind, or has another name.
    """
    place = _place(point)
    try:
        thing = point.load()
    except Exception as error:  # code of others may raise anything, and the user has to know which package it is
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}.") from error
    if not isinstance(thing, kind):
        raise ValueError(f"{place} is not a {kind.__module__}.{kind.__qualname__}.")
    if name_of is not None and name_of(thing) != point.name:
        raise ValueError(f"{place}: expected the name {name_of(thing)!r}, which the {kind.__name__} itself has.")
    return thing


def load_plugins(group: str, kind: type[T], taken: Collection[str], name_of: Callable[[T], str]) -> dict[str, T]:
    """The objects of all entry points of a group by name; raises as the two functions above."""
    return {name: load_plugin(point, kind, name_of) for name, point in find_plugins(group, taken).items()}


def _place(point: Any) -> str:
    return f"package {point.dist.name}: the entry point {point.name} = {point.value} of the group {point.group}"
