"""What losses with a backward pass of their own share: chunks of rows, and the check of a second derivative."""

from __future__ import annotations

from collections.abc import Iterator

import torch
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


def check_first_derivative() -> None:
    """Raise inside a backward pass that is recorded, to be differentiated again.

    torch's `once_differentiable` raises only if the incoming gradient needs one and the second pass comes by it; else
    the second derivative is 0 silently.

    Raises:
        RuntimeError: if the backward pass runs with create_graph=True.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True in the backward pass of a loss with a first derivative only, expected False. Compute "
            "gradient penalties without this loss."
        )
