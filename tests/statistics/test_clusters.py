"""Products in tiles are the products."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.statistics.clusters import CELLS, WIDEST, product, tiles


@pytest.mark.parametrize("columns", [0, 1, 2, 11, 300])
@pytest.mark.parametrize("shape", [(1, 7), (300, WIDEST + 9), (2000, 3), (5, 0)])
def test_a_product_in_tiles_is_the_product(shape, columns):
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 4, size=shape, dtype=np.uint8)
    # whole numbers: float64 adds them without rounding, in any order
    values = generator.integers(-9, 9, size=(shape[1], columns)).astype(np.float64)
    assert np.array_equal(product(counts, values), counts.astype(np.float64) @ values)


def test_tiles_cover_every_count_once_and_fit_the_cache():
    counts = np.arange(300 * 1300).reshape(300, 1300)
    seen, cells = np.zeros(counts.shape, dtype=int), []
    for rows, inside, tile in tiles(counts, 5):
        assert np.array_equal(tile, counts[rows, inside])
        seen[rows, inside] += 1
        cells.append(tile.size)
    assert (seen == 1).all() and max(cells) <= CELLS
