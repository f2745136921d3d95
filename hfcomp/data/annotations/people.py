"""Names of the people who annotate, and which names are one person."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from hfcomp.data.annotations.records import AUTOMATIC

LONGEST_NAME = 60
"""Characters."""
# Letters and marks without a shape of their own, which `str.isprintable` lets pass (Default_Ignorable_Code_Point).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ALPHABETS = ("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU", "GEORGIAN", "DESERET")
"""Scripts with letters that look like those of another one: a word of a name has letters of one of them only."""
# Letters that look like a Latin one, as a capital or small, after Unicode's confusables.txt (UTS 39).
_LOOK_ALIKES = str.maketrans(
    "авекмнорстухіјѕԛԝһүӏԁѵԍαβεζηικμνορτυχϳϲօսհոցքɑıɡ",  # noqa: RUF001
    "abekmhopctyxijsqwhyldvgabezhikmnoptyxjcouhngqaig",
)


def person_name(text: str) -> str:
    """The name that a person typed, in Unicode's compatible composed form (NFKC), with single spaces.

    Args:
        text: 1 to 60 visible characters after stripping.

    Raises:
        ValueError: for an empty or long name, one with line breaks or other invisible characters, one with a word of
            letters of several alphabets that look alike, or `AUTOMATIC`.
    """
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
    """For each name the first spelling of the same person."""
    spellings: dict[str, str] = {}
    return {name: spellings.setdefault(person_key(name), name) for name in names}


def decider(name: str) -> str:
    """A person by `person_name`, or the automatic mode, which the code names and nobody types."""
    return name if name == AUTOMATIC else person_name(name)


def _is_in(letter: str, script: str) -> bool:
    return letter.isalpha() and unicodedata.name(letter, "").startswith(f"{script} ")
