"""Sums of items by image, and the weighted mean of subsets' means with its clustered standard error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = Sequence[Any] | NDArray[Any]
Values = NDArray[Any] | Sequence[float]
Subsets = Sequence[tuple[Values, Images]]
"""The values `[n]` or `[n, M]` of each subset and the images `[n]` of its items."""
Part = tuple[list[Any], NDArray[np.float64], NDArray[np.float64]]
"""Of one subset: the names of its I images, their sums `[I, M]` and numbers of items `[I]`."""


def per_image(values: Values, images: Images, name: str) -> Part:
    """Sums and numbers of items of each image of a subset.

    Args:
        values: `[n]` or `[n, M]`.
        images: `[n]`, each item's image.
        name: of the values, in messages.

    Raises:
        ValueError: for a value that is not finite, a missing image id, or unequal lengths.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim not in (1, 2):
        raise ValueError(f"{name}: found {table.ndim} dimensions, expected [items] or [items, models].")
    if len(table) != len(images):
        raise ValueError(f"{name}: found {len(table):,} items but {len(images):,} images. Pass each item's image.")
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
    """The images' names, sorted, and `[n]`, which of them each item has.

    Raises:
        ValueError: for a missing image id.
    """
    array = images if isinstance(images, np.ndarray) else np.asarray(images, dtype=object)
    if array.dtype.kind not in "iu":
        missing = next((row for row, name in enumerate(array.tolist()) if name is None or name != name), None)
        if missing is not None:
            raise ValueError(f"images, item {missing}: found no image id. Every item needs its image.")
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), index


def parts_of(subsets: Subsets, name: str) -> list[Part]:
    """`per_image` of each subset.

    Raises:
        ValueError: as `per_image`, and for no subset or unequal numbers of models.
    """
    if not subsets:
        raise ValueError("subsets: found none, expected (values, images) of at least one.")
    parts = [per_image(values, images, name) for values, images in subsets]
    if len({sums.shape[1] for _, sums, _ in parts}) > 1:
        raise ValueError(f"subsets: found {[part[1].shape[1] for part in parts]} models, expected equal numbers.")
    return parts


def share_of_subsets(weights: Sequence[float] | None, number: int) -> NDArray[np.float64]:
    """`[K]`, what each subset's mean counts, with sum 1; by default all the same.

    Raises:
        ValueError: for another number of weights, or one that is not above 0.
    """
    share = np.ones(number) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != (number,):
        raise ValueError(f"weights: found {share.size}, expected one for each of the {number} subsets.")
    if not (np.isfinite(share) & (share > 0)).all():
        raise ValueError(f"weights: found {share.tolist()}, expected numbers above 0. Remove such a subset.")
    return share / share.sum()


class Aligned:
    """Subsets over the images of a benchmark, ready to be drawn.

    Subsets that share no image, such as classes or tasks, are held by image, one after the other: cost and memory grow
    with the number of images, whatever the number of subsets. Others need a table of images by subsets.

    Sums are held less what a subset's mean gives an image of its size. The residuals are the same; but multiplied out,
    sums of equal values would leave a rounding error of half the digits in place of no spread.

    Args:
        parts: of `parts_of`.
        position: of each image among the benchmark's.
        share: `[K]`, what each subset's mean counts, sum 1.

    Attributes:
        used: `[I]`, the positions of the images that any subset has.
        largest: `[M]`, the largest absolute sum of an image.
    """

    def __init__(self, parts: Sequence[Part], position: Mapping[Any, int], share: NDArray[np.float64]) -> None:
        places = [np.array([position[name] for name in names], dtype=np.intp) for names, _, _ in parts]
        together = np.concatenate(places)
        self._share = share
        self._mean = np.stack([sums.sum(axis=0) / sizes.sum() for _, sums, sizes in parts])  # [K, M]
        self.largest = np.abs(np.concatenate([sums for _, sums, _ in parts])).max(axis=0)
        parts = [
            (names, sums - sizes[:, None] * own, sizes)
            for (names, sums, sizes), own in zip(parts, self._mean, strict=True)
        ]
        self._disjoint = len(np.unique(together)) == len(together)
        if self._disjoint:
            self.used = together
            self._sums = np.concatenate([sums for _, sums, _ in parts])  # [I, M]
            self._sizes = np.concatenate([sizes for _, _, sizes in parts])  # [I]
            self._starts = np.cumsum([0, *map(len, places[:-1])])
            return
        self.used = np.unique(together)
        self._sums = np.zeros((len(parts), len(self.used), parts[0][1].shape[1]))
        self._sizes = np.zeros((len(parts), len(self.used)))
        for index, (place, (_, part_sums, part_sizes)) in enumerate(zip(places, parts, strict=True)):
            where = np.searchsorted(self.used, place)
            self._sums[index, where], self._sizes[index, where] = part_sums, part_sizes

    def mean_and_spread(
        self, draws: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """The weighted mean of K ratios for every draw, and its clustered standard error, not corrected for few.

        With `m_k = S_k / N_k` and weights `c_k`, the residual of image i is `r_i = sum_k c_k (s_ik - m_k n_ik) / N_k`
        and the variance is `sum_i w_i r_i^2`.

        Args:
            draws: `[B, I]`, how often each image in `used` is drawn.

        Returns:
            Means `[B, M]`, spreads `[B, M]`, and `[B]`, whether the draw has items of every subset; other rows are not
            meaningful.
        """
        drawn = self._resample(draws)  # [B, K]
        number = np.maximum(drawn, 1)
        if self._disjoint:
            ratio = self._by_subset(draws, self._sums) / number[:, :, None]  # [B, K, M]
            variance = self._variance_of_disjoint(draws, ratio, self._share / number)
        else:
            ratio = np.tensordot(draws, self._sums, axes=(1, 1)) / number[:, :, None]
            variance = _variance_of_many(draws, self._sums, self._sizes, ratio, self._share / number)
        mean = np.tensordot(ratio + self._mean, self._share, axes=(1, 0))
        return mean, np.sqrt(np.maximum(variance, 0)), (drawn > 0).all(axis=1)

    def _resample(self, draws: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self._disjoint:
            return draws @ self._sizes.T
        return self._by_subset(draws, self._sizes[:, None])[:, :, 0]

    def _by_subset(self, draws: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[B, K, M]` sums of values `[I, M]` times draws over each subset's images."""
        ends = [*self._starts[1:], len(values)]
        return np.stack(
            [draws[:, start:end] @ values[start:end] for start, end in zip(self._starts, ends, strict=True)], axis=1
        )

    def _variance_of_disjoint(
        self, draws: NDArray[np.float64], ratio: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """`[B, M]`, with the weight `[B, K]` of an item; multiplied out, so that no `[B, I, M]` is needed."""
        sizes = self._sizes[:, None]
        squares = self._by_subset(draws, self._sums**2)
        squares -= 2 * ratio * self._by_subset(draws, self._sums * sizes)
        squares += ratio**2 * self._by_subset(draws, sizes**2)
        return np.einsum("bk,bkm->bm", weight**2, squares)


def _variance_of_many(
    draws: NDArray[np.float64],
    sums: NDArray[np.float64],
    sizes: NDArray[np.float64],
    ratio: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """`[B, M]` from the residuals, with an item's weight `[B, K]`; multiplied out, it would cost K * K products."""
    variance = np.zeros((len(draws), ratio.shape[2]))
    for model in range(ratio.shape[2]):
        residual = weight @ sums[:, :, model]
        residual -= (weight * ratio[:, :, model]) @ sizes
        variance[:, model] = np.einsum("bi,bi,bi->b", draws, residual, residual)
    return variance
