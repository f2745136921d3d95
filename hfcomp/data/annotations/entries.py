"""Rows of the log, what they hold as JSON, and the state of an item that follows from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from hfcomp.data.annotations.records import Action, Edit, Item, Quality, State
from hfcomp.reading import parse_json
from hfcomp.schemas import Strict, parse

Record = TypeVar("Record", bound=Item | Edit)
_FILES = ("image", "mask")
LONGEST_REASON = 2000
"""Characters."""


@dataclass(frozen=True)
class Entry:
    """A row of the log.

    Attributes:
        number: of the row, from 1.
        time: seconds since 1970.
        person: who decided.
        item: id.
        action: what.
        content: of the action; JSON values. Of `submit` the edit's fields, of `skip` and `send back` a `reason`, of
            `accept` a `quality`, and of `undo` the number of the row that it `undoes`.
        taken: when the item was leased to the person for this decision, in seconds since 1970; None without a lease.
    """

    number: int
    time: float
    person: str
    item: str
    action: Action
    content: Mapping[str, Any]
    taken: float | None = None


@dataclass(frozen=True)
class Standing:
    """The state of an item.

    Attributes:
        state: of the item.
        annotator: who submitted the edit that is annotated or accepted.
        submission: number of the row with that edit.
        acceptance: number of the row that accepted it.
        returned_to: of an open item that was sent back, who submitted it.
        returned_time: when it was sent back, in seconds since 1970.
    """

    state: State = "open"
    annotator: str | None = None
    submission: int | None = None
    acceptance: int | None = None
    returned_to: str | None = None
    returned_time: float | None = None


def standing(rows: Iterable[tuple[int, float, str, Action, int | None]]) -> Standing:
    """The state of an item.

    Args:
        rows: of the log about the item, in order: number, time, person, action and the number that it undoes.
    """
    rows = list(rows)
    undone = {undoes for *_, undoes in rows if undoes is not None}
    found = Standing()
    for number, time, person, action, _ in rows:
        if number in undone or action == "undo":
            continue
        if action == "submit":
            found = Standing("annotated", person, number)
        elif action == "skip":
            found = Standing("skipped")
        elif action == "accept":
            found = Standing("accepted", found.annotator, found.submission, number)
        else:
            found = Standing(returned_to=found.annotator, returned_time=time)
    return found


def _model(record: type[Item] | type[Edit]) -> type[Strict]:
    """The strict model of a record. Lists of JSON count as the record's tuples."""
    declared: dict[str, Any] = {}
    for name, hint in get_type_hints(record).items():
        declared[name] = (Annotated[hint, Field(strict=False)] if get_origin(hint) is tuple else hint, ...)
    return create_model(record.__name__, __base__=Strict, **declared)


_MODELS: dict[type, type[Strict]] = {record: _model(record) for record in (Item, Edit)}


def encode(value: Mapping[str, Any] | Item | Edit, where: str) -> str:
    """JSON in one line, with sorted keys: equal values are equal texts.

    Raises:
        ValueError: for values that JSON does not have, or an item or edit that could not be read again.
    """
    content = asdict(value) if isinstance(value, Item | Edit) else value
    try:
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: cannot be saved as JSON: {error}. Use texts, numbers, lists and mappings."
        ) from error
    if isinstance(value, Item | Edit):
        decode(type(value), text, where)
    return text


def decode(record: type[Record], text: str, where: str) -> Record:
    """An item or edit of JSON.

    Args:
        record: `Item` or `Edit`.
        text: its fields in JSON.
        where: for errors.

    Raises:
        ValueError: for other fields or types, or names of files outside the project's folder.
    """
    content: Strict = parse(_MODELS[record], decode_mapping(text, where), where)
    found = record(**{name: getattr(content, name) for name in _MODELS[record].model_fields})
    for name in _FILES:
        file = getattr(found, name, None)
        if file is not None and (not file or "\\" in file or ".." in (path := PurePosixPath(file)).parts or path.root):
            raise ValueError(f"{where}: {name}: found {file!r}, expected the name of a file inside the project.")
    if isinstance(found, Item) and (not found.id or not 1 <= len(found.captions) == len(found.keywords)):
        raise ValueError(
            f"{where}: found id {found.id!r}, {len(found.captions)} captions and {len(found.keywords)} keywords, "
            "expected an id, one caption or more, and a keyword for each."
        )
    return found


def decode_mapping(text: str, where: str) -> dict[str, Any]:
    """The mapping of a JSON text.

    Raises:
        ValueError: for other content.
    """
    try:
        found = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: found {type(found).__name__}, expected a JSON object.")
    return found


def decode_quality(text: str, where: str) -> Quality:
    """The rating of an accepted edit.

    Raises:
        ValueError: for other content.
    """
    return check_quality(decode_mapping(text, where).get("quality"), where)


def check_quality(value: Any, where: str) -> Quality:
    """A rating, checked.

    Raises:
        ValueError: for one that is not known.
    """
    if value not in get_args(Quality):
        raise ValueError(f"{where}: found {value!r}, expected a quality of {', '.join(get_args(Quality))}.")
    return value


def check_reason(text: str, where: str) -> str:
    """A reason without white space around it.

    Raises:
        ValueError: for an empty one, or one of more than 2,000 characters.
    """
    reason = text.strip()
    if not 1 <= len(reason) <= LONGEST_REASON:
        raise ValueError(f"{where}: found a reason of {len(reason):,} characters, expected 1 to {LONGEST_REASON:,}.")
    return reason
