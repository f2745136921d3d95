"""How the towers are executed: the attention backend, and compilation in place."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers.utils import is_flash_attn_2_available

from hfcomp.modeling import DualEncoder
from hfcomp.modeling.checkpoints import is_peft
from hfcomp.trainers._support.transformers_internals import compile_nothing

ATTENTION = ("sdpa", "eager", "flash_attention_2")
COMPILED_MULTIPLE = 8
"""Texts of compiled towers are padded to a multiple of it: few lengths, and products that fit tensor cores."""


def set_attention(backbone: nn.Module, implementation: str | None) -> None:
    """Chooses the attention of both towers; `None` keeps the model's, which is `sdpa` unless its author chose another.

    Args:
        backbone: a dual encoder, or a `PeftModel` around one.
        implementation: one of `ATTENTION`.
    """
    if implementation is not None:
        (backbone.get_base_model() if is_peft(backbone) else backbone).set_attn_implementation(implementation)


def check_execution_fields(args: Any) -> None:
    """Refuses values of `attn_implementation` and `pad_to_multiple_of`.

    Args:
        args: a config of hfcomp.

    Raises:
        ValueError: for an unknown backend, one that is not installed or computes in half precision alone, and for a
            multiple below 1.
    """
    attention, multiple = args.attn_implementation, args.pad_to_multiple_of
    if attention is not None and attention not in ATTENTION:
        raise ValueError(f"attn_implementation={attention!r}: expected one of {', '.join(ATTENTION)}.")
    if attention == "flash_attention_2":
        if not is_flash_attn_2_available():
            raise ValueError(
                "attn_implementation='flash_attention_2' needs an NVIDIA GPU and pip install flash-attn. Use 'sdpa', "
                "which has flash attention's algorithm in torch."
            )
        if not (args.bf16 or args.fp16):
            raise ValueError("attn_implementation='flash_attention_2' computes in half precision: set bf16=True.")
    if multiple is not None and multiple < 1:
        raise ValueError(f"pad_to_multiple_of={multiple}: expected at least 1, or leave it out.")


def text_multiple(args: Any) -> int:
    """What the lengths of padded texts are a multiple of: as asked for, else 1, of compiled towers 8.

    Args:
        args: a config of hfcomp.
    """
    if args.pad_to_multiple_of is not None:
        return args.pad_to_multiple_of
    return COMPILED_MULTIPLE if args.torch_compile else 1


def compile_towers(trainer: Any) -> None:
    """Compiles the towers of a trainer's model in place, where its config has `torch_compile`.

    transformers would compile the whole model, whose forward collects a batch's features: that breaks the graph, and
    names weights `_orig_mod`. A tower is one graph, which is compiled anew when a size changes for the first time and
    is then of any size; its weights keep their names. Towers do not share torch's limit of recompilations with those
    of other models in the process, which an experiment has.

    Args:
        trainer: whose accelerator is there.
    """
    args, model = trainer.args, trainer.model
    if not args.torch_compile:
        return
    compile_nothing(trainer.accelerator)
    for tower in _towers(model):
        tower.compile(
            backend=args.torch_compile_backend, mode=args.torch_compile_mode, fullgraph=True, isolate_recompiles=True
        )


def _towers(model: DualEncoder) -> list[nn.Module]:
    return [model.plain.vision_model, model.plain.text_model]
