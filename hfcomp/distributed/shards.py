"""Weights that FSDP2 shards over processes: parts of tensors, whole tensors, and weights that are not sharded.

Each process holds some rows of a split tensor. FSDP2 does not split scalars, so [`average_gradients`] averages the
gradients of weights that stay whole on every process, as FSDP2 averages those of the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, distribute_tensor

from hfcomp.distributed import rank, world_size


def is_sharded(module: nn.Module) -> bool:
    return isinstance(module, FSDPModule)


def reshard(module: nn.Module) -> None:
    """Frees the whole weights that a forward pass without a backward pass leaves on every process."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def half_precision(dtype: torch.dtype) -> Any:
    """Returns an FSDP2 policy that computes in `dtype`. Weights, gradient sums, inputs and outputs keep theirs."""
    # Gradient sums stay fp32: rounded to half precision on each process, they would depend on the number of
    # processes.
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)


def is_split(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, DTensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a split tensor that this process holds, sharing memory. Returns other tensors unchanged."""
    return tensor.to_local() if is_split(tensor) else tensor  # type: ignore[attr-defined]


def local_start(tensor: torch.Tensor) -> int:
    """Returns the position in the flattened whole tensor at which [`local_part`] begins."""
    if not is_split(tensor) or not tensor.numel():
        return 0
    # FSDP2 splits rows like `torch.chunk`: every process gets ceil(rows / processes), the last ones fewer or none.
    rows = len(tensor)
    return min(rank() * -(-rows // world_size()), rows) * (tensor.numel() // rows)


def split_like(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Splits a whole tensor like `like`, without communication. Returns it unchanged if `like` is not split."""
    if not is_split(like):
        return whole.to(like.device)
    # src_data_rank=None: every process already holds the whole tensor and cuts out its part, so nothing is sent.
    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(whole.to(like.device), mesh, placements, src_data_rank=None)


def gather_whole(part: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """Returns a split tensor as a whole on every process. `like` is the split tensor to which a local part belongs.

    All processes must call this together if the tensor is split. Otherwise, it is returned unchanged.
    """
    if like is not None and is_split(like) and not is_split(part):
        mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
        part = DTensor.from_local(part, mesh, placements, run_check=False, shape=like.shape, stride=like.stride())
    return part.full_tensor() if is_split(part) else part  # type: ignore[attr-defined]


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Averages the gradients of parameters that every process holds whole, with one collective per type."""
    # Use one flat tensor per device and type, because scalars and margins are many and tiny, and a collective for each
    # would add its latency.
    groups: dict[Any, list[torch.Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            groups.setdefault((parameter.grad.device, parameter.grad.dtype), []).append(parameter.grad)
    for gradients in groups.values():
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= world_size()
        for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))


def copy_from_main(tensors: Iterable[torch.Tensor], device: torch.device) -> None:
    """Overwrites tensors with those of the main process, one at a time through the memory of `device`."""
    for tensor in tensors:
        # All tensors on the device at once would need memory for a second copy of the model.
        source = tensor.detach().to(device).contiguous()
        dist.broadcast(source, src=0)
        tensor.data.copy_(source)
