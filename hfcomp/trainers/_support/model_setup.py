"""Sets up a trainer's model: checks, a new adapter, attention and compilation."""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments
from transformers.utils import is_flash_attn_2_available, logging

from hfcomp.distributed import check_world_size
from hfcomp.modeling import DualEncoder, tower_parts
from hfcomp.modeling.adapters import KINDS, add_adapter, check_adapter, lora_config
from hfcomp.modeling.checkpoints import is_peft
from hfcomp.trainers._support.transformers_internals import compile_nothing

logger = logging.get_logger(__name__)


def check_processes(args: TrainingArguments) -> None:
    """Raises for several GPUs in one process, and for processes that accelerate counts as one."""
    check_world_size(args.world_size)
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs are visible to one process. transformers would use nn.DataParallel, so each GPU would "
            f"contrast only its own part of the batch. Start with: accelerate launch --num_processes {args.n_gpu} "
            "<your script>, or hide all but one with CUDA_VISIBLE_DEVICES=0."
        )


def check_trainable(backbone: nn.Module) -> None:
    """Checks a model passed by the user for half-precision weights and weights that are already frozen."""
    check_adapter(backbone)
    halves = {p.dtype for p in backbone.parameters() if p.requires_grad and p.dtype in (torch.float16, torch.bfloat16)}
    if torch.float16 in halves:
        raise ValueError(
            "the model's weights are float16, whose gradients underflow. Pass model.float() and fp16=True."
        )
    if halves:
        logger.warning(
            "The model's weights are bfloat16, so small updates round to zero. Use model.float() with bf16=True."
        )
    frozen = [name for name, parameter in backbone.named_parameters() if not parameter.requires_grad]
    if frozen and not is_peft(backbone):
        logger.warning(f"{len(frozen)} weights were already frozen and stay frozen: {list_first(frozen)}")


def list_first(names: list[str], most: int = 3) -> str:
    """Lists the first few names and the number of the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def align_special_tokens(config: Any, tokenizer: Any) -> None:
    # `config` is the Trainer's copy. The Trainer would set these ids itself and warn of a change that is never saved.
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        setattr(config.get_text_config(), name, getattr(tokenizer, name))


ATTENTION = ("sdpa", "eager", "flash_attention_2")
COMPILED_MULTIPLE = 8
"""Texts of compiled towers are padded to a multiple of this, for few lengths and products that suit tensor cores."""


def set_attention(backbone: nn.Module, implementation: str | None) -> None:
    """Sets the attention of both towers. `None` keeps the model's: `sdpa`, unless its author chose another."""
    if implementation is not None:
        (backbone.get_base_model() if is_peft(backbone) else backbone).set_attn_implementation(implementation)


def check_attention(attention: str | None, *, half: bool) -> None:
    """Raises for an `attn_implementation` that is unknown, not installed, or needs half precision."""
    if attention is not None and attention not in ATTENTION:
        raise ValueError(f"attn_implementation: found {attention!r}, expected one of {', '.join(ATTENTION)}.")
    if attention == "flash_attention_2":
        if not is_flash_attn_2_available():
            raise ValueError(
                "attn_implementation='flash_attention_2' needs an NVIDIA GPU and pip install flash-attn. Use 'sdpa' "
                "instead, torch's version of the same algorithm."
            )
        if not half:
            raise ValueError("attn_implementation='flash_attention_2' computes in half precision: set bf16=True.")


def text_multiple(args: Any) -> int:
    """Returns the multiple to pad text lengths to: the user's setting, otherwise 8 for compiled towers, else 1."""
    if args.pad_to_multiple_of is not None:
        return args.pad_to_multiple_of
    return COMPILED_MULTIPLE if args.torch_compile else 1


def compile_towers(trainer: Any) -> None:
    """Compiles the towers of a trainer's model in place, if its config has `torch_compile`."""
    # transformers would compile the whole model, whose forward collects a batch's features. That breaks the graph and
    # renames weights to `_orig_mod`. A tower is a single graph, which is recompiled when a size changes for the first
    # time and then fits any size; its weights keep their names. isolate_recompiles is set because the models of an
    # experiment share a process, and with it torch's recompilation limit.
    args, model = trainer.args, trainer.model
    if not args.torch_compile:
        return
    compile_nothing(trainer.accelerator)
    settings = {"backend": args.torch_compile_backend, "mode": args.torch_compile_mode, "fullgraph": True}
    if "isolate_recompiles" in signature(torch.compile).parameters:  # not in every release
        settings["isolate_recompiles"] = True
    for tower in _towers(model):
        tower.compile(**settings)


def _towers(model: DualEncoder) -> list[nn.Module]:
    return [getattr(model.plain, tower_parts(model.plain, kind)[0]) for kind in ("image", "text")]


# Features of each tower
FEATURES = {
    "image": {"image_embeds", "negative_image_embeds", "tokens"},
    "text": {"text_embeds", "negative_text_embeds", "concept_embeds"},
}
# Defaults of the fields that have no effect without `peft`
DEFAULTS = {"lora_rank": 16, "lora_alpha": None, "lora_dropout": 0.0, "lora_targets": None}


def check_adapter_fields(args: Any) -> None:
    """Raises for an unknown kind of adapter, and for adapter fields without an adapter."""
    if args.peft not in (None, *KINDS):
        raise ValueError(f"peft: found {args.peft!r}, expected one of {', '.join(KINDS)}, or remove it.")
    changed = [name for name, default in DEFAULTS.items() if getattr(args, name) != default]
    if changed and args.peft is None:
        raise ValueError(f"{', '.join(changed)}: no adapter is trained. Set peft=lora or peft=dora, or remove it.")


def with_adapter(backbone: nn.Module, args: Any, peft_config: Any, required_features: Collection[str]) -> nn.Module:
    """Adds the adapter of `args.peft` or `peft_config` to the model. Returns it unchanged if neither is set."""
    if args.peft is None and peft_config is None:
        return backbone
    if args.peft is not None and peft_config is not None:
        raise ValueError(f"peft={args.peft!r} and peft_config both define an adapter. Remove one of them.")
    if is_peft(backbone):
        raise ValueError(
            "the model is already an adapter. Remove peft (peft_config) to continue training it, or merge it first: "
            "hfcomp.merge_adapter(adapter, folder)."
        )
    if peft_config is None:
        # In a tower whose features the loss does not read, an adapter would never get a gradient.
        unused = [tower for tower, features in FEATURES.items() if not features & set(required_features)]
        peft_config = lora_config(
            backbone,
            kind=args.peft,
            rank=args.lora_rank,
            alpha=args.lora_alpha,
            dropout=args.lora_dropout,
            targets=args.lora_targets,
            frozen_towers=sorted({*unused, *(args.freeze_towers or [])}),
        )
    return add_adapter(backbone, peft_config, seed=args.seed)


def check_used(frozen: Collection[str]) -> None:
    """Raises if the objective does not use some part of a new adapter."""
    idle = sorted({name.partition(".lora_")[0].removeprefix("backbone.base_model.model.") for name in frozen})
    if idle:
        raise ValueError(
            f"the adapter has no effect on the features the objective uses in {', '.join(idle[:6])} ({len(idle)} "
            "modules). Remove them from the targets."
        )
