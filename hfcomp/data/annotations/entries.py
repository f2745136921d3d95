"""Annotation items, people's decisions (Rösch et al. 2024, sections 4 and A.3) and the resulting states."""

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
"""State of an item: to be annotated, to be reviewed, finished, or skipped with a reason."""
STATES: tuple[State, ...] = get_args(State)
Action = Literal["submit", "skip", "accept", "send back", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
AUTOMATIC = "automatic"
"""Name under which the automatic mode submits its edits; no person may use it."""


@dataclass(frozen=True)
class Item:
    """A candidate: an image whose captions contain a keyword of a concept.

    Attributes:
        id: Id of the item, made of the image's id and the concept, for example `139/color`.
        image: File of the original in the project's `images`, named by its content, for example `ab/ab12....jpg`.
        concept: Concept such as object, color or size.
        captions: The image's captions that contain a keyword of the concept.
        keywords: The keyword of each caption, in the same order.
        facts: Information about the image, such as `image_id`, `license` and `source`; JSON values.
    """

    id: str
    image: str
    concept: str
    captions: tuple[str, ...]
    keywords: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edit:
    """An annotator's edit of an item.

    Attributes:
        image: File of the edited image in the project's `images`.
        mask: File of the mask, white for inpainted pixels.
        caption: Caption that is true of the edited image.
        original: The item's caption on which the new caption is based.
        mask_prompt: Text prompt of the segmentation; empty for a mask drawn by hand.
        threshold: Threshold of the segmentation, 0 to 1.
        enlarge: Pixels by which the mask was enlarged on each side, in x and in y.
        is_corrected: Whether the mask was corrected with the brush.
        inpaint_prompt: Prompt for the inpainting.
        seed: Random seed of the chosen candidate.
        quality: The annotator's rating of the edited image.
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
        item: The annotated item.
        edit: The accepted edit.
        annotator: Person who made the edit; `AUTOMATIC` for the automatic mode.
        reviewer: Person who accepted it.
        reviewed_quality: The reviewer's own rating, made without seeing the annotator's.
    """

    item: Item
    edit: Edit
    annotator: str
    reviewer: str
    reviewed_quality: Quality


LONGEST_NAME = 60
"""Maximum length of a name, in characters."""
# Invisible letters and marks that `str.isprintable` accepts (Default_Ignorable_Code_Point).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ALPHABETS = ("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU", "GEORGIAN", "DESERET")
"""Scripts whose letters look like letters of another script. A word of a name may use only one of them."""
# Letters that look like a Latin capital or small letter, after Unicode's confusables.txt (UTS 39).
_LOOK_ALIKES = str.maketrans(
    "авекмнорстухіјѕԛԝһүӏԁѵԍαβεζηικμνορτυχϳϲօսհոցքɑıɡ",  # noqa: RUF001
    "abekmhopctyxijsqwhyldvgabezhikmnoptyxjcouhngqaig",
)


def person_name(text: str) -> str:
    """Normalizes a name that a person typed: Unicode NFKC, with single spaces.

    Raises:
        ValueError: If the name is empty or too long, has line breaks or other invisible characters, has a word that
            mixes look-alike alphabets, or is `AUTOMATIC`.
    """
    # Nobody may review their own edit. Without these rules, "Anna" with a Cyrillic A or with an invisible letter would
    # count as somebody else.
    name = re.sub(" +", " ", unicodedata.normalize("NFKC", text.strip())).strip()
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or _INVISIBLE.search(name):
        name_text = f"{len(name)} characters" if len(name) > LONGEST_NAME else ascii(name)
        raise ValueError(f"Person's name: found {name_text}, expected 1 to {LONGEST_NAME} printable characters.")
    for word in name.split():
        scripts = [script for script in _ALPHABETS if any(_is_in(letter, script) for letter in word)]
        if len(scripts) > 1:
            raise ValueError(
                f"Person's name: {ascii(word)} has letters of {' and '.join(map(str.capitalize, scripts))}, "
                "some of which look alike. Write the word in one alphabet."
            )
    if person_key(name) == AUTOMATIC:
        raise ValueError(f"Person's name: {name!r} is reserved for the automatic mode. Choose another name.")
    return name


def person_key(name: str) -> str:
    """Reduces a name to a key that ignores case, width, spaces and the alphabet of look-alike letters.

    Also accepts names from older logs, which `person_name` may reject.
    """
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", name).casefold())
    return " ".join(unicodedata.normalize("NFKC", folded.translate(_LOOK_ALIKES)).split())


def is_same_person(first: str | None, second: str | None) -> bool:
    """Whether two names belong to the same person; a missing name belongs to nobody."""
    return first is not None and second is not None and person_key(first) == person_key(second)


def first_spellings(names: Iterable[str]) -> dict[str, str]:
    spellings: dict[str, str] = {}
    return {name: spellings.setdefault(person_key(name), name) for name in names}


def decider(name: str) -> str:
    """Normalizes a name with `person_name`, except that of the automatic mode, which only code passes."""
    return name if name == AUTOMATIC else person_name(name)


def _is_in(letter: str, script: str) -> bool:
    return letter.isalpha() and unicodedata.name(letter, "").startswith(f"{script} ")


Record = TypeVar("Record", bound=Item | Edit)
_FILES = ("image", "mask")
LONGEST_REASON = 2000
"""Maximum length of a reason, in characters."""


@dataclass(frozen=True)
class Entry:
    """A row of the log.

    Attributes:
        number: Row number, from 1.
        time: Time of the decision, in seconds since 1970.
        person: Person who decided.
        item: Id of the item.
        action: Kind of decision.
        content: Details of the action, as JSON values: the edit's fields for `submit`, a `reason` for `skip` and
            `send back`, a `quality` for `accept`, and for `undo` the number of the row that it `undoes`.
        taken: Time at which the item was leased to the person for this decision, in seconds since 1970; None without
            a lease.
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
        state: Current state.
        annotator: Person who submitted the edit of an annotated or accepted item.
        submission: Number of the row with that edit.
        acceptance: Number of the row that accepted it.
        returned_to: Person who submitted the edit, if the item was sent back and is open.
        returned_time: Time at which the item was sent back, in seconds since 1970.
    """

    state: State = "open"
    annotator: str | None = None
    submission: int | None = None
    acceptance: int | None = None
    returned_to: str | None = None
    returned_time: float | None = None


def standing(rows: Iterable[tuple[int, float, str, Action, int | None]]) -> Standing:
    """Derives an item's state from its log rows in order: number, time, person, action and the undone row's number."""
    rows = list(rows)
    undone = {undoes for *_, undoes in rows if undoes is not None}
    result = Standing()
    for number, time, person, action, _ in rows:
        if number in undone or action == "undo":
            continue
        if action == "submit":
            result = Standing("annotated", person, number)
        elif action == "skip":
            result = Standing("skipped")
        elif action == "accept":
            result = Standing("accepted", result.annotator, result.submission, number)
        else:
            result = Standing(returned_to=result.annotator, returned_time=time)
    return result


def _model(record: type[Item] | type[Edit]) -> type[Strict]:
    # JSON has no tuples, so lists are accepted for them. Everything else is strict.
    declared: dict[str, Any] = {}
    for name, hint in get_type_hints(record).items():
        declared[name] = (Annotated[hint, Field(strict=False)] if get_origin(hint) is tuple else hint, ...)
    return create_model(record.__name__, __base__=Strict, **declared)


_MODELS: dict[type, type[Strict]] = {record: _model(record) for record in (Item, Edit)}


def encode(value: Mapping[str, Any] | Item | Edit, where: str) -> str:
    """Encodes a value as one line of JSON with sorted keys, so that equal values become equal texts."""
    content = asdict(value) if isinstance(value, Item | Edit) else value
    try:
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{where} cannot be saved as JSON: {error}. Use texts, numbers, lists and mappings."
        ) from error
    # The log can't be corrected later, so nothing is written to it that could not be read back.
    if isinstance(value, Item | Edit):
        decode(type(value), text, where)
    return text


