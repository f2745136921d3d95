"""Options declared in one place: a dataclass field holds the name, type, limits, help and default of an option.

    rows: Annotated[int, Field(ge=1), "Rows to show."] = 1000

`Options` checks values against these declarations, both in Python and on the command line, which `command_parser`
builds from the same fields. Names of models, which Python and command lines take alike, are read here too.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from inspect import signature
from itertools import groupby
from numbers import Integral
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from hfcomp.reading import check_place, nearest, split_revision
from hfcomp.schemas import conversion_error, convert, members

T = TypeVar("T")
OUTPUTS = ("--output", "--output_dir")
"""Both names of the place where a command writes, whichever its help shows first."""


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


class ThisMachine:
    """Marks an option that says where, how or how far something is made: the commands in cards are without it."""


THIS_MACHINE = ThisMachine()

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
            about = notes.get(str, ""), notes.get(Spelling, Spelling()), notes.get(Needs), ThisMachine not in notes
            adapter = TypeAdapter(hint, config=ConfigDict(defer_build=True))  # not needed for showing the help
            options[field.name] = Option(field.name, hint, adapter, field.default, owner, *about)
    return options


class check(staticmethod):
    """A function in a class of options that raises ValueError for some of them, which its parameters name."""


class Options:
    """Base of a dataclass of options. It checks types, limits, needs and each `check` when an instance is made.

    It also converts equivalent values: a list to a tuple, a string to a path or a number.
    """

    def __post_init__(self) -> None:
        options = declared_options(type(self))
        for option in options.values():
            value = _unwrap_value(getattr(self, option.name), option.hint)
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
        for member in (member for base in reversed(type(self).__mro__) for member in vars(base).values()):
            if isinstance(member, check):
                member(*(getattr(self, name) for name in signature(member).parameters))


def _unwrap_value(value: Any, hint: Any) -> Any:
    """Converts a Python value for its option: a list to a tuple, a path to a string, a NumPy integer to an int."""
    kinds = members(hint)
    if isinstance(value, list | tuple) and kinds and get_origin(kinds[0]) is tuple:
        return tuple(_unwrap_value(entry, get_args(kinds[0])[0]) for entry in value)
    if isinstance(value, PurePath) and str in kinds and Path not in kinds:
        return str(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return value


def make_options(kind: type[T], given: dict[str, Any]) -> T:
    """The options of a class, taken out of those that a command line has given."""
    return kind(**{name: given.pop(name) for name in declared_options(kind) if name in given})


class Parser(argparse.ArgumentParser):
    """An argparse parser that names an unknown option and the nearest known one."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
        """Parses like argparse, but reports unknown options here: a parent parser would not know the nearest one."""
        namespace, unknown = super().parse_known_args(*args, **kwargs)
        # Other words may be positional arguments, which `parse_intermixed_args` reads in a second pass.
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
    """Builds the parser of `hfcomp NAME`, or of a script without a name, from classes of options.

    Options not given are absent from its result. Those in `optional` have no default but may be omitted, because the
    caller then does not use their class. `make` may be `add_parser` of argparse's subparsers.
    """
    settings |= {"description": description, "allow_abbrev": False, "argument_default": argparse.SUPPRESS}
    parser = make(prog=f"hfcomp {name}" if name else None, **settings)
    for kind in kinds:
        add_options(parser, kind, optional=optional)
    if kinds:  # the usage is printed above an error, and all options would hide it
        options = [
            option for kind in kinds for option in declared_options(kind).values() if option.name not in optional
        ]
        options.sort(key=lambda option: not option.spelling.positional)
        parser.usage = " ".join(
            [parser.prog, *(word for option in options for word in _required_words(option)), "[OPTIONS]"]
        )
    return parser


def add_options(parser: argparse.ArgumentParser, kind: type, *, optional: Collection[str] = ()) -> None:
    """Adds the options of a class, in one group per declaring class, which its docstring names."""
    order = [*reversed(kind.__mro__)]
    options = sorted(declared_options(kind).values(), key=lambda option: order.index(option.owner))
    for owner, own in groupby(options, key=lambda option: option.owner):
        group = parser.add_argument_group((inspect.getdoc(owner) or "").partition("\n")[0].rstrip("."))
        for option in own:
            words, settings = _argument(option, option.name in optional)
            (parser if option.spelling.positional else group).add_argument(*words, **settings)


