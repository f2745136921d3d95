"""Models as they are given on a command line, by the names that tables and figures have for them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path


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
    found: dict[str, str] = {}
    for text in given:
        name, _, place = text.rpartition("=") if "=" in text and not Path(text).exists() else ("", "", text)
        name = name or _short(place, [other.rpartition("=")[2] for other in given])
        if name in found or name in taken:
            raise ValueError(f"two models are called {name!r}. Name them, as in second={place}.")
        found[name] = place
    return found


def _short(place: str, places: Sequence[str]) -> str:
    """The last part of a path or id, with as many before it as tell it from the others."""
    whole = [os.path.abspath(one) if Path(one).exists() else one for one in (place, *places)]
    parts = [part for part in whole[0].split("/") if part]
    for count in range(1, len(parts) + 1):
        tail = "/".join(parts[-count:])
        if sum(f"/{other}".endswith(f"/{tail}") for other in whole[1:]) == 1:
            return tail
    return parts[-1]