def decode(record: type[Record], text: str, where: str) -> Record:
    """Decodes an item or edit from JSON."""
    content: Strict = parse(_MODELS[record], decode_mapping(text, where), where)
    result = record(**{name: getattr(content, name) for name in _MODELS[record].model_fields})
    # A database from a stranger must not make the server send files outside the project.
    for name in _FILES:
        file = getattr(result, name, None)
        if file is not None and (not file or "\\" in file or ".." in (path := PurePosixPath(file)).parts or path.root):
            raise ValueError(f"{where}: {name}: found {file!r}, expected the name of a file inside the project.")
    if isinstance(result, Item) and (not result.id or not 1 <= len(result.captions) == len(result.keywords)):
        raise ValueError(
            f"{where}: found id {result.id!r}, {len(result.captions)} captions and {len(result.keywords)} keywords, "
            "expected an id, at least one caption, and one keyword per caption."
        )
    return result


def decode_mapping(text: str, where: str) -> dict[str, Any]:
    try:
        mapping = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON: {error}.") from error
    if not isinstance(mapping, dict):
        raise ValueError(f"{where}: found {type(mapping).__name__}, expected a JSON object.")
    return mapping


def decode_quality(text: str, where: str) -> Quality:
    return check_quality(decode_mapping(text, where).get("quality"), where)


def check_quality(value: Any, where: str) -> Quality:
    if value not in get_args(Quality):
        raise ValueError(f"{where}: found the quality {value!r}, expected one of: {', '.join(get_args(Quality))}.")
    return value


def check_reason(text: str, where: str) -> str:
    """Strips white space around a reason and checks its length."""
    reason = text.strip()
    if not 1 <= len(reason) <= LONGEST_REASON:
        raise ValueError(f"{where}: found a reason of {len(reason):,} characters, expected 1 to {LONGEST_REASON:,}.")
    return reason
