"""Plugins: objects that installed packages add to hfcomp through entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

T = TypeVar("T")


def find_plugins(group: str, taken: Collection[str]) -> dict[str, EntryPoint]:
    """Finds the entry points of a group by name, without loading them.

    Raises:
        ValueError: If a name is in `taken`, or two packages use it.
    """
    plugins: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in (*taken, *plugins):
            raise ValueError(f"{_place(point)}: the name is taken. Expected a name other than {', '.join(taken)}.")
        plugins[point.name] = point
    return plugins


def load_plugin(point: EntryPoint, kind: type[T], name_of: Callable[[T], str] | None = None) -> T:
    """Loads the object of an entry point; `name_of` must return the name of the entry point.

    Raises:
        ValueError: If an object cannot be imported, is not a `kind`, or has another name.
    """
    place = _place(point)
    try:
        thing = point.load()
    except Exception as error:  # third-party code may raise anything, and the message must name the package
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}.") from error
    if not isinstance(thing, kind):
        raise ValueError(f"{place} is not a {kind.__module__}.{kind.__qualname__}.")
    if name_of is not None and name_of(thing) != point.name:
        raise ValueError(f"{place}: expected the name {name_of(thing)!r}, as in the {kind.__name__} itself.")
    return thing


def load_plugins(group: str, kind: type[T], taken: Collection[str], name_of: Callable[[T], str]) -> dict[str, T]:
    """Loads the objects of all entry points of a group by name; raises the errors of the two functions above."""
    return {name: load_plugin(point, kind, name_of) for name, point in find_plugins(group, taken).items()}


def _place(point: Any) -> str:
    return f"package {point.dist.name}: entry point {point.name} = {point.value} in the group {point.group}"
