"""Command lines made of classes of options, see `hfcomp.options`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from hfcomp.options import Option, declared_options
from hfcomp.reading import nearest
from hfcomp.schemas import convert, members

OUTPUTS = ("--output", "--output_dir")
"""Both names of the place where a command writes, whichever its help shows first."""


class Parser(argparse.ArgumentParser):
    """Says which option is unknown, with the nearest one."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
        """As in argparse, but leaves no unknown option to a parser around this one, which would know no near one."""
        namespace, unknown = super().parse_known_args(*args, **kwargs)
        # Other words may be positional ones, which `parse_intermixed_args` reads in a second round.
        if name := next((word.partition("=")[0] for word in unknown if word.startswith("-")), None):
            hint = nearest(name, self._option_string_actions) or f" `{self.prog} --help` lists the options."
            self.error(f"{name!r} is not an option.{hint}")
        return namespace, unknown


def command_parser(
    name: str,
    description: str,
    *kinds: type,
    optional: Collection[str] = (),
    make: Callable[..., argparse.ArgumentParser] = Parser,
    **settings: Any,
) -> argparse.ArgumentParser:
    """The parser of `hfcomp NAME`, with the options of some classes. What is not given is absent from what it parses.

    Args:
        name: of the command; empty for a script.
        description: in its help.
        kinds: the classes, with different options.
        optional: options without a default that need not be given, as the caller does without their class then.
        make: makes the parser, as `add_parser` of argparse's sub-parsers does.
        settings: further ones of argparse.
    """
    settings |= {"description": description, "allow_abbrev": False, "argument_default": argparse.SUPPRESS}
    parser = make(prog=f"hfcomp {name}" if name else None, **settings)
    for kind in kinds:
        add_options(parser, kind, optional=optional)
    if kinds:  # all options would hide the error below them
        options = [
            option for kind in kinds for option in declared_options(kind).values() if option.name not in optional
        ]
        options.sort(key=lambda option: not option.spelling.positional)
        parser.usage = " ".join(
            [parser.prog, *(word for one in options for word in _required_words(one)), "[OPTIONS]"]
        )
    return parser


def add_options(parser: argparse.ArgumentParser, kind: type, *, optional: Collection[str] = ()) -> None:
    """Adds the options of a class: a group for each class that declares some, with the title of its docstring."""
    order = [*reversed(kind.__mro__)]
    options = sorted(declared_options(kind).values(), key=lambda option: order.index(option.owner))
    for owner, own in groupby(options, key=lambda option: option.owner):
        group = parser.add_argument_group((inspect.getdoc(owner) or "").partition("\n")[0].rstrip("."))
        for option in own:
            words, settings = _argument(option, option.name in optional)
            (parser if option.spelling.positional else group).add_argument(*words, **settings)


def names_of(text: str) -> list[str]:
    """The names in a text such as `a,b`."""
    return [name for name in map(str.strip, text.split(",")) if name]


def _required_words(option: Option) -> list[str]:
    """What a usage shows of an option: a word without a name, or an option that has to be given."""
    shown = option.spelling.metavar or option.name.upper()
    if not option.spelling.positional:
        return [f"--{option.name} {shown}"] if option.default is MISSING else []
    shown += " ..." if _is_tuple(option) else ""
    return [shown if option.default is MISSING else f"[{shown}]"]


def _argument(option: Option, is_optional: bool) -> tuple[list[str], dict[str, Any]]:
    """The names and settings of an option, as argparse wants them."""
    spelling, default, kind, must = option.spelling, option.default, members(option.hint)[0], option.default is MISSING
    text = option.help.rstrip(".")
    if default not in (MISSING, None, "", ()) and default is not False:
        text += f" (default: {_shown(default)})"
    settings = {"action": partial(_Store, option), "help": text.strip().replace("%", "%%")}
    settings["metavar"] = spelling.metavar or _metavar(option, kind)
    if spelling.positional:
        nargs = ("+" if must else "*") if _is_tuple(option) else (None if must else "?")
        return [option.name], settings | {"nargs": nargs}
    nargs = 0 if kind is bool else "+" if spelling.spaced else None
    words = sorted(OUTPUTS, key=f"--{option.name}".__ne__) if f"--{option.name}" in OUTPUTS else [f"--{option.name}"]
    return words, settings | {"dest": option.name, "nargs": nargs, "required": must and not is_optional}


def _metavar(option: Option, kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"{{{','.join(get_args(kind))}}}"
    if get_origin(kind) is tuple and option.spelling.spaced:
        return "NAME" if members(get_args(kind)[0])[0] is str else "N"
    if get_origin(kind) is tuple:
        return "A,B"
    return {Path: "DIR", int: "N", float: "X"}.get(kind, option.name.rpartition("_")[2].upper())


def _is_tuple(option: Option) -> bool:
    return get_origin(members(option.hint)[0]) is tuple


class _Store(argparse.Action):
    """Stores the value that words spell, of the declared type and within its limits.

    Not by argparse's `type` and `choices`: it would state a mistake in its own words, without the nearest choice.
    """

    def __init__(self, option: Option, **settings: Any) -> None:
        super().__init__(**settings)
        self.option = option

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, name: str | None = None) -> None:
        if not name and not values:  # a word that may be missing
            return
        spelling, kind = self.option.spelling, members(self.option.hint)[0]
        if spelling.repeated:  # of entries such as NAME=DIR, which the command reads
            value = (*getattr(namespace, self.dest, ()), values)
        elif kind is bool:
            value = True
        else:
            if get_origin(kind) is tuple and not spelling.positional:
                values = names_of(",".join([values] if isinstance(values, str) else values))
            try:
                value = self.option.adapter.validate_python(values)
            except ValidationError:
                value = self._convert(values, kind, name or self.metavar)
        setattr(namespace, self.dest, value)

    def _convert(self, values: Any, kind: Any, name: str) -> Any:
        """Step by step, as an error of a limit shows the number, and one of a list the wrong word alone."""
        if get_origin(kind) is tuple:
            value: Any = tuple(convert(word, members(get_args(kind)[0])[0], name) for word in values)
        else:
            value = convert(values, kind, name)
        return convert(value, self.option.hint, name)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
