"""One title for one dataset: a recipe calls its own held-out rows `own`, an evaluation names the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hfcomp.evaluation.stored import Stored, listed
from hfcomp.statistics.outcomes import Outcomes

RECIPE_NAME, RECIPE_TITLE = "evaluation", "own"
"""Name and title of the own evaluation set of a recipe."""


def unify_own_titles(stored: Sequence[Stored], notes: list[str]) -> list[Stored]:
    """Gives a recipe's own set the title that an evaluation of the same dataset has.

    Args:
        stored: The models that are compared.
        notes: Receives a line for each renamed benchmark.

    Raises:
        ValueError: If both read the same dataset, but other rows of it.
    """
    evaluated = {place: (one, title) for one in stored for place, title in _own_places(one) if title != RECIPE_TITLE}
    unified = []
    for one in stored:
        for place, title in _own_places(one):
            if title == RECIPE_TITLE and place in evaluated:
                other, other_title = evaluated[place]
                _check_same_images(one, other, other_title, place)
                notes.append(f"{title} of {one.folder} and {other_title} of {other.folder} are both {place}")
                one = _renamed(one, other_title)
        unified.append(one)
    return unified


def _own_places(one: Stored) -> Iterator[tuple[Path, str]]:
    """The places and titles of benchmarks that are files or folders of the user's own."""
    for name, facts in (one.results.get("benchmarks") or {}).items():
        place = (facts.get("data") or {}).get("place")
        if place and name in (RECIPE_NAME, place):
            yield Path(place), facts.get("title") or name


def _check_same_images(one: Stored, other: Stored, other_title: str, place: Path) -> None:
    ours, theirs = (
        set(part.outcomes.select(benchmark=[title]).table["image_id"])
        for part, title in ((one, RECIPE_TITLE), (other, other_title))
    )
    if ours != theirs:
        split = (one.results.get("config") or {}).get("evaluation_split") or "the split of the recipe"
        raise ValueError(
            f"{one.file} has {len(ours):,} images of {place} and {other.file} has {len(theirs):,}: recall depends on "
            f"how many images there are to choose from. Evaluate {listed([other.model])} on the same rows: "
            f"--benchmarks {place} --split '{split}'."
        )


def _renamed(one: Stored, title: str) -> Stored:
    table = one.outcomes.table
    table = table.assign(benchmark=table["benchmark"].where(table["benchmark"] != RECIPE_TITLE, title))
    facts = {
        name: {**known, "title": title} if known.get("title") == RECIPE_TITLE else known
        for name, known in one.results["benchmarks"].items()
    }
    lines = [
        {**line, "benchmark": title} if line["benchmark"] == RECIPE_TITLE else line
        for line in one.results.get("results") or ()
    ]
    return replace(one, outcomes=Outcomes(table), results={**one.results, "benchmarks": facts, "results": lines})
