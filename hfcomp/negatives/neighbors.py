"""Nearest neighbors of images or captions by their embeddings: the hard images of NegCLIP. Arrays in, indices out."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

METHODS = ("exact", "faiss")
EXACT_ROWS = 20_000
"""Rows up to which a search by matrix products is quick enough on a laptop (seconds)."""

# Directions are rounded to whole numbers of this length. A product of two is about 2^52 at most (Cauchy-Schwarz, for
# partial sums too), so every sum on the way is a whole number that float64 holds exactly, in whatever order BLAS adds:
# a row's similarities then do not depend on the batch, the number of threads or the CPU, and ties are real ties.
_LENGTH = 2.0**26
_COLUMNS = 65_536
# FAISS candidates beyond those that are needed, and how far its single precision may be off.
_SPARE = 16
_DOUBT = 1e-5

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def default_method(rows: int) -> str:
    """The default method of [`nearest_neighbors`]: `faiss` for many rows where it is installed."""
    return "faiss" if rows > EXACT_ROWS and importlib.util.find_spec("faiss") else "exact"


def nearest_neighbors(
    embeddings: ArrayLike,
    *,
    number: int,
    groups: ArrayLike | None = None,
    method: str | None = None,
    batch_size: int = 256,
) -> Integers:
    """Finds the rows of highest cosine similarity to each row, without the row itself and those of its group.

    Of equally similar rows the first ones are taken. The result depends neither on `batch_size` nor on the method:
    similarities are computed exactly, of directions rounded to 26 bits. FAISS (a flat index, which looks at every
    row) proposes candidates in single precision; where they leave a doubt, all rows are compared.

    Args:
        embeddings: `[n, D]`, of any length but 0.
        number: Neighbors of each row, at least 1.
        groups: `[n]`, equal for rows that are not neighbors of each other, such as the captions of one image.
        method: `exact` or `faiss`; by default the one that [`default_method`] names.
        batch_size: Rows that are compared with all others at a time.

    Returns:
        `[n, number]`, the nearest first; -1 where there are fewer rows of other groups.

    Raises:
        ValueError: A row that is NaN, infinite or 0; arrays of another shape; an unknown method.
        ModuleNotFoundError: `faiss` was asked for and is not installed.

    Source:
        Yuksekgonul et al. 2022 (NegCLIP), section 4: the 3 images nearest by CLIP's embeddings.
    """
    units = _units(embeddings)
    group = _group_numbers(groups, len(units))
    for name, value in (("number", number), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}={value}: expected at least 1.")
    method = default_method(len(units)) if method is None else method
    if method not in METHODS:
        raise ValueError(f"method={method!r}: expected one of {', '.join(METHODS)}.")
    search = partial(_rerank, _faiss_index(units)) if method == "faiss" else _exact
    found = np.empty((len(units), number), dtype=np.int64)
    for start in range(0, len(units), batch_size):
        rows = np.arange(start, min(start + batch_size, len(units)))
        found[rows] = search(units, group, number, rows)
    return found


def neighbor_columns(
    embeddings: ArrayLike,
    image_ids: Sequence[str],
    *,
    number: int,
    groups: ArrayLike | None = None,
    method: str | None = None,
) -> dict[str, list[Any]]:
    """The columns `image_id` and `neighbor_ids` of a training set, from an embedding of each row.

    Rows of one id are one image, represented by the mean direction of their embeddings: of the image itself, or of
    its captions.

    Args:
        embeddings: `[n, D]`, one for each row.
        image_ids: `[n]`.
        number: Neighbors of each image.
        groups: `[n]`, equal for rows that are not neighbors of each other though their ids differ, such as copies of
            one file. The first row of an id decides.
        method: As in [`nearest_neighbors`].

    Returns:
        `image_id` as it was given and `neighbor_ids`, for each row the ids of the images nearest to its own, the
        nearest first; fewer than `number` where there are no more.

    Raises:
        ValueError: Ids of another number than embeddings, or as [`nearest_neighbors`].
    """
    units = _directions(embeddings)
    if len(image_ids) != len(units):
        raise ValueError(f"image_ids: found {len(image_ids)}, expected one for each of {len(units)} embeddings.")
    numbers: dict[str, int] = {}
    # An image is its mean direction: the sum has the same direction, and the length plays no part.
    image = np.array([numbers.setdefault(one, len(numbers)) for one in image_ids], dtype=np.int64)
    _, first = np.unique(image, return_index=True)
    sums = np.zeros((len(numbers), units.shape[1]))
    np.add.at(sums, image, units)
    group = None if groups is None else _group_numbers(groups, len(units))[first]
    found = nearest_neighbors(sums, number=number, groups=group, method=method)
    names = list(numbers)
    near = [[names[other] for other in row if other >= 0] for row in found.tolist()]
    return {"image_id": list(image_ids), "neighbor_ids": [near[number] for number in image.tolist()]}


def _directions(embeddings: ArrayLike) -> Floats:
    """`[n, D]` of length 1."""
    vectors = np.asarray(embeddings, dtype=np.float64)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ValueError(f"embeddings: found the shape {vectors.shape}, expected [n, D].")
    # Divided by the largest entry first: the squares of a very long vector would be infinite.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    wrong = np.flatnonzero(~(np.isfinite(largest) & (largest > 0)))
    if len(wrong):
        what = "all 0" if largest[wrong[0], 0] == 0 else "NaN or infinite"
        raise ValueError(
            f"embeddings, row {wrong[0]}: {what}, so it has no neighbors ({len(wrong)} such rows). Remove them, or "
            "fix their inputs."
        )
    vectors = vectors / largest
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _units(embeddings: ArrayLike) -> Floats:
    """Directions as whole numbers, `_LENGTH` long."""
    return np.rint(_directions(embeddings) * _LENGTH)


def _group_numbers(groups: ArrayLike | None, rows: int) -> Integers:
    """`[n]`, the group of each row; without groups each row is a group of its own."""
    if groups is None:
        return np.arange(rows)
    found = np.asarray(groups)
    if found.shape != (rows,):
        raise ValueError(f"groups: found the shape {found.shape}, expected one for each of {rows} embeddings.")
    return np.unique(found, return_inverse=True)[1].reshape(-1)


def _exact(units: Floats, group: Integers, number: int, rows: Integers) -> Integers:
    # Blocks of columns bound the memory; the best so far is merged with the best of each block. Blocks come in order,
    # so the first of equal similarities stays, as if all had been compared at once.
    best = np.full((len(rows), number), -np.inf)
    index = np.full(best.shape, -1, dtype=np.int64)
    for at in range(0, len(units), _COLUMNS):
        columns = slice(at, at + _COLUMNS)
        similarity = units[rows] @ units[columns].T
        similarity[group[rows, None] == group[columns]] = -np.inf
        found, place = _top(similarity, number)
        best, index = _merge(best, index, found, np.where(place < 0, -1, place + at))
    return index


def _top(similarity: Floats, number: int) -> tuple[Floats, Integers]:
    """The `number` highest of each row and their places, the first of equal ones; -inf and -1 for what is missing."""
    # `partition` finds the value of the last place in linear time, but picks any of equal values. So all entries that
    # reach it are collected, ordered by row, falling value and column, and each row keeps its first `number`.
    found = np.full((len(similarity), number), -np.inf)
    place = np.full(found.shape, -1, dtype=np.int64)
    width = min(number, similarity.shape[1])
    least = np.partition(similarity, -width, axis=1)[:, -width]
    row, column = np.nonzero((similarity >= least[:, None]) & (similarity > -np.inf))
    value = similarity[row, column]
    order = np.lexsort((column, -value, row))
    row, column, value = row[order], column[order], value[order]
    # The place inside the row: its first entry has rank 0.
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    kept = rank < number
    found[row[kept], rank[kept]], place[row[kept], rank[kept]] = value[kept], column[kept]
    return found, place


def _merge(best: Floats, index: Integers, found: Floats, place: Integers) -> tuple[Floats, Integers]:
    """The highest of two lists of each row; the places of the first list come before those of the second."""
    values, places = np.hstack([best, found]), np.hstack([index, place])
    order = np.argsort(-values, axis=1, kind="stable")[:, : best.shape[1]]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)


def _faiss_index(units: Floats) -> Any:
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'method="faiss" needs FAISS: pip install "hfcomp[neighbors]". Or omit method, or use "exact".'
        ) from error
    index = faiss.IndexFlatIP(units.shape[1])
    index.add(_single(units))
    return index


def _single(units: Floats) -> NDArray[np.float32]:
    return (units / _LENGTH).astype(np.float32)


def _rerank(index: Any, units: Floats, group: Integers, number: int, rows: Integers) -> Integers:
    """The neighbors of some rows among the candidates of FAISS, which exact similarities put in order."""
    # FAISS cannot leave out a group, and the whole group of a row may be nearest to it: ask for that many more.
    own = int(np.bincount(group)[group[rows]].max())
    _, candidates = index.search(_single(units[rows]), min(len(units), number + own + _SPARE))
    candidates = np.sort(candidates, axis=1)  # the first of equal ones is then taken
    similarity = np.stack([units[near] @ units[row] for row, near in zip(rows, candidates, strict=True)])
    least = similarity.min(axis=1)
    similarity[group[rows, None] == group[candidates]] = -np.inf
    found, place = _top(similarity, number)
    near = np.where(place < 0, -1, np.take_along_axis(candidates, np.maximum(place, 0), axis=1))
    # FAISS works in single precision. A row that it did not name can be no nearer than the last candidate, except for
    # rounding: if the last neighbor leads that candidate by less, the row is searched exactly.
    doubtful = np.flatnonzero(found[:, -1] <= least + _DOUBT * _LENGTH**2)
    if len(doubtful) and candidates.shape[1] < len(units):
        near[doubtful] = _exact(units, group, number, rows[doubtful])
    return near