def names_of(text: str) -> list[str]:
    """Splits a string such as `a,b` into names."""
    return [name for name in map(str.strip, text.split(",")) if name]


def _required_words(option: Option) -> list[str]:
    """Returns the usage's words for an option: those of a positional argument or of a required option."""
    shown = option.spelling.metavar or option.name.upper()
    if not option.spelling.positional:
        return [f"--{option.name} {shown}"] if option.default is MISSING else []
    shown += " ..." if _is_tuple(option) else ""
    return [shown if option.default is MISSING else f"[{shown}]"]


def _argument(option: Option, is_optional: bool) -> tuple[list[str], dict[str, Any]]:
    """Returns an option's names and settings for argparse."""
    spelling, default, kind, must = option.spelling, option.default, members(option.hint)[0], option.default is MISSING
    text = option.help.rstrip(".")
    if default not in (MISSING, None, "", ()) and default is not False:
        text += f" (default: {_format_default(default)})"
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
    """Converts the given words to the declared type, checks the limits, and stores the value.

    argparse's own `type` and `choices` are not used: their errors do not name the nearest choice.
    """

    def __init__(self, option: Option, **settings: Any) -> None:
        super().__init__(**settings)
        self.option = option

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, name: str | None = None) -> None:
        if not name and not values:  # an omitted optional argument
            return
        spelling, kind = self.option.spelling, members(self.option.hint)[0]
        if spelling.repeated:  # entries such as NAME=DIR, which the command parses
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
        """Converts step by step, so an error shows the number outside a limit, or only the wrong word of a list."""
        if get_origin(kind) is tuple:
            value: Any = tuple(convert(word, members(get_args(kind)[0])[0], name) for word in values)
        else:
            value = convert(values, kind, name)
        return convert(value, self.option.hint, name)


def _format_default(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_format_default, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def named_models(given: Sequence[Any] | Mapping[str, Any], *, taken: Collection[str] = ()) -> dict[str, Any]:
    """Names models given as Hub ids, folders, `name=PLACE` or objects; a mapping has names already.

    Without a name, a place is called by its last part, preceded by as many parts as make it unique. An object is
    called by the place it was loaded from, otherwise by its class. No model may have one of the `taken` names.
    """
    if not given:
        raise ValueError("name at least one model: a Hub id such as openai/clip-vit-base-patch32, or a folder.")
    pairs = list(given.items()) if isinstance(given, Mapping) else [split_name(model) for model in given]
    places = [place_of(model) for _, model in pairs]
    models: dict[str, Any] = {}
    for (own_name, model), place in zip(pairs, places, strict=True):
        name = own_name or _short(place, places)
        if name in models or name in taken:
            hint = f"second={place}" if isinstance(model, str) else f'{{"second": {place}}}'
            raise ValueError(f"two models are called {name!r}. Name them, as in {hint}.")
        models[name] = model
    return models


def check_models(words: Iterable[str]) -> None:
    """Raises ValueError if a path among Hub ids, folders and NAME=PLACE does not exist."""
    for word in words:
        check_place(split_name(word)[1])


def place_of(model: Any) -> str:
    """Returns a model's Hub id or folder: for a module where it was loaded from, for another object its class."""
    if isinstance(model, str | Path):
        return split_revision(str(getattr(model, "source", model)))[0]
    model = model[0] if isinstance(model, tuple) else model
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


def split_name(given: Any) -> tuple[str, Any]:
    """Splits NAME=PLACE into the name, empty if none is given, and the model. Existing paths may contain `=`."""
    if not isinstance(given, str) or "=" not in given or os.path.exists(given):
        return "", given
    ends = [at for at, letter in enumerate(given) if letter == "="]
    # Names and paths may both contain `=`. The first one followed by an existing path separates them, else the last.
    end = next((at for at in ends if os.path.exists(given[at + 1 :])), ends[-1])
    return given[:end], given[end + 1 :]


def _short(place: str, places: Sequence[str]) -> str:
    """The last part of a path or id, preceded by as many parts as make it unique."""
    # `runs/a` and `./runs/a/` are the same folder; Hub ids stay as they are.
    whole = [os.path.abspath(path) if os.path.exists(path) else path for path in (place, *places)]
    parts = [part for part in whole[0].split("/") if part]
    for count in range(1, len(parts) + 1):
        tail = "/".join(parts[-count:])
        if sum(f"/{other}".endswith(f"/{tail}") for other in whole[1:]) == 1:
            return tail
    return parts[-1] if parts else place
