"""Strict types for user configuration: an unknown key or a wrong type raises a one-line error with its place.

A file with a fixed set of keys is a `Strict` model, which `parse` reads. Recipe fields come from our config and a
trainer's dataclass; `convert` reads them one by one, so a command-line text counts as the number or switch it spells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Self, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo

from hfcomp.reading import nearest

T = TypeVar("T")
_NAME = re.compile(r"\w[\w .()+-]{0,99}")
_LONGEST = 120
# Keyed by the first word of an error type: `int_type`, `int_parsing` and `int_from_float` count as the same mistake.
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "tuple": "a list",
    "none": "nothing",
    **dict.fromkeys(("dict", "model", "named"), "a mapping"),
}
_CHOICES = ("literal_error", "enum")
_LIMITS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
}


class Strict(BaseModel):
    """A mapping in a file, with only the declared keys and values of the declared types. Instances are immutable.

    Errors state the description of a field as the expected value.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, values: Any, read: Callable[[Any], Self]) -> Self:
        """Describes a mistake in the words of this model, so the enclosing model only adds the place."""
        expected = {str(field.validation_alias or name): field.description for name, field in cls.model_fields.items()}
        try:
            return read(values)
        except ValidationError as error:
            if not error.errors()[0]["loc"]:  # not a mapping at all: the enclosing model describes what it expects
                raise
            raise ValueError(_message(error, expected)) from None


def plain_name(*reserved: str) -> AfterValidator:
    """A validator for names that can be used for a folder: not a path and, ignoring case, not one of `reserved`."""

    def check(name: str) -> str:
        if not _NAME.fullmatch(name) or name != name.strip():
            raise ValueError(
                f"{name!r} is not a plain name. It is used for a folder: use letters, digits, spaces and any of "
                "_ - + . ( ), begin with a letter or digit, and do not use '/'."
            )
        if name.casefold() in reserved:
            raise ValueError(f"{name!r} is reserved, as are {', '.join(reserved)}. Choose another name.")
        return name

    return AfterValidator(check)


def parse(kind: type[T] | Any, values: Any, where: str) -> T:
    """Converts values as read from a file to a `Strict` model or a type composed of such models.

    An error is one line: `where`, the place in the values, the value, the expected value, the nearest known key.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise ValueError(f"{where}: {_message(error)}") from error


def convert(value: Any, hint: Any, where: str) -> Any:
    """Converts the value of a field: a value of its type, or a text that spells one (command line; 1e-3 in YAML)."""
    # Only texts are read as numbers and switches: `bf16: 1` in a file is a mistake, `--bf16 1` is not.
    texts = isinstance(value, str) or (isinstance(value, list) and all(isinstance(entry, str) for entry in value))
    try:
        return TypeAdapter(hint).validate_python(value, strict=not texts)
    except ValidationError as error:
        raise conversion_error(error, value, hint, where) from error


def conversion_error(error: ValidationError, value: Any, hint: Any, where: str) -> ValueError:
    """Turns pydantic's error about the value of one field into a one-line error."""
    kinds, bounds = [_expectation(details) for details in error.errors()], _bounds(hint)
    # pydantic reports one error per type of a union, and none of them lists everything that is allowed.
    if len(members(hint)) > 1 and None not in kinds:
        return ValueError(f"{where}: found {_describe(value)}, expected {' or '.join(dict.fromkeys(kinds))}.")
    if len(bounds) > 1 and error.errors()[0]["type"] in _LIMITS:
        return ValueError(f"{where}: found {_describe(value)}, expected {' and '.join(bounds)}.")
    return ValueError(f"{where}: {_message(error)}")


def _bounds(hint: Any) -> list[str]:
    """The limits that a hint declares. pydantic's error names only the violated one."""
    infos = [note for note in get_args(hint)[1:] if isinstance(note, FieldInfo)]
    declared = [limit for info in infos for limit in info.metadata]
    words = {Ge: "at least {0.ge:g}", Gt: "more than {0.gt:g}", Le: "at most {0.le:g}", Lt: "less than {0.lt:g}"}
    return [words[type(limit)].format(limit) for limit in declared if type(limit) in words]


def members(hint: Any) -> list[Any]:
    """The types that a hint allows, except `None`."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [kind for member in get_args(hint) for kind in members(member)]
    return [] if hint in (None, NoneType) else [hint]


def _message(error: ValidationError, expected: Mapping[str, str | None] | None = None) -> str:
    """Describes the first mistake that pydantic found; `expected` has the descriptions of a model's fields by key."""
    mistakes, expected = error.errors(), expected or {}
    # Reports an unknown key before all other mistakes, because it may be a misspelling of a missing key.
    first = next((mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"), mistakes[0])
    kind, location = first["type"], list(first["loc"])
    described = expected.get(location[0]) if location else None
    if kind in ("extra_forbidden", "missing"):
        key = location.pop()
        if kind == "missing":
            return f"{_place(location)}{key} is missing. Expected {(described or 'a value').rstrip('.')}."
        if location:  # inside a named tuple, which is not a `Strict` model
            return f"{_place(location)}unknown key {key!r}. Expected {described}."
        return f"unknown key {key!r}.{nearest(str(key), expected)} Known: {', '.join(expected)}."
    if location[-1:] == ["[key]"]:
        location, described = location[:-2], None  # the message names the key of the mapping
    if kind == "value_error":
        return f"{_place(location)}{first['ctx']['error']}"
    whole = len(location) == 1 and kind not in (*_LIMITS, "finite_number")
    wanted = (described if whole else None) or _expectation(first) or first["msg"].lower()
    return f"{_place(location)}found {_describe(first['input'])}, expected {wanted}.{_hint(first)}"


def _place(location: list[int | str]) -> str:
    return "".join(f"entry {part + 1}: " if isinstance(part, int) else f"{part}: " for part in location)


def _expectation(error: Mapping[str, Any]) -> str | None:
    if error["type"] in _CHOICES:
        return f"one of {', '.join(_choices(error))}"
    if error["type"] in _LIMITS:
        return _LIMITS[error["type"]].format(**error["ctx"])
    return _EXPECTED.get(error["type"].partition("_")[0])


def _choices(error: Mapping[str, Any]) -> list[str]:
    return error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")


def _hint(error: Mapping[str, Any]) -> str:
    if error["type"] == "string_type" and isinstance(error["input"], bool):
        return " YAML reads yes, no, on and off as true and false; put such words in quotes."
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        return " Put a string that looks like a number in quotes."
    return nearest(str(error["input"]), _choices(error)) if error["type"] in _CHOICES else ""


def _describe(value: Any) -> str:
    shown = "nothing" if value is None else repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
