"""What is annotated, what people decide (Rösch et al. 2024, sections 4 and A.3), and the state that follows."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from hfcomp.reading import parse_json
from hfcomp.schemas import Strict, parse

Quality = Literal["very good", "okay"]
QUALITIES: tuple[Quality, ...] = get_args(Quality)
State = Literal["open", "annotated", "accepted", "skipped"]
"""Of an item: to be annotated, to be reviewed, finished, or left out with a reason."""
STATES: tuple[State, ...] = get_args(State)
Action = Literal["submit", "skip", "accept", "send back", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
AUTOMATIC = "automatic"
"""Who submits the edits of the automatic mode; no person may have this name."""


@dataclass(frozen=True)
class Item:
    """A candidate: an image with captions that hold a keyword of a concept.

    Attributes:
        id: of the item: the image's id and the concept, as `139/color`.
        image: file of the original in the project's `images`, by its content, as `ab/ab12....jpg`.
        concept: such as object, color or size.
        captions: of the image, those with a keyword of the concept.
        keywords: of each caption the keyword, in the same order.
        facts: about the image: `image_id`, `license`, `source` and the like; JSON values.
    """

    id: str
    image: str
    concept: str
    captions: tuple[str, ...]
    keywords: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edit:
    """What an annotator made of an item.

    Attributes:
        image: file of the edited image in the project's `images`.
        mask: file of the mask, white for pixels that were inpainted again.
        caption: true of the edited image.
        original: the caption of the item that it is based on.
        mask_prompt: what was segmented; empty for a mask drawn by hand.
        threshold: of the segmentation, 0 to 1.
        enlarge: pixels by which the mask was enlarged to each side, in x and in y.
        is_corrected: whether the mask was corrected with the brush.
        inpaint_prompt: what was painted.
        seed: of the chosen candidate.
        quality: of the edited image, by the annotator.
    """

    image: str
    mask: str
    caption: str
    original: str
    mask_prompt: str
    threshold: float
    enlarge: tuple[int, int]
    is_corrected: bool
    inpaint_prompt: str
    seed: int
    quality: Quality


@dataclass(frozen=True)
class Accepted:
    """A finished item.

    Attributes:
        item: that was annotated.
        edit: that was accepted.
        annotator: who made it; `AUTOMATIC` for the automatic mode.
        reviewer: who accepted it.
        reviewed_quality: the reviewer's own rating, made without the annotator's.
    """

    item: Item
    edit: Edit
    annotator: str
    reviewer: str
    reviewed_quality: Quality


LONGEST_NAME = 60
"""Characters."""
# Letters and marks without a shape of their own, which `str.isprintable` lets pass (Default_Ignorable_Code_Point).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ALPHABETS = ("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU", "GEORGIAN", "DESERET")
"""Scripts with letters that look like those of another one: a word of a name has letters of one of them only."""
# Letters that look like a Latin capital or small letter, after Unicode's confusables.txt (UTS 39).
_LOOK_ALIKES = str.maketrans(
    "авекмнорстухіјѕԛԝһүӏԁѵԍαβεζηικμνορτυχϳϲօսհոցքɑıɡ",  # noqa: RUF001
    "abekmhopctyxijsqwhyldvgabezhikmnoptyxjcouhngqaig",
)


def person_name(text: str) -> str:
    """The name that a person typed, in Unicode's compatible composed form (NFKC), with single spaces.

    Raises:
        ValueError: for an empty or long name, one with line breaks or other invisible characters, one with a word of
            letters of several alphabets that look alike, or `AUTOMATIC`.
    """
    # Nobody may review their own edit. Without these rules "Anna" with a Cyrillic A, or with an invisible letter,
    # would be somebody else.
    name = re.sub(" +", " ", unicodedata.normalize("NFKC", text.strip())).strip()
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or _INVISIBLE.search(name):
        shown = f"{len(name)} characters" if len(name) > LONGEST_NAME else ascii(name)
        raise ValueError(f"Name of a person: found {shown}, expected 1 to {LONGEST_NAME} printable characters.")
    for word in name.split():
        scripts = [script for script in _ALPHABETS if any(_is_in(letter, script) for letter in word)]
        if len(scripts) > 1:
            raise ValueError(
                f"Name of a person: {ascii(word)} has letters of {' and '.join(one.capitalize() for one in scripts)}, "
                "some of which look alike. Write the word in one alphabet."
            )
    if person_key(name) == AUTOMATIC:
        raise ValueError(f"Name of a person: {name!r} is reserved for the automatic mode. Choose another name.")
    return name


def person_key(name: str) -> str:
    """What names of one person have in common: not case, width, spaces or the alphabet of letters that look alike.

    It also takes names of older logs, which `person_name` may refuse.
    """
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", folded.translate(_LOOK_ALIKES)).split())


def is_same_person(first: str | None, second: str | None) -> bool:
    """Whether two names are one person; a missing name is nobody."""
    return first is not None and second is not None and person_key(first) == person_key(second)


def first_spellings(names: Iterable[str]) -> dict[str, str]:
    spellings: dict[str, str] = {}
    return {name: spellings.setdefault(person_key(name), name) for name in names}


def decider(name: str) -> str:
    """A person by `person_name`, or the automatic mode, which the code names and nobody types."""
    return name if name == AUTOMATIC else person_name(name)


def _is_in(letter: str, script: str) -> bool:
    return letter.isalpha() and unicodedata.name(letter, "").startswith(f"{script} ")


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
    """The state of an item, from its rows of the log in order: number, time, person, action and what it undoes."""
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
    # JSON has no tuples. Lists stand for them, and everything else is strict.
    declared: dict[str, Any] = {}
    for name, hint in get_type_hints(record).items():
        declared[name] = (Annotated[hint, Field(strict=False)] if get_origin(hint) is tuple else hint, ...)
    return create_model(record.__name__, __base__=Strict, **declared)


_MODELS: dict[type, type[Strict]] = {record: _model(record) for record in (Item, Edit)}


def encode(value: Mapping[str, Any] | Item | Edit, where: str) -> str:
    """JSON in one line, with sorted keys: equal values are equal texts."""
    content = asdict(value) if isinstance(value, Item | Edit) else value
    try:
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{where}: cannot be saved as JSON: {error}. Use texts, numbers, lists and mappings."
        ) from error
    # The log can't be corrected later, so nothing enters it that could not be read again.
    if isinstance(value, Item | Edit):
        decode(type(value), text, where)
    return text


def decode(record: type[Record], text: str, where: str) -> Record:
    """An item or edit of JSON."""
    content: Strict = parse(_MODELS[record], decode_mapping(text, where), where)
    found = record(**{name: getattr(content, name) for name in _MODELS[record].model_fields})
    # A stranger's database must not make the server send files outside the project.
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
    try:
        found = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where}: found {type(found).__name__}, expected a JSON object.")
    return found


def decode_quality(text: str, where: str) -> Quality:
    return check_quality(decode_mapping(text, where).get("quality"), where)


def check_quality(value: Any, where: str) -> Quality:
    if value not in get_args(Quality):
        raise ValueError(f"{where}: found {value!r}, expected a quality of {', '.join(get_args(Quality))}.")
    return value


def check_reason(text: str, where: str) -> str:
    """A reason without white space around it."""
    reason = text.strip()
    if not 1 <= len(reason) <= LONGEST_REASON:
        raise ValueError(f"{where}: found a reason of {len(reason):,} characters, expected 1 to {LONGEST_REASON:,}.")
    return reason
