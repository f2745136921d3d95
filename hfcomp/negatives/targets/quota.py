"""Which category each row of a set gets: relation where there is one, attribute and object by deficit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hfcomp.negatives.targets.candidates import ATTRIBUTE, OBJECT, RELATION


def balanced_categories(rows: Iterable[Sequence[str]], *, attribute_share: float = 0.5) -> Iterator[str]:
    """Decides row after row, in the order of the set.

    Concrete Jungle, Appendix A.1: "Due to the relative sparseness of relational descriptions, we prioritize the
    relation type if it exists. We apply deficit-based quota sampling to balance the attribute and object class." Read
    here as: of the rows without a relation, `attribute_share` should be attributes and the others objects. A row that
    could be either gets the category that lacks most of its quota, counting this row and all before it; of equal ones
    the first of the row. A row that can be one only is that one, and counts.

    A decision needs two numbers of all rows before it, so it is the same however the rows were made.

    Args:
        rows: The categories that each row can have, the preferred one first.
        attribute_share: Of the rows without a relation; our choice is half.

    Returns:
        The category of each row; empty for a row without any.

    Raises:
        ValueError: The share is not in 0 to 1.
    """
    if not 0 <= attribute_share <= 1:
        raise ValueError(f"attribute_share is {attribute_share}; expected 0 to 1.")
    return _decide(rows, {ATTRIBUTE: attribute_share, OBJECT: 1 - attribute_share})


def _decide(rows: Iterable[Sequence[str]], shares: dict[str, float]) -> Iterator[str]:
    counts = dict.fromkeys(shares, 0)
    for possible in rows:
        if RELATION in possible or not possible:
            yield RELATION if possible else ""
            continue
        decided = 1 + sum(counts.values())
        # max takes the first of equal ones
        chosen = max(possible, key=lambda category: shares[category] * decided - counts[category])
        counts[chosen] += 1
        yield chosen
