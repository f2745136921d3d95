"""How a large logit matrix is cut into chunks of rows."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

# Logits of one chunk: few enough for a CPU's last-level cache, enough to keep an accelerator busy.
CPU_ELEMENTS = 1 << 22
ACCELERATOR_ELEMENTS = 1 << 25


def chunk_rows(query: Tensor, row_elements: int) -> int:
    """Return how many rows of query to visit at a time, at least 1, if one takes `row_elements` elements of memory."""
    elements = CPU_ELEMENTS if query.device.type == "cpu" else ACCELERATOR_ELEMENTS
    return max(1, min(len(query), elements // max(1, row_elements)))


def parts(rows: int, chunk: int) -> Iterator[slice]:
    """Yield the slices that cut `rows` rows into chunks; the last may be shorter."""
    for start in range(0, rows, chunk):
        yield slice(start, min(start + chunk, rows))
