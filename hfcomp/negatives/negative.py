"""Result type of all hard-negative generators, their random numbers, and the columns of a training set."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hfcomp.parsing.captions import Span

COLUMN_NAMES = ("negative_captions", "negative_kinds", "negative_keywords", "negative_categories", "negative_spans")
MAX_FAILURES = 200
"""Number of consecutive failures after which a kind is assumed to have no usable candidates."""

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Negative:
    """A caption changed so that it is no longer true of its image.

    Attributes:
        text: The negative caption.
        kind: One of `hfcomp.data.columns.NEGATIVE_KINDS`.
        keyword: The text that was replaced. For a swap, the first of the two parts.
        replacement: The text that takes its place.
        category: `attribute`, `object` or `relation`.
        spans: `[start, end)` in characters of the original caption: one span for a replaced word or phrase, or two
            spans from left to right for swapped parts.
    """

    text: str
    kind: str
    keyword: str
    replacement: str
    category: str
    spans: tuple[Span, ...]


def check_sampling(name: str, kinds: Sequence[str], allowed: Sequence[str], **number: int) -> None:
    """Raises `ValueError` unless the argument `name` lists one or more allowed kinds and every number is 1 or more."""
    if isinstance(kinds, str) or not kinds or not set(kinds) <= set(allowed):
        raise ValueError(f"{name}: found {kinds!r}, expected a sequence of one or more of {', '.join(allowed)}.")
    for argument, value in number.items():
        if value < 1:
            raise ValueError(f"{argument}: found {value}, expected 1 or more.")


def caption_rng(seed: int, caption: str, *purpose: str) -> random.Random:
    """Creates a random generator for one caption and purpose, independent of process, time and other rows."""
    # Use one stream per caption instead of one for the dataset. Any number of processes can then parse rows, and
    # adding or dropping a row does not change the negatives of the others. Use a digest, because hash() differs
    # between processes.
    key = "\n".join((str(seed), *purpose, caption))
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))


def sample_by_kind(
    candidates: Mapping[str, Sequence[Candidate]],
    make: Callable[[str, Candidate], Result | None],
    number: int,
    rng: random.Random,
) -> list[Result]:
    """Repeatedly samples a kind uniformly among those with candidates left, then one of its candidates.

    Each candidate is sampled at most once. If `make` returns None, the next candidate of the same kind is sampled;
    after `MAX_FAILURES` failures in a row, the kind is dropped. The result depends on the order of kinds and
    candidates. A smaller `number` gives the first results of a larger one.
    """
    remaining = {kind: list(options) for kind, options in candidates.items() if options}
    results: list[Result] = []
    while remaining and len(results) < number:
        # Sample the kind before the candidate: a caption may have n^2 noun pairs but only two verb pairs, so sampling
        # over all pairs would hardly ever give a verb. For the same reason, replace a failed candidate by one of the
        # same kind. Otherwise kinds with few usable candidates would be sampled less often than others.
        kind = rng.choice(list(remaining))
        result, failures = None, 0
        while result is None and remaining[kind] and failures < MAX_FAILURES:
            result = make(kind, remaining[kind].pop(rng.randrange(len(remaining[kind]))))
            failures += result is None
        if result is not None:
            results.append(result)
        if result is None or not remaining[kind]:
            del remaining[kind]
    return results


def as_columns(rows: Iterable[Sequence[Negative]], num_negatives: int) -> dict[str, list[Any]]:
    """Builds the columns `COLUMN_NAMES` of a training set, aligned entry by entry, with `num_negatives` per row."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMN_NAMES}
    for row, negatives in enumerate(rows):
        # All rows have the same length, because a batch is rectangular. Empty entries at the end are masked in the
        # loss and have empty lists of spans.
        missing = num_negatives - len(negatives)
        if missing < 0:
            raise ValueError(f"row {row} has {len(negatives)} negatives; expected at most {num_negatives}.")
        columns["negative_captions"].append([negative.text for negative in negatives] + [""] * missing)
        columns["negative_kinds"].append([negative.kind for negative in negatives] + [""] * missing)
        columns["negative_keywords"].append([negative.keyword for negative in negatives] + [""] * missing)
        columns["negative_categories"].append([negative.category for negative in negatives] + [""] * missing)
        spans = [[list(span) for span in negative.spans] for negative in negatives]
        columns["negative_spans"].append(spans + [[]] * missing)
    return columns
