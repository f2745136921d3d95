"""Products of counts with columns of numbers, in tiles: counts are bytes in memory and float64 in the cache alone.

A whole block of draws as float64 is a temporary of many megabytes, which the allocator takes from the system and gives
back each time, and a skinny product of it is bound by memory: threads of BLAS then add their own cost and no speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[Any]
"""`[B, I]`: draws of images, or signs, most often of bytes."""
MULTIPLICATIONS = 2**18
"""Of a tile, at which OpenBLAS still multiplies on the calling thread."""
ROWS, NARROWEST, WIDEST = 64, 32, 512
CELLS = 2**16
"""Of a tile: 512 KB as float64."""


def tiles(counts: Counts, columns: int) -> Iterator[tuple[slice, slice, NDArray[np.float64]]]:
    """The counts in tiles that fit the cache.

    Args:
        counts: `[B, I]`.
        columns: that a tile is multiplied with.

    Yields:
        Rows, images, and the counts of both as float64, valid up to the next tile.
    """
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


def product(counts: Counts, columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """`counts @ columns`.

    Args:
        counts: `[B, I]`.
        columns: `[I, C]`.

    Returns:
        `[B, C]`; an image's counts are added tile by tile, so that its last digits may differ from a single product's.
    """
    found = np.zeros((len(counts), columns.shape[1]))
    if columns.shape[1] == 1:  # BLAS would take threads for a product with a vector far earlier
        for rows, inside, tile in tiles(counts, 1):
            found[rows, 0] += np.einsum("bi,i->b", tile, columns[inside, 0])
        return found
    for rows, inside, tile in tiles(counts, columns.shape[1]):
        found[rows] += tile @ columns[inside]
    return found
