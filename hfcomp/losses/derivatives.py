"""The gradient of a loss that writes its own backward pass has no gradient of its own."""

from __future__ import annotations

import torch


def check_first_derivative() -> None:
    """Raise inside a backward pass that is recorded, to be differentiated again.

    torch's `once_differentiable` raises only if the incoming gradient needs one and the second pass comes by it; else
    the second derivative is 0 in silence.

    Raises:
        RuntimeError: if the backward pass runs with create_graph=True.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "create_graph=True in the backward pass of a loss that has a first derivative only, expected False. "
            "Take a gradient penalty from another term, or without this loss."
        )
