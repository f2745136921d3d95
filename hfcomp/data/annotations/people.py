"""Names of the people who annotate."""

from __future__ import annotations

import unicodedata

from hfcomp.data.annotations.records import AUTOMATIC

LONGEST_NAME = 60
"""Characters."""


def person_name(text: str) -> str:
    """The name that a person typed, stripped and in Unicode's composed form (NFC), so that equal names are one person.

    Args:
        text: 1 to 60 printable characters after stripping.

    Raises:
        ValueError: for an empty or long name, one with line breaks or other invisible characters, or `AUTOMATIC`.
    """
    name = unicodedata.normalize("NFC", text.strip())
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        shown = f"{len(name)} characters" if len(name) > LONGEST_NAME else ascii(name)
        raise ValueError(f"Name of a person: found {shown}, expected 1 to {LONGEST_NAME} printable characters.")
    if name.casefold() == AUTOMATIC:
        raise ValueError(f"Name of a person: {name!r} is reserved for the automatic mode. Choose another name.")
    return name


def decider(name: str) -> str:
    """A person by `person_name`, or the automatic mode, which the code names and nobody types."""
    return name if name == AUTOMATIC else person_name(name)
