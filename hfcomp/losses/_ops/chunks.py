"""Shared code of losses with their own backward pass: chunks, exponentials, and a check for second derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Logits per chunk: few enough for a CPU's last-level cache, enough to keep an accelerator busy
CPU_ELEMENTS = 1 << 22
ACCELERATOR_ELEMENTS = 1 << 25
# Logits per tile for a single CPU thread: few enough for a core's cache, so only the matrix products wait for memory.
# Several threads synchronize at the end of every operation, and on a busy machine each waits there for threads that
# are not running. They therefore get the large chunks, with few operations.
TILE_ELEMENTS = 1 << 19
# Rows per tile: the gradient of the keys is read and written once for this many queries
TILE_ROWS = 1 << 10
# Logits kept for the backward pass on a CPU: 64 MB in float32, up to 4,096 pairs with all texts
CPU_KEPT = 1 << 24


class Tiles(NamedTuple):
    """Tile sizes for traversing a matrix of logits."""

    rows: int  # rows per tile, at least 1
    keys: int  # keys per tile, at least 1
    kept: int  # number of logits kept for the backward pass; the others are recomputed


def choose_tiles(query: Tensor, keys: Tensor) -> Tiles:
    """Chooses the tiles for the logits of query [Q, D] and keys [M, D]."""
    if query.device.type != "cpu":
        # Launching an operation on an accelerator costs more than caching saves.
        return Tiles(chunk_rows(query, len(keys)), max(1, len(keys)), ACCELERATOR_ELEMENTS)
    elements = min(CPU_ELEMENTS, TILE_ELEMENTS) if torch.get_num_threads() == 1 else CPU_ELEMENTS
    rows = max(1, min(len(query), TILE_ROWS))
    return Tiles(rows, max(1, min(len(keys), elements // rows)), CPU_KEPT)


def exp_difference(logits: Tensor, reference: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns exp(logits - reference). A reference of -inf stands for an empty set and gives 0.

    The reference broadcasts to logits. A logit more than 88 above it gives infinity in float32. `out` may be logits.
    """
    limits = torch.finfo(logits.dtype)
    # Clamped because -inf minus -inf would be NaN
    power = torch.sub(logits, reference.clamp(min=limits.min), out=out).mul_(math.log2(math.e))
    # Powers below 2^-100 in float32 (2^-996 in float64) become 0. They are negligible next to a sum of 1, and a number
    # that small, or its product with a weight of 1 / N, is subnormal, which takes a processor many times as long. The
    # base is 2 because PyTorch's CPU exponential with base e is slow if its result is 0.
    F.threshold(power, math.log2(limits.tiny) + 26, -math.inf, inplace=True)
    return power.exp2_()


def chunk_rows(query: Tensor, row_elements: int) -> int:
    """Returns how many rows of query to process at a time, at least 1, if a row takes `row_elements` elements."""
    elements = CPU_ELEMENTS if query.device.type == "cpu" else ACCELERATOR_ELEMENTS
    return max(1, min(len(query), elements // max(1, row_elements)))


def parts(rows: int, chunk: int) -> Iterator[slice]:
    """Yields the slices that split `rows` rows into chunks; the last one may be shorter."""
    for start in range(0, rows, chunk):
        yield slice(start, min(start + chunk, rows))


class ChunkSums:
    """Sums of scalars over chunks, with one tensor per scalar."""

    # With a separate tensor per number, these tensors would lie between the freed matrices of two chunks, and no later
    # matrix would fit into the gaps, so memory would grow with the square of the rows.
    def __init__(self, chunks: int) -> None:
        self._chunks, self._place = chunks, 0
        self._values: list[Tensor] = []

    def add(self, *numbers: Tensor) -> None:
        """Adds a chunk's numbers, [] each."""
        self._values = self._values or [x.new_empty(self._chunks) for x in numbers]
        for values, number in zip(self._values, numbers, strict=True):
            values[self._place] = number.detach()
        self._place += 1

    def totals(self) -> tuple[Tensor, ...]:
        return tuple(values.sum() for values in self._values)


def check_first_derivative() -> None:
    """Raises RuntimeError in a backward pass with create_graph=True, which is to be differentiated again."""
    # torch's `once_differentiable` raises only if the incoming gradient requires a gradient and the second pass
    # reaches it; otherwise the second derivative would silently be 0.
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True in the backward pass, but this loss supports only first derivatives. Compute gradient "
            "penalties without it."
        )
