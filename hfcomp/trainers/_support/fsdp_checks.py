"""Rejects settings that FSDP does not support before any work is done, naming each with its reason."""

from __future__ import annotations

import os
from typing import Any

import torch
import transformers
from accelerate.utils import DistributedType
from packaging.version import Version
from torch import nn

LOWEST = {"torch": "2.7", "transformers": "5.6"}
"""Versions that shard: before, scalars would be split too, or a resumed run and the best model would differ."""
ENVIRONMENT = "ACCELERATE_USE_FSDP"  # set by `accelerate launch`


def uses_fsdp(args: Any) -> bool:
    """Whether a run shards its weights, because of its own setting or that of `accelerate launch`."""
    return bool(args.fsdp) or os.environ.get(ENVIRONMENT, "false").lower() == "true"


def check_loading(args: Any) -> None:
    """Checks versions, and that every process will load the model's weights, before it is loaded."""
    for package in (torch, transformers) if uses_fsdp(args) else ():
        if Version(package.__version__) < Version(LOWEST[package.__name__]):
            raise ValueError(
                f"fsdp: found {package.__name__} {package.__version__}, expected {LOWEST[package.__name__]} or newer. "
                "Install it, or remove fsdp."
            )
    settings = args.fsdp_config if isinstance(args.fsdp_config, dict) else {}
    # With this setting, transformers reads the file on one process per machine, and leaves the weights of the others
    # empty until they are sharded.
    setting = str(settings.get("cpu_ram_efficient_loading", os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", False)))
    if uses_fsdp(args) and setting.lower() in ("true", "1", "yes", "on"):
        raise ValueError(
            "fsdp_cpu_ram_efficient_loading is not supported, because every process reads the model's file and checks "
            "its keys and shapes. Set it to false; each process then needs host memory for the whole model."
        )


def check_launcher(args: Any, accelerator: Any) -> None:
    """Checks how the processes were started."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        raise ValueError(
            "DeepSpeed is not supported: its checkpoints would be sharded. Start with `accelerate launch "
            "--config_file recipes/accelerate/fsdp.yaml`, or without sharding."
        )
    kinds = (DistributedType.FSDP, DistributedType.MULTI_CPU)
    if uses_fsdp(args) and accelerator.num_processes > 1 and accelerator.distributed_type not in kinds:
        raise ValueError(
            f"accelerate does not shard weights over processes of type {accelerator.distributed_type.value}. Remove "
            "FSDP."
        )


def check_plugin(plugin: Any) -> None:
    """Checks accelerate's FSDP settings."""
    reasons = {
        "fsdp_version=1": plugin.fsdp_version != 2 and "FSDP1 is deprecated. Set fsdp_version to 2",
        "fsdp_offload_params": "CPU" in type(plugin.cpu_offload).__name__
        and "scalars stay on the device, but gradients are clipped over both places. Set it to false",
        "fsdp_activation_checkpointing": plugin.activation_checkpointing
        and "it renames the weights. Set it to false, and gradient_checkpointing to true",
        "fsdp_auto_wrap_policy=SIZE_BASED_WRAP": "size_based" in _policy_name(plugin.auto_wrap_policy)
        and "it would split modules whose weights other modules read. Set TRANSFORMER_BASED_WRAP",
        "fsdp_ignored_modules": isinstance(plugin.ignored_modules, str)
        and "only scalars and the objective's state stay whole. Remove it",
    }
    _raise_first(reasons)


def check_run(args: Any, accelerator: Any) -> None:
    """Checks the run's other settings for use with FSDP."""
    precision = accelerator.mixed_precision
    reasons = {
        f"mixed precision {precision}": precision not in ("no", "bf16")
        and "the gradient scaler cannot scale sharded and whole gradients together. Use bf16",
        "auto_find_batch_size": args.auto_find_batch_size
        and "sharded weights cannot be joined for another attempt. Set mini_batch_size",
        "torch_compile": args.torch_compile and "it is not tested with FSDP. Remove it",
        "parallelism_config": getattr(accelerator, "parallelism_config", None) is not None
        and "weights are split over all processes. Remove it",
        "full evaluation in half precision": (args.bf16_full_eval or args.fp16_full_eval)
        and "the sharded weights would be cast. Remove it",
        "use_cpu on a machine with a GPU": accelerator.device.type == "cpu"
        and torch.accelerator.is_available()
        and "torch shards on the GPU. Hide the GPU with CUDA_VISIBLE_DEVICES=''",
    }
    _raise_first(reasons)


def shard_unit_names(model: nn.Module) -> list[str]:
    """Names of the classes whose modules are sharded as a unit: those that transformers keeps whole, and layers."""
    # Some families name none of their layers or only those of one tower (FLAVA, GroupViT, ALIGN, BLIP).
    modules = list(model.modules())
    layers = {type(layer) for module in modules if isinstance(module, nn.ModuleList) for layer in module}
    present = {type(module).__name__ for module in modules} & set(model.plain._no_split_modules or [])
    return sorted(present | {layer.__name__ for layer in layers if not layer.__module__.startswith("torch.")})


def _raise_first(reasons: dict[str, Any]) -> None:
    for name, reason in reasons.items():
        if reason:
            raise ValueError(f"{name} is not supported with FSDP: {reason}.")


def _policy_name(policy: Any) -> str:
    return getattr(getattr(policy, "func", policy), "__name__", "")
