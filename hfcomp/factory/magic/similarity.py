"""Finds similar concepts block by block, for merging and for mining hard negatives.

The full cosine matrix is never in memory. The last digits of a float32 block product depend on the size of the block
and on the processor. Therefore blocks only propose pairs, with some slack. The cosines of these pairs are then
computed one by one in float64 and rounded to six digits, so pairs near a threshold are decided the same way
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hfcomp.reporting.format import count_text

# Rows per block. With 30,000 concepts a block of cosines takes 31 MB, or 250 MB if all concepts are similar.
BLOCK = 256
# Larger than the rounding error of a float32 product of two unit vectors (about 6e-8 per summand).
SLACK = 1e-4
DIGITS = 6
_PAIRS_AT_A_TIME = 1 << 16

Vectors = NDArray[np.float32]
# Rows, columns and cosines.
Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


def check_vectors(vectors: Vectors, names: list[str]) -> None:
    """Raises ValueError if a vector is not finite, and names its concept."""
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        others = f" (and for {count_text(len(wrong) - 1, 'other concept')})" if len(wrong) > 1 else ""
        raise ValueError(
            f"the encoder's vector for {names[wrong[0]]!r}{others} is not finite. Choose another --encoder."
        )


def similar_pairs(vectors: Vectors, threshold: float, rows: NDArray[np.int64]) -> Pairs:
    """The pairs of one of `rows` and another row with a cosine above a threshold, sorted by first and second members.

    Args:
        vectors: `[n, D]`, each of length 1, or of length 0 for a concept that is similar to no other.
        rows: First members of the pairs: one of `blocks`.
    """
    cosines = vectors[rows] @ vectors.T
    # The diagonal is excluded, because a concept does not count as similar to itself.
    cosines[np.arange(len(rows)), rows] = -np.inf
    places, second = np.nonzero(cosines > threshold - SLACK)
    first, exact = rows[places], exact_cosines(vectors, rows[places], second)
    above = exact > threshold
    return first[above], second[above], exact[above]


def most_similar(pairs: Pairs, order: NDArray[np.int64], most: int) -> Pairs:
    """For each first member, the `most` second members with the highest cosines, the highest first.

    Args:
        order: `[n]`, the rank of each row among equal cosines.
    """
    first, second, cosines = pairs
    # lexsort sorts by its last key first: by first member, then by descending cosine, then by name.
    by = np.lexsort((order[second], -cosines, first))
    first, second, cosines = first[by], second[by], cosines[by]
    _, starts, numbers = np.unique(first, return_index=True, return_counts=True)
    kept = np.arange(len(first)) - np.repeat(starts, numbers) < most
    return first[kept], second[kept], cosines[kept]


def name_ranks(names: Sequence[str]) -> NDArray[np.int64]:
    """`[n]`, the rank of each name in sorted order."""
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=lambda row: names[row])] = np.arange(len(names))
    return places


def blocks(rows: NDArray[np.int64], block: int = BLOCK) -> Iterator[NDArray[np.int64]]:
    """Rows in blocks."""
    return (rows[start : start + block] for start in range(0, len(rows), block))


def nearest(vectors: Vectors, rows: NDArray[np.int64], gone: NDArray[np.int64]) -> list[tuple[int, float] | None]:
    """The most similar remaining other row for each row, with the cosine; the first one of ties.

    Args:
        vectors: `[n, D]`, see `similar_pairs`.
        gone: `[n]`, the step in which each row left. A row is compared only with rows that left later.
    """
    neighbors: list[tuple[int, float] | None] = []
    for part in blocks(rows):
        cosines = vectors[part] @ vectors.T
        cosines[gone[None, :] <= gone[part, None]] = -np.inf
        for row, values in zip(part, cosines, strict=True):
            best = values.max()
            if best == -np.inf or not vectors[row].any():  # no row remains, or this row is similar to none
                neighbors.append(None)
                continue
            # Rounding may have put the wrong row first, so all rows within the slack are compared exactly.
            columns = np.flatnonzero(values >= best - SLACK)
            exact = exact_cosines(vectors, np.full(len(columns), row), columns)
            neighbors.append((int(columns[exact.argmax()]), float(exact.max())))
    return neighbors


def exact_cosines(vectors: Vectors, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """Cosines of pairs of rows, rounded to `DIGITS`."""
    parts = []
    # Pairs are processed in parts, because all their vectors in float64 would not fit into memory.
    for start in range(0, len(first), _PAIRS_AT_A_TIME):
        part = slice(start, start + _PAIRS_AT_A_TIME)
        products = vectors[first[part]].astype(np.float64) * vectors[second[part]]
        parts.append(np.round(products.sum(axis=1), DIGITS))
    return np.concatenate(parts) if parts else np.empty(0)
