"""The adapter that a trainer's config asks for: a new one for the towers that the objective trains."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

from hfcomp.modeling.adapters import KINDS, add_adapter, lora_config
from hfcomp.modeling.checkpoints import is_peft

# Features that come out of each tower.
FEATURES = {
    "image": {"image_embeds", "negative_image_embeds", "tokens"},
    "text": {"text_embeds", "negative_text_embeds", "concept_embeds"},
}
# Defaults of the fields that mean nothing without `peft`.
DEFAULTS = {"lora_rank": 16, "lora_alpha": None, "lora_dropout": 0.0, "lora_targets": None}


def check_adapter_fields(args: Any) -> None:
    """Refuses values of a config's fields for adapters.

    Args:
        args: a config of hfcomp.

    Raises:
        ValueError: for an unknown kind, values out of range, and fields that have no effect.
    """
    if args.peft not in (None, *KINDS):
        raise ValueError(f"peft={args.peft!r}: expected one of {', '.join(KINDS)}, or leave it out.")
    given = [name for name, default in DEFAULTS.items() if getattr(args, name) != default]
    if given and args.peft is None:
        raise ValueError(f"{', '.join(given)}: no adapter is trained. Set peft=lora or peft=dora, or leave it out.")
    if args.lora_rank < 1:
        raise ValueError(f"lora_rank={args.lora_rank}: expected at least 1.")
    if args.lora_alpha is not None and not args.lora_alpha > 0:
        raise ValueError(f"lora_alpha={args.lora_alpha}: expected above 0; unset it is twice the rank.")
    if not 0 <= args.lora_dropout < 1:
        raise ValueError(f"lora_dropout={args.lora_dropout}: expected at least 0 and below 1.")


def with_adapter(backbone: nn.Module, args: Any, peft_config: Any, required_features: Collection[str]) -> nn.Module:
    """The model with the adapter of `args.peft` or `peft_config`; as it is where neither is set.

    Raises:
        ValueError: for both of them, a model that has an adapter already, or targets as in `hfcomp.modeling.adapters`.
    """
    if args.peft is None and peft_config is None:
        return backbone
    if args.peft is not None and peft_config is not None:
        raise ValueError(f"peft={args.peft!r} and peft_config both define an adapter. Leave one of them out.")
    if is_peft(backbone):
        raise ValueError(
            "the model is an adapter already. Leave out peft (peft_config) to train it on, or merge it first: "
            "hfcomp.merge_adapter(adapter, folder)."
        )
    if peft_config is None:
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
    """Refuses a new adapter of which the objective does not use a part.

    Args:
        frozen: names of the parameters that no used feature depends on.

    Raises:
        ValueError: naming the modules.
    """
    idle = sorted({name.partition(".lora_")[0].removeprefix("backbone.base_model.model.") for name in frozen})
    if idle:
        raise ValueError(
            f"the adapter has no effect on what the objective uses in {', '.join(idle[:6])} ({len(idle)} modules). "
            "Leave them out of the targets."
        )
