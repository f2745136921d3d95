"""Which texts of a batch give way to an image's own hard negatives: the same draw on every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback


def draw_slots(size: int, number: int, *, seed: Sequence[int]) -> torch.Tensor:
    """Samples for each row of a batch the columns of its negatives, for `replaced_negative_loss`.

    Rows are sampled independently: a row's columns are distinct, never its own, and all ordered choices of such
    columns are
    equally likely, so rows with masked negatives are sampled uniformly too.

    Args:
        size: rows of the global batch, N.
        number: negatives of a row, K. Of more than N - 1 the first N - 1 find a column.
        seed: non-negative integers; equal ones give equal slots on every machine.

    Returns:
        `[N, K]` long, columns from 0 to N - 1, -1 where none was left.
    """
    generator = np.random.default_rng(list(seed))
    slots = np.full((size, number), -1)
    taken = np.arange(size)[:, None]
    for place in range(min(number, size - 1)):
        # the place of the new column among the free ones; each taken column at or before it moves it on by one
        column = generator.integers(size - 1 - place, size=size)
        for other in np.sort(taken, axis=1).T:
            column += column >= other
        slots[:, place] = column
        taken = np.column_stack([taken, column])
    return torch.from_numpy(slots)


def to_device(slots: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copies slots to a device; from page-locked memory, so that a GPU's queue of work is not waited for."""
    return slots.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else slots.to(device)


class BatchInStep(TrainerCallback):
    """Counts the batches of an optimiser's step under gradient accumulation.

    Attributes:
        number: 0 for the first batch of a step; the same in a resumed run, as checkpoints are between steps.
    """

    def __init__(self) -> None:
        self.number = 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resets."""
        self.number = 0

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Goes on to the next batch of the step."""
        self.number += 1
