"""Strict types for user configuration: an unknown key or a wrong type is a one-line error with its place.

A file with a fixed set of keys is a `Strict` model; `parse` reads one. The fields of a recipe, which are those of our
config and of a trainer's dataclass, are read one by one by `convert`, so that a text of the command line counts as the
number or switch that it spells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError

from hfcomp.reading import nearest

T = TypeVar("T")
_NAME = re.compile(r"\w[\w .()+-]{0,99}")
_LONGEST = 120
# By the first word of pydantic's type of an error.
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "none": "nothing",
    **dict.fromkeys(("dict", "model", "named"), "a mapping"),
}
_CHOICES = ("literal_error", "enum")
_LIMITS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
}


class Strict(BaseModel):
    """A mapping of a file. Its keys are those declared here, its values of the declared types, and neither changes.

    The description of a field is what errors state as expected.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def plain_name(*reserved: str) -> AfterValidator:
    """A name that can be a folder's: no path, and none of those that mean something else.

    Args:
        reserved: names that are refused, in any case.
    """

    def check(name: str) -> str:
        if not _NAME.fullmatch(name) or name != name.strip():
            raise ValueError(
                f"{name!r} is not a plain name. It becomes a folder's: use letters, digits, spaces and any of _ - + . "
                "( ), beginning with a letter or digit, and no '/'."
            )
        if name.casefold() in reserved:
            raise ValueError(f"{name!r} is reserved, as are {', '.join(reserved)}. Choose another name.")
        return name

    return AfterValidator(check)


def parse(kind: type[T] | Any, values: Any, where: str) -> T:
    """Values as they were read, as the given type.

    Args:
        kind: a `Strict` model, or a type of such.
        values: of a file.
        where: what errors call it.

    Raises:
        ValueError: in one line: the place in the values, what was found, what is expected, and the nearest known key.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        raise ValueError(one_line(error, kind, where)) from error


def convert(value: Any, hint: Any, where: str) -> Any:
    """The value of one field: of its type, or the text that spells one, as on a command line and as YAML reads 1e-3.

    Args:
        value: that was found.
        hint: of the field.
        where: what errors call it.

    Raises:
        ValueError: as `parse`.
    """
    texts = isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
    try:
        return TypeAdapter(hint).validate_python(value, strict=not texts)
    except ValidationError as error:
        kinds = [_expectation(one, hint) for one in error.errors()]
        if len(members(hint)) > 1 and None not in kinds:
            expected = " or ".join(dict.fromkeys(kinds))
            raise ValueError(f"{where}: found {_describe(value)}, expected {expected}.") from error
        raise ValueError(one_line(error, hint, where)) from error


def members(hint: Any) -> list[Any]:
    """The types that a hint allows, but for `None`."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [kind for member in get_args(hint) for kind in members(member)]
    return [] if hint in (None, NoneType) else [hint]


def one_line(error: ValidationError, kind: Any, where: str) -> str:
    """The first mistake that pydantic found, an unknown key before all others: it may be the missing one, misspelt."""
    found = error.errors()
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    location = first["loc"]
    last, above = (location[-1], _place(where, location[:-1])) if location else (None, where)
    if first["type"] == "extra_forbidden":
        known = list(_keys(_at(kind, location[:-1])))
        return f"{above}: unknown key {last!r}.{nearest(str(last), known)} Known: {', '.join(known)}."
    if first["type"] == "missing":
        return f"{above}: {last} is missing. Expected {(_description(kind, location) or 'a value').rstrip('.')}."
    is_key = last == "[key]"  # of a mapping; the message names it
    location = location[:-2] if is_key else location
    if first["type"] == "value_error":
        return f"{_place(where, location)}: {first['ctx']['error']}"
    expected = None if is_key or first["type"] in _LIMITS else _description(kind, location)
    expected = expected or _expectation(first, kind) or first["msg"].lower()
    return f"{_place(where, location)}: found {_describe(first['input'])}, expected {expected}.{_hint(first)}"


def _hint(error: Mapping[str, Any]) -> str:
    """A further hint after what is expected, with a leading space."""
    if error["type"] == "string_type" and isinstance(error["input"], bool):
        return " YAML reads yes, no, on and off as true and false; put such a word in quotes."
    if error["type"] == "string_type" and isinstance(error["input"], int | float):
        return " Put a text that looks like a number in quotes."
    return nearest(str(error["input"]), _choices(error)) if error["type"] in _CHOICES else ""


def _choices(error: Mapping[str, Any]) -> list[str]:
    return error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")


def _expectation(error: Mapping[str, Any], kind: Any) -> str | None:
    if error["type"] in _CHOICES:
        return f"one of {', '.join(_choices(error))}"
    if error["type"] in _LIMITS:
        return _LIMITS[error["type"]].format(**error["ctx"])
    return _EXPECTED.get(error["type"].partition("_")[0])


def _place(where: str, location: tuple[Any, ...] | list[Any]) -> str:
    parts = [f"entry {part + 1}" if isinstance(part, int) else str(part) for part in location]
    return ": ".join([where, *parts])


def _describe(value: Any) -> str:
    shown = "nothing" if value is None else repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."


def _keys(kind: Any) -> Iterator[str]:
    """The keys of a mapping with a fixed set of them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from (str(field.validation_alias or name) for name, field in kind.model_fields.items())
    else:
        yield from getattr(kind, "_fields", ())


def _at(kind: Any, location: list[Any] | tuple[Any, ...]) -> Any:
    """The type of the values at a place of those of another type."""
    for part in location:
        kind = members(kind)[0]
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            fields = {str(field.validation_alias or name): field for name, field in kind.model_fields.items()}
            kind = fields[part].annotation if part in fields else Any
        else:
            kind = get_type_hints(kind)[part] if hasattr(kind, "_fields") else (get_args(kind) or (Any,))[-1]
    return members(kind)[0]


def _description(kind: Any, location: tuple[Any, ...]) -> str | None:
    """What the model of a file expects at a place."""
    model = _at(kind, location[:-1])
    if not location or not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    for name, field in model.model_fields.items():
        if location[-1] == (field.validation_alias or name):
            return field.description
    return None
