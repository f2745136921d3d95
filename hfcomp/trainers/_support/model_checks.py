"""What a trainer checks of the processes and the model that it is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments
from transformers.utils import logging

from hfcomp.distributed import check_world_size
from hfcomp.modeling.adapters import check_adapter
from hfcomp.modeling.checkpoints import is_peft

logger = logging.get_logger(__name__)


def check_processes(args: TrainingArguments) -> None:
    """Refuses several GPUs in one process, and processes that accelerate counts as one.

    Raises:
        ValueError: with the command that uses them.
    """
    check_world_size(args.world_size)
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs are visible to one process, where transformers would use nn.DataParallel: each GPU "
            f"would see only its own batch. Start with: accelerate launch --num_processes {args.n_gpu} "
            "<your script>, or hide all but one with CUDA_VISIBLE_DEVICES=0."
        )


def check_trainable(backbone: nn.Module) -> None:
    """Reports properties of a given model: half-precision weights, already frozen weights.

    Raises:
        ValueError: for float16 weights, and adapters without an effect.
    """
    check_adapter(backbone)
    halves = {p.dtype for p in backbone.parameters() if p.requires_grad and p.dtype in (torch.float16, torch.bfloat16)}
    if torch.float16 in halves:
        raise ValueError(
            "the model's weights are float16, whose gradients underflow. Pass model.float(), and fp16=True."
        )
    if halves:
        logger.warning(
            "The model's weights are bfloat16: small updates round to zero. Use model.float() with bf16=True."
        )
    frozen = [name for name, parameter in backbone.named_parameters() if not parameter.requires_grad]
    if frozen and not is_peft(backbone):
        logger.warning(f"{len(frozen)} weights were already frozen and stay frozen: {frozen[:3]} ...")


def align_special_tokens(config: Any, tokenizer: Any) -> None:
    """On the Trainer's copy of the configuration: it would do so itself, and warn of a change that is never saved."""
    for name in ("eos_token_id", "bos_token_id", "pad_token_id"):
        setattr(config.get_text_config(), name, getattr(tokenizer, name))
