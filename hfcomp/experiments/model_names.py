"""Models as they are given on a command line, by the names that tables and figures have for them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence


def named_models(given: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Hub ids and folders by name: `name=PLACE`, or the last part of the place with as many before it as are needed.

    Args:
        given: the words of the command line.
        taken: names that no model may have.

    Raises:
        ValueError: for no model, or two of one name.
    """
    if not given:
        raise ValueError("name at least one model: a Hub id such as openai/clip-vit-base-patch32, or a folder.")
    pairs = [_name_and_place(text) for text in given]
    found: dict[str, str] = {}
    for own_name, place in pairs:
        name = own_name or _short(place, [other for _, other in pairs])
        if name in found or name in taken:
            raise ValueError(f"two models are called {name!r}. Name them, as in second={place}.")
        found[name] = place
    return found


def _name_and_place(text: str) -> tuple[str, str]:
    """The name, empty where none is given, and the place; a folder that is there may have `=` in its path."""
    if "=" not in text or os.path.exists(text):
        return "", text
    ends = [at for at, letter in enumerate(text) if letter == "="]
    end = next((at for at in ends if os.path.exists(text[at + 1 :])), ends[-1])
    return text[:end], text[end + 1 :]


def _short(place: str, places: Sequence[str]) -> str:
    """The last part of a path or id, with as many before it as tell it from the others."""
    whole = [os.path.abspath(one) if os.path.exists(one) else one for one in (place, *places)]
    parts = [part for part in whole[0].split("/") if part]
    for count in range(1, len(parts) + 1):
        tail = "/".join(parts[-count:])
        if sum(f"/{other}".endswith(f"/{tail}") for other in whole[1:]) == 1:
            return tail
    return parts[-1] if parts else place
