"""Drawing some of many candidates so that no sort crowds out the others."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

MOST_FAILURES = 200
"""Candidates of one sort that may fail in a row, before the sort is taken for one without any that can be made."""

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")


def draw_by_sort(
    candidates: Mapping[str, Sequence[Candidate]],
    make: Callable[[str, Candidate], Result | None],
    number: int,
    rng: random.Random,
) -> list[Result]:
    """Draws a sort uniformly among those with a candidate left, then one of its candidates, until enough are made.

    A candidate is drawn once. Where `make` gives None the next candidate of the same sort is drawn, so that a sort is
    as likely as any other whatever share of its candidates can be made; after `MOST_FAILURES` the sort drops out.

    Args:
        candidates: Candidates of each sort; the order of both counts.
        make: Builds a result from a sort and a candidate, or returns None.
        number: How many results at most.
        rng: Source of randomness.

    Returns:
        At most `number` results; fewer are the first of more.
    """
    left = {sort: list(some) for sort, some in candidates.items() if some}
    results: list[Result] = []
    while left and len(results) < number:
        sort = rng.choice(list(left))
        result, failures = None, 0
        while result is None and left[sort] and failures < MOST_FAILURES:
            result = make(sort, left[sort].pop(rng.randrange(len(left[sort]))))
            failures += result is None
        if result is not None:
            results.append(result)
        if result is None or not left[sort]:
            del left[sort]
    return results
