"""Metrics of batches with nothing to measure."""

from __future__ import annotations

import torch
from torch import Tensor


def nan_without(items: Tensor, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return metrics, all NaN if there is no item to measure: such a metric is absent, not 0.

    Args:
        items: bool of any shape, of the global batch, so that a metric is absent on all processes or on none.
        metrics: scalars.
    """
    there = items.any()
    return {name: torch.where(there, value, torch.nan) for name, value in metrics.items()}
