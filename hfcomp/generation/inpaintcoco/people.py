"""Annotators in a set: their names are personal data, so that it has numbers instead."""

from __future__ import annotations

from collections.abc import Iterable

from hfcomp.data.annotations.records import AUTOMATIC


def pseudonyms(names: Iterable[str | None]) -> dict[str, str]:
    """`annotator 1` and so on for each name, in the order in which they come first; `automatic` stays.

    Args:
        names: of people, with repetitions; None and empty ones have no pseudonym.
    """
    people = [name for name in dict.fromkeys(names) if name and name != AUTOMATIC]
    return {AUTOMATIC: AUTOMATIC} | {name: f"annotator {number}" for number, name in enumerate(people, start=1)}
