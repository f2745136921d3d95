"""Adds LoRA weights to the weights that they change, for checkpoints that TSVLC's code wrote (also DAC and FSC-CLIP).

These files have the base model's weights and, next to them, LoRA that is never merged: a layer merges only in its own
`eval`, which `Module.eval` of the model does not call. The authors load them into layers that add LoRA at every call
(`loralib/layers.py` in TSVLC 90b18e7 and DAC ca23611, `lora_layers.py` in FSC-CLIP 604015d).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

# Only this code's attention has LoRA for query, key and value in one tensor. Other LoRA may have another scale.
MARK = "attn.in_proj_weight_lora_A"
ALPHA = 1  # a default that no training command changes


def merge_lora(tensors: Mapping[str, torch.Tensor]) -> tuple[Mapping[str, torch.Tensor], int]:
    """Returns the tensors of a checkpoint with W + alpha / rank * B A in place of W, and the rank.

    Without LoRA in this layout, the rank is 0. LoRA tensors that do not fit any weight stay.
    """
    merged, rank = dict(tensors), 0
    if not any(name.endswith(MARK) for name in tensors):
        return tensors, rank
    for first in [name for name in tensors if name.endswith("lora_A")]:
        stem = first.removesuffix("lora_A")
        changed, second = stem[:-1] if stem.endswith("_") else f"{stem}weight", f"{stem}lora_B"
        if not {changed, second} <= set(tensors):
            continue
        weight, down, up = tensors[changed], tensors[first], tensors[second]
        kernel = max(1, weight.shape[-1]) if weight.ndim == 4 else 1  # a convolution has each size times the kernel's
        if down.ndim != 2 or up.shape[1:] != down.shape[:1] or len(down) < kernel:
            continue
        if [*weight.shape] != [len(up) / kernel, down.shape[1] / kernel, *[kernel] * (weight.ndim - 2)]:
            continue
        rank = len(down) // kernel
        change = (up.double() @ down.double()).view(weight.shape) * (ALPHA / rank)
        merged[changed] = (weight.double() + change).to(down.dtype)
        del merged[first], merged[second]
    return merged, rank
