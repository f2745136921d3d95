"""Annotators in a set: their names are personal data, so that it has numbers instead."""

from __future__ import annotations

from collections.abc import Iterable

from hfcomp.data.annotations.entries import AUTOMATIC, first_spellings


def pseudonyms(names: Iterable[str | None]) -> dict[str, str]:
    """`annotator 1` and so on for each person, in the order in which they come first; `automatic` stays.

    Args:
        names: of people, with repetitions; None and empty ones have no pseudonym.
    """
    spellings = first_spellings(name for name in names if name and name != AUTOMATIC)
    people = {name: f"annotator {number}" for number, name in enumerate(dict.fromkeys(spellings.values()), start=1)}
    return {AUTOMATIC: AUTOMATIC} | {name: people[first] for name, first in spellings.items()}
