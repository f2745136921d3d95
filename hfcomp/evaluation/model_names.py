"""Names of models, as users give them: Hub ids, folders, `NAME=PLACE` or objects."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hfcomp.reading import check_place


def named_models(given: Sequence[Any] | Mapping[str, Any], *, taken: Collection[str] = ()) -> dict[str, Any]:
    """Models by name, of Hub ids, folders, `name=PLACE`, or objects; or by name already.

    Without a name, a place is called by its last part with as many before it as are needed, an object by where it was
    loaded from, else by its class. Names that are `taken` no model may have.
    """
    if not given:
        raise ValueError("name at least one model: a Hub id such as openai/clip-vit-base-patch32, or a folder.")
    pairs = list(given.items()) if isinstance(given, Mapping) else [split_name(one) for one in given]
    places = [place_of(model) for _, model in pairs]
    found: dict[str, Any] = {}
    for (own_name, model), place in zip(pairs, places, strict=True):
        name = own_name or _short(place, places)
        if name in found or name in taken:
            hint = f"second={place}" if isinstance(model, str) else f'{{"second": {place}}}'
            raise ValueError(f"two models are called {name!r}. Name them, as in {hint}.")
        found[name] = model
    return found


def check_models(words: Iterable[str]) -> None:
    """Raises ValueError for a path among Hub ids, folders and NAME=PLACE that does not exist."""
    for word in words:
        check_place(split_name(word)[1])


def place_of(model: Any) -> str:
    """The Hub id or folder of a model; of a module where it was loaded from, of another object its class."""
    if isinstance(model, str | Path):
        return str(model)
    model = model[0] if isinstance(model, tuple) else model
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


def split_name(given: Any) -> tuple[str, Any]:
    """The name, empty where none is given, and the model; a folder that is there may have `=` in its path."""
    if not isinstance(given, str) or "=" not in given or os.path.exists(given):
        return "", given
    ends = [at for at, letter in enumerate(given) if letter == "="]
    # Names and paths may both hold `=`: the first one with an existing path behind it counts, otherwise the last.
    end = next((at for at in ends if os.path.exists(given[at + 1 :])), ends[-1])
    return given[:end], given[end + 1 :]


def _short(place: str, places: Sequence[str]) -> str:
    """The last part of a path or id, with as many before it as distinguish it from the others."""
    # `runs/a` and `./runs/a/` are one folder, while Hub ids stay as they are.
    whole = [os.path.abspath(one) if os.path.exists(one) else one for one in (place, *places)]
    parts = [part for part in whole[0].split("/") if part]
    for count in range(1, len(parts) + 1):
        tail = "/".join(parts[-count:])
        if sum(f"/{other}".endswith(f"/{tail}") for other in whole[1:]) == 1:
            return tail
    return parts[-1] if parts else place
