"""Sums of items per image, and the weighted mean of subsets' means with its clustered standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = Sequence[Any] | NDArray[Any]
Values = NDArray[Any] | Sequence[float]
Numbers = NDArray[np.float64]
Subsets = Sequence[tuple[Values, Images]]
"""For each subset, the values `[n]` or `[n, M]` and the images `[n]` of its items."""
Part = tuple[list[Any], Numbers, Numbers]
"""For a subset, the names of its I images, their sums `[I, M]` and numbers of items `[I]`."""
DENSE = 4
"""Image numbers are sorted by counting if the largest is below this many times the number of items."""
FEW = 3
"""Maximum number of subsets with common images for which multiplying out the variance is quicker."""
Counts = NDArray[Any]
"""`[B, I]`: draws of images, or signs, usually as bytes."""
# Counts are bytes in memory, and float64 only in tiles that fit into the cache. A whole block of draws as float64 is a
# temporary array of many megabytes, which the allocator requests from the system and returns each time. A skinny
# product of it is memory-bound, so BLAS threads would add cost and no speed.
MULTIPLICATIONS = 2**18
"""Multiplications per tile up to which OpenBLAS stays on the calling thread."""
ROWS, NARROWEST, WIDEST = 64, 32, 512
CELLS = 2**16
"""Cells per tile: 512 KB as float64."""


def per_image(values: Values, images: Images, name: str) -> Part:
    """Sums and numbers of items per image of a subset, from values `[n]` or `[n, M]` and images `[n]`."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in (1, 2):
        raise ValueError(f"{name}: found {table.ndim} dimensions, expected [items] or [items, models].")
    if len(table) != len(images):
        raise ValueError(f"{name}: found {len(table):,} items but {len(images):,} images. Pass each item's image.")
    # Check before summing: a single NaN would make the image's whole sum NaN, with no trace of its item.
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        raise ValueError(
            f"{name}, item {bad[0][0]}: found {table[tuple(bad[0])]}, expected a finite number. Remove the item from "
            "all models, or score it as wrong."
        )
    table = table[:, None] if table.ndim == 1 else table
    names, index = distinct(images)
    columns = [np.bincount(index, weights=column, minlength=len(names)) for column in table.T]
    sums = np.stack(columns, axis=1) if columns else np.zeros((len(names), 0))
    return names, sums, np.bincount(index, minlength=len(names)).astype(np.float64)


def distinct(images: Images) -> tuple[list[Any], NDArray[np.intp]]:
    """The images' names, sorted, and the index `[n]` of each item's image."""
    array = images if isinstance(images, np.ndarray) else np.asarray(images, dtype=object)
    if array.dtype.kind not in "iu":
        missing = next((row for row, name in enumerate(array.tolist()) if name is None or name != name), None)
        if missing is not None:
            raise ValueError(f"images, item {missing}: found no image id. Every item needs one.")
    if array.dtype.kind in "iu" and len(array) and array.min() >= 0 and array.max() < DENSE * len(array):
        # Counting is quicker than sorting, but needs a cell for every number up to the largest.
        exists = np.bincount(array) > 0
        return np.flatnonzero(exists).tolist(), (np.cumsum(exists) - 1)[array]
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), index


def subset_parts(subsets: Subsets, name: str) -> list[Part]:
    if not subsets:
        raise ValueError("subsets: found none, expected (values, images) of at least one subset.")
    parts = [per_image(values, images, name) for values, images in subsets]
    if len({sums.shape[1] for _, sums, _ in parts}) > 1:
        raise ValueError(f"subsets: found {[part[1].shape[1] for part in parts]} models, expected the same number.")
    return parts


def share_of_subsets(weights: Sequence[float] | None, number: int) -> Numbers:
    """`[K]`, the weight of each subset's mean, with sum 1. Equal by default."""
    share = np.ones(number) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (number,):
        raise ValueError(f"weights: found {share.size}, expected one per subset ({number}).")
    if not (np.isfinite(share) & (share > 0)).all():
        raise ValueError(f"weights: found {share.tolist()}, expected numbers above 0. Remove subsets with weight 0.")
    return share / share.sum()


