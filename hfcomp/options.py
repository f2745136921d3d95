"""Options that are declared once: a field of a dataclass has name, type, limits, help and default of an option.

    rows: Annotated[int, Field(ge=1), "Rows to show."] = 1000

`Options` checks the values by it, in Python and on a command line, which `hfcomp.cli.options` makes of these fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from inspect import signature
from numbers import Integral
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from hfcomp.schemas import conversion_error, members

T = TypeVar("T")


@dataclass(frozen=True)
class Spelling:
    """How an option is written on a command line, if its type and name do not say it.

    Attributes:
        metavar: Name of its value in the help.
        positional: Whether it is a word without a name; several if it is a tuple.
        repeated: Whether a tuple has an entry for each time that the option is given, which may have commas.
        spaced: Whether a tuple may also be written in several words, as in `--models A B` beside `A,B`.
    """

    metavar: str = ""
    positional: bool = False
    repeated: bool = False
    spaced: bool = False


@dataclass(frozen=True)
class Needs:
    """Another option without which this one would change nothing, which is an error.

    Attributes:
        option: Name of the other one.
        value: The value that it must have; by default any that counts as true.
        advice: What else the error says.
    """

    option: str
    value: str | None = None
    advice: str = ""


class ThisMachine:
    """Marks an option that says where, how or how far something is made: the commands in cards are without it."""


THIS_MACHINE = ThisMachine()

Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]

Device = Annotated[str | None, THIS_MACHINE, "Such as cpu or cuda:1; by default a GPU if there is one."]
AllowUrls = Annotated[bool, "Fetch images that the data names by URL; only for data you trust."]
UrlTimeout = Annotated[float, THIS_MACHINE, Spelling("S"), "Seconds for one image."]
BatchSize = Annotated[Count, "Images or texts that a model encodes at a time."]
NoCache = Annotated[bool, "Encode everything again and keep nothing."]


class Option(NamedTuple):
    """A field of a class of options, as it is declared, and the class that shows it in its group of the help."""

    name: str
    hint: Any
    adapter: TypeAdapter[Any]
    default: Any
    owner: type
    help: str
    spelling: Spelling
    needs: Needs | None
    is_recorded: bool


@cache
def declared(kind: type) -> dict[str, Option]:
    """The options of a dataclass by name, those of its bases first; not those that a class sets by itself."""
    hints, found = get_type_hints(kind, include_extras=True), {}
    for field in fields(kind):
        hint = hints[field.name]
        # by type, the last of each: a field may say more than an annotated type that it takes
        notes = {type(note): note for note in getattr(hint, "__metadata__", ())}
        owner = next(base for base in reversed(kind.__mro__) if field.name in vars(base).get("__annotations__", {}))
        if field.init:
            about = notes.get(str, ""), notes.get(Spelling, Spelling()), notes.get(Needs), ThisMachine not in notes
            adapter = TypeAdapter(hint, config=ConfigDict(defer_build=True))  # a help checks no value
            found[field.name] = Option(field.name, hint, adapter, field.default, owner, *about)
    return found


class check(staticmethod):
    """A function in a class of options that raises ValueError for some of them, which its parameters name."""


class Options:
    """Base of a dataclass of options. It checks types, limits, needs and each `check` when an instance is made.

    It also converts values that mean the same: a list to a tuple, a text to a path or number.
    """

    def __post_init__(self) -> None:
        options = declared(type(self))
        for option in options.values():
            value = _plain(getattr(self, option.name), option.hint)
            texts = all(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))
            try:
                value = option.adapter.validate_python(value, strict=not texts)
            except ValidationError as error:
                raise conversion_error(error, value, option.hint, option.name) from error
            object.__setattr__(self, option.name, value)  # some classes are frozen
        for name, needs in ((option.name, option.needs) for option in options.values() if option.needs):
            other = getattr(self, needs.option)
            is_met = bool(other) if needs.value is None else other == needs.value
            if getattr(self, name) != options[name].default and not is_met:
                wanted = f" {needs.value}" if needs.value else ""
                raise ValueError(f"--{name} needs --{needs.option}{wanted}{needs.advice}.")
        for one in (one for base in reversed(type(self).__mro__) for one in vars(base).values()):
            if isinstance(one, check):
                one(*(getattr(self, name) for name in signature(one).parameters))


def _plain(value: Any, hint: Any) -> Any:
    """A value of Python as the type of its option: a list as a tuple, a path as a text, NumPy's number as an int."""
    kinds = members(hint)
    if isinstance(value, list | tuple) and kinds and get_origin(kinds[0]) is tuple:
        return tuple(_plain(one, get_args(kinds[0])[0]) for one in value)
    if isinstance(value, PurePath) and str in kinds and Path not in kinds:
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return value


def make_options(kind: type[T], given: dict[str, Any]) -> T:
    """The options of a class, taken out of those that a command line has given."""
    return kind(**{name: given.pop(name) for name in declared(kind) if name in given})
