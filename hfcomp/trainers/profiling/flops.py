"""Floating-point operations of a step, and what a device can do at most."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

PEAK_FLOPS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "B200": 2250e12,
    "A100": 312e12,
    "L40S": 362e12,
    "MI300X": 1300e12,
    "MI325X": 1300e12,
    "MI250X": 191.5e12,
}
"""FLOP/s of bf16 and fp16 matrix products without sparsity, by a part of the device's name, the first that fits.

Source:
    the vendors' data sheets, as `get_peak_flops` of pytorch/torchtitan (torchtitan/tools/utils.py) has them; MI250X is
    of one of its two dies.
"""


def peak_flops(device_name: str) -> float | None:
    """What a device can do at most in half precision, FLOP/s; `None` for one that is not in `PEAK_FLOPS`.

    Args:
        device_name: as `torch.cuda.get_device_name` gives it.
    """
    return next((peak for name, peak in PEAK_FLOPS.items() if name in device_name), None)


def flop_counter() -> FlopCounterMode:
    """Torch's counter, which also counts the fused attention of CPUs; 2 for a multiply-add.

    Causal attention counts as full attention, as in torch's own formulas. Products alone are counted, and
    convolutions: norms, activations and the optimiser are memory traffic.
    """
    return FlopCounterMode(display=False, custom_mapping=_of_cpus())


def _of_cpus() -> dict[Any, Any]:
    aten = torch.ops.aten

    def forward(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_flop_count(query, key, value)

    def backward(gradient: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return sdpa_backward_flop_count(gradient, query, key, value)

    return {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


def model_flops(flops: dict[str, int], *, recomputes: bool) -> int:
    """Of the operations of a step's phases those that the model needs: recomputed activations do not count.

    Args:
        flops: by phase.
        recomputes: whether the backward pass computes the activations of `encode` again.
    """
    return sum(flops.values()) - (flops["encode"] if recomputes else 0)
