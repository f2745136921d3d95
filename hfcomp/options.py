"""Options declared in one place: a dataclass field holds the name, type, limits, help and default of an option.

    rows: Annotated[int, Field(ge=1), "Rows to show."] = 1000

`Options` checks values against these declarations, both in Python and on the command line, which `hfcomp.cli.options`
builds from the same fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum, auto
from functools import cache
from numbers import Integral
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from hfcomp.schemas import conversion_error, members

T = TypeVar("T")


@dataclass(frozen=True)
class Spelling:
    """Spelling of an option on the command line, if it does not follow from type and name.

    Attributes:
        metavar: Name of its value in the help.
        positional: Whether it is a positional argument; a tuple takes several.
        repeated: Whether the option may be repeated, each time adding an entry to its tuple; entries may have commas.
        spaced: Whether a tuple may also be written as several words, for example `--models A B` as well as `A,B`.
    """

    metavar: str = ""
    positional: bool = False
    repeated: bool = False
    spaced: bool = False


@dataclass(frozen=True)
class Needs:
    """Another option that this one requires; without it, the option would have no effect, which is an error.

    Attributes:
        option: Name of the other option.
        value: Value that the other option must have; defaults to any value that counts as true.
        advice: Additional text for the error message.
    """

    option: str
    value: str | None = None
    advice: str = ""


class Mark(Enum):
    """What else is declared of an option."""

    THIS_MACHINE = auto()
    """It says where, how or how far something is made, and not what: the commands in cards are without it."""


THIS_MACHINE = Mark.THIS_MACHINE

Count = Annotated[int, Field(ge=1)]
Size = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]

Device = Annotated[str | None, THIS_MACHINE, "Device such as cpu or cuda:1. Defaults to a GPU if available."]
AllowUrls = Annotated[bool, "Download images that the dataset references by URL. Only for data you trust."]
UrlTimeout = Annotated[float, THIS_MACHINE, Spelling("S"), "Download timeout per image in seconds."]
BatchSize = Annotated[Count, "Images or texts per encoding batch."]
NoCache = Annotated[bool, "Recompute all embeddings and do not cache them."]


class Option(NamedTuple):
    """A declared field of an options class, and the class whose help group shows it."""

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
def declared_options(kind: type) -> dict[str, Option]:
    """The options of a dataclass by name, base classes first, without fields that a class sets itself."""
    hints, options = get_type_hints(kind, include_extras=True), {}
    for field in fields(kind):
        hint = hints[field.name]
        # the last note of each type wins, because a field may override the notes of an annotated type
        notes = {type(note): note for note in getattr(hint, "__metadata__", ())}
        owner = next(base for base in reversed(kind.__mro__) if field.name in vars(base).get("__annotations__", {}))
        if field.init:
            about = notes.get(str, ""), notes.get(Spelling, Spelling()), notes.get(Needs), Mark not in notes
            adapter = TypeAdapter(hint, config=ConfigDict(defer_build=True))  # not needed for showing the help
            options[field.name] = Option(field.name, hint, adapter, field.default, owner, *about)
    return options


class Options:
    """Base of a dataclass of options. It checks their types, limits and what they need when one is made.

    It also converts equivalent values: a list to a tuple, a text to a path or a number.
    """

    def __post_init__(self) -> None:
        options = declared_options(type(self))
        for option in options.values():
            value = _plain(getattr(self, option.name), option.hint)
            texts = all(isinstance(entry, str) for entry in (value if isinstance(value, list) else [value]))
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


def _plain(value: Any, hint: Any) -> Any:
    """Converts a Python value for its option: a list to a tuple, a path to a text, a NumPy integer to an int."""
    kinds = members(hint)
    if isinstance(value, list | tuple) and kinds and get_origin(kinds[0]) is tuple:
        return tuple(_plain(entry, get_args(kinds[0])[0]) for entry in value)
    if isinstance(value, PurePath) and str in kinds and Path not in kinds:
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return value


def make_options(kind: type[T], given: dict[str, Any]) -> T:
    """The options of a class, taken out of those that a command line has given.

    Raises:
        ValueError: for values that do not fit.
    """
    return kind(**{name: given.pop(name) for name in declared_options(kind) if name in given})