class Aligned:
    """Subsets over the images of a benchmark, ready for draws.

    Subsets that share no image, such as classes or tasks, are stored by image, one after the other, so cost and memory
    grow with the number of images, whatever the number of subsets. Others need a table of images by subsets.

    Sums are stored minus the subset's mean times the image's number of items. The residuals are the same, but
    multiplying out sums of equal values would otherwise leave a rounding error of half the digits instead of no
    spread.

    Args:
        parts: Return value of `subset_parts`.
        position: Position of each image among the benchmark's.
        share: `[K]`, weight of each subset's mean, sum 1.

    Attributes:
        used: `[I]`, positions of the images that any subset has.
        largest: `[M]`, largest absolute sum of an image.
    """

    def __init__(self, parts: Sequence[Part], position: Mapping[Any, int], share: Numbers) -> None:
        # Every statistic below is a function of sums per image, so a draw is a vector of counts and all draws are one
        # matrix product. No item is ever repeated in memory, however often its image is drawn.
        places = [np.array([position[name] for name in names], dtype=np.intp) for names, _, _ in parts]
        together = np.concatenate(places)
        self._share = share
        self._mean = np.stack([sums.sum(axis=0) / sizes.sum() for _, sums, sizes in parts])  # [K, M]
        self.largest = np.abs(np.concatenate([sums for _, sums, _ in parts])).max(axis=0)
        parts = [
            (names, sums - sizes[:, None] * own, sizes)
            for (names, sums, sizes), own in zip(parts, self._mean, strict=True)
        ]
        parts_with = np.bincount(together)  # [images of the benchmark]
        self._disjoint = parts_with.max(initial=0) <= 1
        if self._disjoint:
            self.used = together
            own = np.concatenate([sums for _, sums, _ in parts])  # [I, M]
            sizes = np.concatenate([sizes for _, _, sizes in parts])[:, None]  # [I, 1]
            # The five sums that a draw's mean and variance need: s, s^2, s n, n and n^2 per image.
            self._columns = np.concatenate([own, own**2, own * sizes, sizes, sizes**2], axis=1)
            self._starts = np.cumsum([0, *map(len, places[:-1])])
            return
        self.used = np.flatnonzero(parts_with)
        self._sums = np.zeros((len(parts), len(self.used), parts[0][1].shape[1]))
        self._sizes = np.zeros((len(parts), len(self.used)))
        for index, (place, (_, part_sums, part_sizes)) in enumerate(zip(places, parts, strict=True)):
            where = np.searchsorted(self.used, place)
            self._sums[index, where], self._sizes[index, where] = part_sums, part_sizes

    def mean_and_spread(self, draws: Counts) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """Weighted mean of K ratios for every draw, and its clustered standard error without small-sample correction.

        With `m_k = S_k / N_k` and weights `c_k`, the residual of image i is `r_i = sum_k c_k (s_ik - m_k n_ik) / N_k`
        and the variance is `sum_i w_i r_i^2`.

        Args:
            draws: `[B, I]`, how often each image in `used` is drawn.

        Returns:
            Means `[B, M]`, spreads `[B, M]`, and `[B]`, whether the draw has items of every subset. Other rows are not
            meaningful.
        """
        if self._disjoint:
            return self._disjoint_spread(draws)
        sums = np.moveaxis(self._sums, 1, 0).reshape(len(self.used), -1)  # [I, K * M]
        products = product(draws, np.concatenate([self._sizes.T, sums], axis=1))
        drawn, own = np.split(products, [len(self._sizes)], axis=1)
        number = np.maximum(drawn, 1)
        ratio = own.reshape(len(draws), *self._mean.shape) / number[:, :, None]  # [B, K, M]
        variance_of = _variance_of_few if len(self._sums) <= FEW else _variance_of_many
        variance = variance_of(draws, self._sums, self._sizes, ratio, self._share / number)
        return self._weighted_mean(ratio), np.sqrt(np.maximum(variance, 0)), (drawn > 0).all(axis=1)

    def _weighted_mean(self, ratio: Numbers) -> Numbers:
        return np.tensordot(ratio + self._mean, self._share, axes=(1, 0))

    def _disjoint_spread(self, draws: Counts) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """`mean_and_spread` with the variance multiplied out: draws are read once, and no `[B, I, M]` is needed."""
        ends = [*self._starts[1:], len(self._columns)]
        parts = [slice(*bounds) for bounds in zip(self._starts, ends, strict=True)]
        products = np.stack([product(draws[:, part], self._columns[part]) for part in parts], axis=1)
        models = self._mean.shape[1]
        sums, squares, mixed, sizes = np.split(products, [models, 2 * models, 3 * models], axis=2)  # each [B, K, M]
        number = np.maximum(sizes[:, :, :1], 1)
        ratio = sums / number
        # sum of (s - m n)^2 = sum s^2 - 2 m sum s n + m^2 sum n^2, with the ratio m of each draw
        squares += ratio * (ratio * sizes[:, :, 1:] - 2 * mixed)
        variance = np.tensordot(squares / number**2, self._share**2, axes=(1, 0))
        return self._weighted_mean(ratio), np.sqrt(np.maximum(variance, 0)), (sizes[:, :, 0] > 0).all(axis=1)


