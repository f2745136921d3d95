"""What FSDP is refused with, by name and with the reason, before any work is done."""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import nn

ENVIRONMENT = "ACCELERATE_USE_FSDP"  # set by `accelerate launch`


def is_asked_for(args: Any) -> bool:
    """Whether a run is to shard its weights: by its own setting or by that of `accelerate launch`."""
    return bool(args.fsdp) or os.environ.get(ENVIRONMENT, "false").lower() == "true"


def check_loading(args: Any) -> None:
    """Checks, before a model is loaded, that every process will load its weights."""
    settings = args.fsdp_config if isinstance(args.fsdp_config, dict) else {}
    # With this setting transformers reads the file on one process of each machine, and leaves the weights of the
    # others empty until they are sharded.
    asked = str(settings.get("cpu_ram_efficient_loading", os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", False)))
    if is_asked_for(args) and asked.lower() in ("true", "1", "yes", "on"):
        raise ValueError(
            "fsdp_cpu_ram_efficient_loading is not supported: every process reads the model's file, whose keys and "
            "shapes are checked. Set it to false; each process then needs memory for the whole model on the host."
        )


def check_launcher(args: Any, accelerator: Any) -> None:
    """Checks how processes were started."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise ValueError(
            "DeepSpeed is not supported: checkpoints would hold shards. Start with `accelerate launch --config_file "
            "recipes/accelerate/fsdp.yaml`, or without sharding."
        )
    kinds = (DistributedType.FSDP, DistributedType.MULTI_CPU)
    if is_asked_for(args) and accelerator.num_processes > 1 and accelerator.distributed_type not in kinds:
        raise ValueError(
            f"accelerate does not shard weights over processes of the kind {accelerator.distributed_type.value}. "
            "Leave FSDP out."
        )


def check_plugin(plugin: Any) -> None:
    """Checks accelerate's settings of FSDP."""
    reasons = {
        "fsdp_version=1": plugin.fsdp_version != 2 and "FSDP1 is deprecated. Set fsdp_version to 2",
        "fsdp_offload_params": "CPU" in type(plugin.cpu_offload).__name__
        and "scalars stay on the device, and gradients are clipped over both. Set it to false",
        "fsdp_activation_checkpointing": plugin.activation_checkpointing
        and "it renames the weights. Set it to false, and gradient_checkpointing to true",
        "fsdp_auto_wrap_policy=SIZE_BASED_WRAP": "size_based" in _name_of(plugin.auto_wrap_policy)
        and "it would split modules whose weights are read by others. Set TRANSFORMER_BASED_WRAP",
        "fsdp_ignored_modules": isinstance(plugin.ignored_modules, str)
        and "scalars and the objective's state are what stays whole. Leave it out",
    }
    _refuse(reasons)


def check_run(args: Any, accelerator: Any) -> None:
    """Checks the run's own settings beside FSDP."""
    precision = accelerator.mixed_precision
    reasons = {
        f"mixed precision {precision}": precision not in ("no", "bf16")
        and "the scaler of gradients cannot scale sharded and whole ones together. Use bf16",
        "auto_find_batch_size": args.auto_find_batch_size
        and "sharded weights cannot be joined for another trial. Set mini_batch_size",
        "torch_compile": args.torch_compile and "it is not tested with it. Leave it out",
        "parallelism_config": getattr(accelerator, "parallelism_config", None) is not None
        and "weights are split over all processes. Leave it out",
        "full evaluation in half precision": (args.bf16_full_eval or args.fp16_full_eval)
        and "the sharded weights would be cast. Leave it out",
        "use_cpu on a machine with a GPU": accelerator.device.type == "cpu"
        and torch.accelerator.is_available()
        and "torch shards on the GPU. Hide it: CUDA_VISIBLE_DEVICES=''",
    }
    _refuse(reasons)


def units_of(model: nn.Module) -> list[str]:
    """Names of the classes whose modules are sharded one by one: those that the model must not be split within."""
    there = {type(module).__name__ for module in model.modules()}
    return sorted(there & set(model.plain._no_split_modules or []))


def _refuse(reasons: dict[str, Any]) -> None:
    for name, reason in reasons.items():
        if reason:
            raise ValueError(f"{name} is not supported with FSDP: {reason}.")


def _name_of(policy: Any) -> str:
    return getattr(getattr(policy, "func", policy), "__name__", "")
