"""Options that several commands share."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from hfcomp.reporting.pages.items import PageOptions

Group = argparse.ArgumentParser | argparse._ArgumentGroup
_ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


OUTPUTS = ("--output", "--output_dir")
"""Both names of the place where a command writes, whichever its help shows."""


def command_parser(name: str, description: str, *, sparse: bool = False, **settings: Any) -> argparse.ArgumentParser:
    """The parser of `hfcomp NAME`.

    Args:
        name: of the command.
        description: in its help.
        sparse: whether what is not given is absent from the parsed options, and left to the fields of a dataclass.
        settings: further ones of argparse.
    """
    settings |= {"argument_default": argparse.SUPPRESS} if sparse else {}
    return argparse.ArgumentParser(prog=f"hfcomp {name}", description=description, allow_abbrev=False, **settings)


def add_output(group: Group, dest: str = "output_dir", *, metavar: str = "DIR", **settings: Any) -> None:
    """Adds the place where a command writes, by both of its names; the help shows that of `dest` first."""
    names = sorted(OUTPUTS, key=f"--{dest}".__ne__)
    group.add_argument(*names, dest=dest, type=Path, metavar=metavar, **settings)


def add_device(group: Group) -> None:
    """Adds `--device`."""
    group.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")


def add_url_options(group: Group) -> None:
    """Adds `--allow_urls` and `--url_timeout`."""
    from hfcomp.data.urls import DEFAULT_TIMEOUT

    group.add_argument(
        "--allow_urls", action="store_true", help="fetch images that the data names by URL; only for data you trust"
    )
    group.add_argument(
        "--url_timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S", help=f"for one image ({DEFAULT_TIMEOUT:g})"
    )


def add_tie(group: Group, default: str | None, shown: str) -> None:
    """Adds `--tie`."""
    from hfcomp.statistics.summary import TIE_RULES

    group.add_argument("--tie", choices=list(TIE_RULES), default=default, help=f"what a tie counts (default: {shown})")


PAGE = ("page_items", "no_thumbnails", "no_page")


def add_page(group: Group) -> None:
    """Adds `--page_items`, `--no_thumbnails` and `--no_page`; `page_options` reads them."""
    from hfcomp.reporting.pages.items import DEFAULT_PAGE

    number = DEFAULT_PAGE.items
    shown = f"items to look at in report.html (default: {number}); 0 for none"
    group.add_argument("--page_items", type=int, default=number, metavar="N", help=shown)
    group.add_argument("--no_thumbnails", action="store_true", help="no pictures of these items")
    group.add_argument("--no_page", action="store_true", help="no report.html")


def page_options(items: int, without_thumbnails: bool, without_page: bool) -> PageOptions | None:
    """What the options of `add_page`, named in `PAGE`, ask for; None for no page."""
    from hfcomp.reporting.pages.items import PageOptions

    found = PageOptions(items=items, thumbnails=not without_thumbnails)  # checked even if there is no page
    return None if without_page else found


def names_of(text: str) -> list[str]:
    """The names in a text such as `a,b`."""
    return [name for name in map(str.strip, text.split(",")) if name]


def add_fields(
    found: argparse.ArgumentParser, kind: type, *, optional: Collection[str] = (), listed: Collection[str] = ()
) -> None:
    """Adds the fields of a dataclass: a group for each class that declares some, with what its docstring says of them.

    Fields that are not given are absent from the parsed options where the parser has `argument_default=SUPPRESS`.

    Args:
        found: the parser.
        kind: the dataclass.
        optional: fields without a default that need not be given, as the caller does without the dataclass then.
        listed: tuples whose entries may be words of their own, as in `--models A B`, beside `A,B`, as for all tuples.
    """
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind) if field.init}
    left = set(known)  # one that two classes declare is shown with the first
    for owner in filter(inspect.get_annotations, reversed(kind.__mro__)):
        text = inspect.getdoc(owner) or ""
        about = dict(_ATTRIBUTE.findall(text))
        group = found.add_argument_group(text.partition("\n")[0].rstrip("."))
        for name in [name for name in inspect.get_annotations(owner) if name in left]:
            left.remove(name)
            words, default = " ".join(about.get(name, "").split()).rstrip(".").replace("%", "%%"), known[name].default
            if default not in (MISSING, None, "", ()) and default is not False:
                words += f" (default: {_shown(default)})"
            settings = {
                "help": words,
                "required": default is MISSING and name not in optional,
                "metavar": name.rpartition("_")[2].upper(),
            }
            reading = _reading(hints[name])
            if name in listed:
                words = "NAME" if get_args(hints[name])[0] is str else "N"
                reading |= {"nargs": "+", "action": _Joined, "metavar": words}
            names = sorted(OUTPUTS, key=f"--{name}".__ne__) if f"--{name}" in OUTPUTS else [f"--{name}"]
            group.add_argument(*names, dest=name, **settings | reading)


class _Joined(argparse.Action):
    """One tuple of several words, each of which is a tuple already."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, tuple(one for part in values for one in part))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _tuple_reader(entry: type) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        return tuple(map(entry, names_of(text)))

    read.__name__ = entry.__name__  # in argparse's errors
    return read


def _reading(hint: Any) -> dict[str, Any]:
    from hfcomp.schemas import members

    (kind,) = members(hint)
    if kind is bool:
        return {"action": "store_const", "const": True, "metavar": None}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind), "metavar": None}
    if get_origin(kind) is tuple:
        return {"type": _tuple_reader(get_args(kind)[0]), "metavar": "A,B"}
    metavar = {Path: "DIR", int: "N", float: "X"}.get(kind)
    return {"type": kind} | ({"metavar": metavar} if metavar else {})
