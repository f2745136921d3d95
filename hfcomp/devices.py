"""The default device of models: an accelerator of any maker, if PyTorch finds one."""

from __future__ import annotations

import os
import platform

import torch


def default_device(number: int | None = None) -> str:
    """Returns the default device: an accelerator (NVIDIA, AMD, Apple, Intel) if available, otherwise the CPU.

    Args:
        number: Number of a worker, which gets the accelerator with this number, modulo how many there are. By default
            the process's number on its machine, because a launcher gives each process an accelerator of its own.
    """
    if not torch.accelerator.is_available():
        return "cpu"
    kind = torch.accelerator.current_accelerator().type
    if kind == "mps":  # there is only one, and it has no number
        return kind
    number = int(os.environ.get("LOCAL_RANK", "0")) if number is None else number
    return f"{kind}:{number % torch.accelerator.device_count()}"


def device_name() -> str:
    """Returns the name of the hardware that numbers depend on: the GPU, or else the accelerator's kind or the CPU."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator().type
    return platform.processor() or platform.machine()
