"""Metrics of batches with nothing to measure."""

from __future__ import annotations

import torch
from torch import Tensor


def nan_without(items: Tensor, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns metrics, all NaN if there is no item to measure: such a metric is missing, not 0.

    Args:
        items: Bool of any shape for the global batch, so a metric is missing on all processes or on none.
        metrics: Scalars.
    """
    exists = items.any()
    return {name: torch.where(exists, value, torch.nan) for name, value in metrics.items()}
