"""How much of a model training has moved: a learning rate may be too small to change a weight in fp32 at all."""

from __future__ import annotations

import torch
from torch import nn
from transformers.utils import logging

logger = logging.get_logger(__name__)

# Entries of one parameter that are compared.
ENTRIES = 4096
# A run that ends with less than this has hardly trained.
HARDLY_ANY = 0.01


class ChangedWeights:
    """The share of the trained weights that changed since the start, 0 to 1.

    For each parameter at most `ENTRIES` evenly spaced entries are compared as a sample: in ViT-B/32 with
    398 parameters that is a copy of 3 MB and one comparison a line of the log, no matter how large the model is.

    Args:
        model: its parameters with `requires_grad` are followed, from their values now. A run that is resumed is
            compared with the model that it was given, the one that it began with.
    """

    def __init__(self, model: nn.Module) -> None:
        self._trained = [weight for weight in model.parameters() if weight.requires_grad and weight.numel()]
        self._start = [_entries(parameter).clone() for parameter in self._trained]

    def value(self) -> float:
        """The share now; 0 when nothing is trained. It waits for the device once."""
        if not self._trained:
            return 0.0
        shares = []
        for index, parameter in enumerate(self._trained):
            now = _entries(parameter)
            self._start[index] = self._start[index].to(now.device)
            # not in float64, which Apple's GPUs lack
            shares.append((now != self._start[index]).float().mean())
        sizes = [parameter.numel() for parameter in self._trained]
        moved = zip(torch.stack(shares).tolist(), sizes, strict=True)
        return sum(share * size for share, size in moved) / sum(sizes)

    def warn(self, share: float, learning_rate: float) -> None:
        """Warns of a run that has moved hardly any weight."""
        if self._trained and share < HARDLY_ANY:
            logger.warning(
                f"Training has changed {share:.2%} of the trained weights: the model is almost unchanged. An fp32 "
                "weight near 0.02 changes only by steps above 1e-9, one near 1 by steps above 3e-8. "
                f"Raise learning_rate (it is {learning_rate:g}), or train longer."
            )


def _entries(parameter: torch.Tensor) -> torch.Tensor:
    flat = parameter.detach().flatten()
    return flat[:: -(-len(flat) // ENTRIES)]
