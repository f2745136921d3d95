"""Nearest neighbors of images or captions by their embeddings, for NegCLIP's hard images."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

METHODS = ("exact", "faiss")
EXACT_ROWS = 20_000
"""Number of rows up to which a search by matrix products is fast enough on a laptop (seconds)."""

# Directions are scaled to this length and rounded to integers. The product of two is about 2^52 at most
# (Cauchy-Schwarz, also for partial sums), so every intermediate sum is an integer that float64 represents exactly,
# whatever the order in which BLAS adds. A row's similarities therefore do not depend on the batch, the number of
# threads or the CPU, and ties are real ties.
_LENGTH = 2.0**26
_BLOCK_COLUMNS = 65_536
# Number of extra FAISS candidates, and the maximum error of its single precision.
_EXTRA_CANDIDATES = 16
_MAX_ERROR = 1e-5

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def default_method(rows: int) -> str:
    """Returns the default method of [`nearest_neighbors`]: `faiss` above `EXACT_ROWS` rows if it is installed."""
    return "faiss" if rows > EXACT_ROWS and importlib.util.find_spec("faiss") else "exact"


def nearest_neighbors(
    embeddings: ArrayLike,
    *,
    number: int,
    groups: ArrayLike | None = None,
    method: str | None = None,
    batch_size: int = 256,
) -> Integers:
    """Finds the rows with the highest cosine similarity to each row, excluding the row itself and rows of its group.

    Among equally similar rows, the first ones are chosen. The result depends neither on `batch_size` nor on the
    method, because similarities are computed exactly from directions rounded to 26 bits. FAISS (a flat index, which
    searches every row) proposes candidates in single precision; if they are not conclusive, all rows are compared.

    Args:
        embeddings: `[n, D]`, with nonzero length.
        number: Number of neighbors per row, at least 1.
        groups: `[n]`, equal for rows that must not be neighbors of each other, such as captions of the same image.
        method: `exact` or `faiss`. Defaults to [`default_method`].
        batch_size: Number of rows to compare with all others at a time.

    Returns:
        `[n, number]`, nearest first; -1 if there are too few rows in other groups.

    Raises:
        ValueError: If a row is NaN, infinite or 0, an array has another shape, or the method is unknown.
        ModuleNotFoundError: If the method is `faiss`, which is not installed.

    Source:
        Yuksekgonul et al. 2022 (NegCLIP), section 4: the 3 images nearest by CLIP's embeddings.
    """
    units = _units(embeddings)
    group = _group_numbers(groups, len(units))
    for name, value in (("number", number), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}: found {value}, expected at least 1.")
    method = default_method(len(units)) if method is None else method
    if method not in METHODS:
        raise ValueError(f"method: found {method!r}, expected one of {', '.join(METHODS)}.")
    search = partial(_rerank, _faiss_index(units)) if method == "faiss" else _exact
    neighbors = np.empty((len(units), number), dtype=np.int64)
    for start in range(0, len(units), batch_size):
        rows = np.arange(start, min(start + batch_size, len(units)))
        neighbors[rows] = search(units, group, number, rows)
    return neighbors


def neighbor_columns(
    embeddings: ArrayLike,
    image_ids: Sequence[str],
    *,
    number: int,
    groups: ArrayLike | None = None,
    method: str | None = None,
) -> dict[str, list[Any]]:
    """Builds the columns `image_id` and `neighbor_ids` of a training set from one embedding per row.

    Rows with the same id belong to one image, which is represented by the mean direction of their embeddings (of the
    image itself or of its captions).

    Args:
        embeddings: `[n, D]`, one per row.
        image_ids: `[n]`, the image id of each row.
        number: Number of neighbors per image.
        groups: `[n]`, equal for rows with different ids that must not be neighbors of each other, such as copies of a
            file. The first row of an id determines its group.
        method: As in [`nearest_neighbors`].

    Returns:
        `image_id` as passed, and `neighbor_ids`, which lists for each row the ids of the images nearest to its own,
        nearest first; fewer than `number` if there are no more.

    Raises:
        ValueError: If the number of ids differs from that of embeddings, or for the reasons of [`nearest_neighbors`].
    """
    units = _directions(embeddings)
    if len(image_ids) != len(units):
        raise ValueError(f"image_ids: found {len(image_ids)}, expected {len(units)}, one per embedding.")
    numbers: dict[str, int] = {}
    # An image is represented by its mean direction. The sum has the same direction, and its length does not matter.
    image = np.array([numbers.setdefault(image_id, len(numbers)) for image_id in image_ids], dtype=np.int64)
    _, first = np.unique(image, return_index=True)
    sums = np.zeros((len(numbers), units.shape[1]))
    np.add.at(sums, image, units)
    group = None if groups is None else _group_numbers(groups, len(units))[first]
    neighbors = nearest_neighbors(sums, number=number, groups=group, method=method)
    names = list(numbers)
    near = [[names[other] for other in row if other >= 0] for row in neighbors.tolist()]
    return {"image_id": list(image_ids), "neighbor_ids": [near[number] for number in image.tolist()]}


def _directions(embeddings: ArrayLike) -> Floats:
    """Scales embeddings `[n, D]` to length 1."""
    vectors = np.asarray(embeddings, dtype=np.float64)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError(f"embeddings: found the shape {vectors.shape}, expected [n, D].")
    # Divide by the largest entry first, because the squares of a very long vector would overflow.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    unusable = np.flatnonzero(~(np.isfinite(largest) & (largest > 0)))
    if len(unusable):
        what = "all 0" if largest[unusable[0], 0] == 0 else "NaN or infinite"
        raise ValueError(
            f"embeddings, row {unusable[0]}: {what}, so it has no neighbors ({len(unusable)} such rows). Remove these "
            "rows or fix their inputs."
        )
    vectors = vectors / largest
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _units(embeddings: ArrayLike) -> Floats:
    """Returns directions of length `_LENGTH`, rounded to integers."""
    return np.rint(_directions(embeddings) * _LENGTH)


def _group_numbers(groups: ArrayLike | None, rows: int) -> Integers:
    """Returns the group number of each row, `[n]`. Without groups, each row is its own group."""
    if groups is None:
        return np.arange(rows)
    values = np.asarray(groups)
    if values.shape != (rows,):
        raise ValueError(f"groups: found the shape {values.shape}, expected ({rows},), one per embedding.")
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _exact(units: Floats, group: Integers, number: int, rows: Integers) -> Integers:
    # Process blocks of columns to limit memory, and merge the best so far with the best of each block. Blocks come in
    # order, so the first of equal similarities stays, as if all columns were compared at once.
    best = np.full((len(rows), number), -np.inf)
    index = np.full(best.shape, -1, dtype=np.int64)
    for start in range(0, len(units), _BLOCK_COLUMNS):
        columns = slice(start, start + _BLOCK_COLUMNS)
        similarity = units[rows] @ units[columns].T
        similarity[group[rows, None] == group[columns]] = -np.inf
        values, position = _top(similarity, number)
        best, index = _merge(best, index, values, np.where(position < 0, -1, position + start))
    return index


def _top(similarity: Floats, number: int) -> tuple[Floats, Integers]:
    """Returns the `number` highest values of each row and their columns; -inf and -1 if there are too few.

    Among equal values, the first ones are chosen.
    """
    # `partition` finds the lowest of the highest values in linear time, but picks any of equal values. So collect all
    # entries that reach this value, sort them by row, descending value and column, and keep the first `number` per
    # row.
    best = np.full((len(similarity), number), -np.inf)
    position = np.full(best.shape, -1, dtype=np.int64)
    width = min(number, similarity.shape[1])
    least = np.partition(similarity, -width, axis=1)[:, -width]
    row, column = np.nonzero((similarity >= least[:, None]) & (similarity > -np.inf))
    value = similarity[row, column]
    order = np.lexsort((column, -value, row))
    row, column, value = row[order], column[order], value[order]
    # The rank within the row; its first entry has rank 0.
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    in_top = rank < number
    best[row[in_top], rank[in_top]], position[row[in_top], rank[in_top]] = value[in_top], column[in_top]
    return best, position


def _merge(best: Floats, index: Integers, others: Floats, other_index: Integers) -> tuple[Floats, Integers]:
    """Returns the highest values of two lists per row. Among equal values, the first list comes first."""
    values, indices = np.hstack([best, others]), np.hstack([index, other_index])
    order = np.argsort(-values, axis=1, kind="stable")[:, : best.shape[1]]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(indices, order, axis=1)


def _faiss_index(units: Floats) -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'method="faiss" requires FAISS: pip install "hfcomp[neighbors]". Or omit method, or use "exact".'
        ) from error
    index = faiss.IndexFlatIP(units.shape[1])
    index.add(_as_float32(units))
    return index


def _as_float32(units: Floats) -> NDArray[np.float32]:
    return (units / _LENGTH).astype(np.float32)


def _rerank(index: Any, units: Floats, group: Integers, number: int, rows: Integers) -> Integers:
    """Finds the neighbors of some rows among the FAISS candidates, ranked by exact similarity."""
    # FAISS cannot exclude a group, and a row's whole group may be nearest to it, so request that many more candidates.
    largest_group = int(np.bincount(group)[group[rows]].max())
    _, candidates = index.search(_as_float32(units[rows]), min(len(units), number + largest_group + _EXTRA_CANDIDATES))
    candidates = np.sort(candidates, axis=1)  # so that the first of equal candidates is chosen
    similarity = np.stack([units[near] @ units[row] for row, near in zip(rows, candidates, strict=True)])
    least = similarity.min(axis=1)
    similarity[group[rows, None] == group[candidates]] = -np.inf
    best, position = _top(similarity, number)
    near = np.where(position < 0, -1, np.take_along_axis(candidates, np.maximum(position, 0), axis=1))
    # FAISS uses single precision. A row that it did not return can be closer than the last candidate only by rounding
    # error. If the last neighbor leads that candidate by less than this error, search the row exactly.
    inconclusive = np.flatnonzero(best[:, -1] <= least + _MAX_ERROR * _LENGTH**2)
    if len(inconclusive) and candidates.shape[1] < len(units):
        near[inconclusive] = _exact(units, group, number, rows[inconclusive])
    return near
