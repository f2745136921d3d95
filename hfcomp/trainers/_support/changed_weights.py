"""How much of a model training has moved: a learning rate may be too small to change a weight in fp32 at all."""

from __future__ import annotations

import torch
from torch import nn
from transformers.utils import logging

from hfcomp.distributed import sum_over_processes
from hfcomp.distributed.shards import is_sharded, own_part, own_start

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
        model: its parameters with `requires_grad` are followed, from their values now; they may be sharded later. A
            run that is resumed is compared with the model that it was given, the one that it began with.
    """

    def __init__(self, model: nn.Module) -> None:
        # not the parameters themselves: those that are sharded later are others
        self._model = model
        self._start = {
            name: _entries(weight).clone()
            for name, weight in model.named_parameters()
            if weight.requires_grad and weight.numel()
        }

    def value(self) -> float:
        """The share now; 0 when nothing is trained. It waits for the device once.

        A collective where the model is sharded.
        """
        if not self._start:
            return 0.0
        weights = dict(self._model.named_parameters())
        counts, compared = [], []
        for name, start in self._start.items():
            now = _entries(weights[name])
            self._start[name] = start = start.to(now.device)
            first = _first_entry(weights[name])
            # not in float64, which Apple's GPUs lack
            counts.append((now != start[first : first + len(now)]).float().sum())
            compared.append(len(now))
        found = torch.stack(counts)
        found = torch.stack([found, found.new_tensor(compared)])
        shares = torch.div(*(sum_over_processes(found) if is_sharded(self._model) else found)).tolist()
        sizes = [weights[name].numel() for name in self._start]
        return sum(share * size for share, size in zip(shares, sizes, strict=True)) / sum(sizes)

    def warn(self, share: float, learning_rate: float) -> None:
        """Warns of a run that has moved hardly any weight."""
        if self._start and share < HARDLY_ANY:
            logger.warning(
                f"Training has changed {share:.2%} of the trained weights: the model is almost unchanged. An fp32 "
                "weight near 0.02 changes only by steps above 1e-9, one near 1 by steps above 3e-8. "
                f"Raise learning_rate (it is {learning_rate:g}), or train longer."
            )


def _stride(parameter: torch.Tensor) -> int:
    return -(-parameter.numel() // ENTRIES)


def _first_entry(parameter: torch.Tensor) -> int:
    """The number of the first entry that is in this process's part."""
    return -(-own_start(parameter) // _stride(parameter))


def _entries(parameter: torch.Tensor) -> torch.Tensor:
    """Those of this process's part, at the places that they have in the whole."""
    flat, stride = own_part(parameter.detach()).flatten(), _stride(parameter)
    return flat[_first_entry(parameter) * stride - own_start(parameter) :: stride]
