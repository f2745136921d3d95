"""The result of every generator of hard negatives: its fields, its random numbers, and columns of a training set."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hfcomp.parsing.captions import Span

COLUMN_NAMES = ("negative_captions", "negative_kinds", "negative_keywords", "negative_categories", "negative_spans")
MOST_FAILURES = 200
"""Candidates of one sort that may fail in a row, before the sort is taken for one without any that can be made."""

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Negative:
    """A caption with something changed, so that it is no longer true of its image.

    Attributes:
        text: The negative caption.
        kind: One of `hfcomp.data.columns.NEGATIVE_KINDS`.
        keyword: What was changed. Of two parts that changed places, the first.
        replacement: What stands there now.
        category: `attribute`, `object` or `relation`.
        spans: `[start, end)` in characters of the original caption: one for a word or phrase that was replaced, two,
            from left to right, for parts that changed places.
    """

    text: str
    kind: str
    keyword: str
    replacement: str
    category: str
    spans: tuple[Span, ...]


def check_draw(name: str, sorts: Sequence[str], known: Sequence[str], **number: int) -> None:
    """Raises `ValueError` unless the argument `name` lists some of the known sorts and each number is 1 or more."""
    if isinstance(sorts, str) or not sorts or not set(sorts) <= set(known):
        raise ValueError(f"{name} is {sorts!r}; expected a sequence with some of {', '.join(known)}.")
    for argument, value in number.items():
        if value < 1:
            raise ValueError(f"{argument} is {value}; expected 1 or more.")


def caption_rng(seed: int, caption: str, *purpose: str) -> random.Random:
    """The random numbers of one caption and purpose: independent of process, time and other rows."""
    # One stream per caption, not one for the set: rows can be parsed by any number of processes, a row can be added
    # or dropped, and every other row still gets the negatives it had. hash() differs between processes; a digest
    # does not.
    key = "\n".join((str(seed), *purpose, caption))
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


def draw_by_sort(
    candidates: Mapping[str, Sequence[Candidate]],
    make: Callable[[str, Candidate], Result | None],
    number: int,
    rng: random.Random,
) -> list[Result]:
    """Draws a sort uniformly among those with a candidate left, then one of its candidates, until enough are made.

    A candidate is drawn once. If `make` returns None, the next candidate of the same sort is drawn; after
    `MOST_FAILURES` the sort drops out. The order of sorts and candidates counts. Fewer results are the first of more.
    """
    left = {sort: list(some) for sort, some in candidates.items() if some}
    results: list[Result] = []
    while left and len(results) < number:
        # Sort first, candidate second: a caption has n^2 pairs of nouns and two of verbs, so a draw over all pairs
        # would hardly ever give a verb. For the same reason a failure is made up for inside its sort: otherwise a sort
        # with few usable candidates would be drawn less often than the others.
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


def as_columns(rows: Iterable[Sequence[Negative]], num_negatives: int) -> dict[str, list[Any]]:
    """Builds the columns `COLUMN_NAMES` of a training set, aligned entry by entry, `num_negatives` in every row."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMN_NAMES}
    for row, negatives in enumerate(rows):
        # Rows of one length, since a batch is a rectangle; the empty entries at the end are masked in the loss, and
        # have empty lists of spans.
        missing = num_negatives - len(negatives)
        if missing < 0:
            raise ValueError(f"row {row} has {len(negatives)} negatives; expected at most {num_negatives}.")
        columns["negative_captions"].append([one.text for one in negatives] + [""] * missing)
        columns["negative_kinds"].append([one.kind for one in negatives] + [""] * missing)
        columns["negative_keywords"].append([one.keyword for one in negatives] + [""] * missing)
        columns["negative_categories"].append([one.category for one in negatives] + [""] * missing)
        columns["negative_spans"].append([[list(span) for span in one.spans] for one in negatives] + [[]] * missing)
    return columns