def _variance_of_few(draws: Counts, sums: Numbers, sizes: Numbers, ratio: Numbers, weight: Numbers) -> Numbers:
    """`_variance_of_many`, multiplied out: products of the draws instead of residuals per image and model."""
    # The square of a sum over K subsets has K (K + 1) / 2 products, each a column per image and model. For three
    # subsets this is cheaper than a residual per image and draw; for more it is not.
    variance = np.zeros((len(draws), ratio.shape[2]))
    for first, second in combinations_with_replacement(range(len(sums)), 2):
        (s, n), (t, m) = ((sums[part], sizes[part][:, None]) for part in (first, second))
        columns = np.concatenate([s * t, s * m, n * t, n * m], axis=1)
        ends = [len(t[0]), 2 * len(t[0]), 3 * len(t[0])]
        st, sm, nt, nm = np.split(product(draws, columns), ends, axis=1)
        r, q = ratio[:, first], ratio[:, second]
        factor = (1 if first == second else 2) * weight[:, first] * weight[:, second]
        variance += factor[:, None] * (st - q * sm - r * nt + r * q * nm)
    return variance


def _variance_of_many(draws: Counts, sums: Numbers, sizes: Numbers, ratio: Numbers, weight: Numbers) -> Numbers:
    """`[B, M]` from the residuals, with an item's weight `[B, K]`. Multiplied out, it would cost K * K products."""
    models = ratio.shape[2]
    # A residual is a row times a column: sum_k (w_k s_k - w_k m_k n_k). So each tile of draws is a matrix product,
    # squared in place and summed with the counts, and no array of all draws by all images is held.
    of_sums = [np.concatenate([weight, -weight * ratio[:, :, model]], axis=1) for model in range(models)]  # [B, 2 K]
    both = [np.concatenate([sums[:, :, model], sizes]) for model in range(models)]  # [2 K, I]
    variance = np.zeros((len(draws), models))
    for rows, inside, tile in tiles(draws, 2 * len(sums)):
        for model in range(models):
            residual = of_sums[model][rows] @ both[model][:, inside]
            np.multiply(residual, residual, out=residual)
            variance[rows, model] += np.einsum("bi,bi->b", tile, residual)
    return variance


def tiles(counts: Counts, columns: int) -> Iterator[tuple[slice, slice, Numbers]]:
    """Yields the counts `[B, I]` in tiles that fit into the cache, for a product with a number of columns.

    Yields:
        Rows, images, and their counts as float64, valid until the next tile.
    """
    # Tiles are as wide as the columns allow without OpenBLAS threads, then as high as that and the cache allow.
    number, images = counts.shape
    width = max(1, min(images, WIDEST, max(NARROWEST, MULTIPLICATIONS // (ROWS * max(1, columns)))))
    height = max(1, min(number, CELLS // width, max(ROWS, MULTIPLICATIONS // (width * max(1, columns)))))
    buffer = np.empty(height * width)
    for top in range(0, number, height):
        rows = slice(top, min(top + height, number))
        for left in range(0, images, width):
            inside = slice(left, min(left + width, images))
            shape = rows.stop - rows.start, inside.stop - inside.start
            tile = buffer[: shape[0] * shape[1]].reshape(shape)
            tile[...] = counts[rows, inside]
            yield rows, inside, tile


def product(counts: Counts, columns: Numbers) -> Numbers:
    """`counts @ columns`, added tile by tile; its last digits may differ from those of a single product."""
    result = np.zeros((len(counts), columns.shape[1]))
    # For a product with a vector, BLAS uses threads far earlier than for one with a matrix.
    if columns.shape[1] == 1:
        for rows, inside, tile in tiles(counts, 1):
            result[rows, 0] += np.einsum("bi,i->b", tile, columns[inside, 0])
        return result
    for rows, inside, tile in tiles(counts, columns.shape[1]):
        result[rows] += tile @ columns[inside]
    return result
