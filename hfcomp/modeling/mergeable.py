"""Adapters as plain weights: which ones can be scaled, what base they are for, and how they are merged."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

LORA = "LORA"


def check_base(backbone: nn.Module, base: nn.Module, adapter_place: str | Path, base_place: str | Path) -> None:
    """Checks that an adapter is loaded over a base: that what it left frozen is the base's.

    Args:
        backbone: a `PeftModel`, in the precision of the base.
        base: a plain model.
        adapter_place: of the adapter, for errors.
        base_place: of the base, likewise.

    Raises:
        ValueError: naming the first weight that differs.
    """
    expected = dict(base.named_parameters())
    for name, value in backbone.get_base_model().named_parameters():
        plain = name.replace(".base_layer", "").replace(".original_module", "")
        if value.requires_grad or plain not in expected:
            continue
        if value.shape != expected[plain].shape or not torch.equal(value, expected[plain]):
            trained_on = backbone.peft_config[backbone.active_adapter].base_model_name_or_path
            raise ValueError(
                f"{adapter_place} is an adapter of {trained_on}, whose {plain} differs from that of {base_place}. "
                "Pass the model that the adapter was trained on."
            )


def merge_without_magnitudes(backbone: nn.Module, place: str | Path) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The plain model of an adapter, `W + scaling * B A`; of DoRA without its magnitudes, which come beside it.

    Args:
        backbone: a `PeftModel`, which cannot be used afterwards.
        place: of the adapter, for errors.

    Returns:
        The model, and by name of a weight `[out, ...]` its magnitudes `[out]`; none for LoRA.

    Raises:
        ValueError: for an adapter that is neither LoRA nor DoRA over linear layers and convolutions.
    """
    from peft.tuners.lora import Embedding, LoraLayer

    adapter = backbone.active_adapter
    config = backbone.peft_config[adapter]
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != LORA:
        raise ValueError(f"{place}: found an adapter of the kind {kind}, expected LoRA or DoRA.")
    magnitudes = {}
    for name, layer in backbone.get_base_model().named_modules():
        if not isinstance(layer, LoraLayer) or adapter not in layer.lora_magnitude_vector:
            continue
        if isinstance(layer, Embedding):
            raise ValueError(f"{place}: {name} is an embedding with DoRA, expected linear layers and convolutions.")
        magnitudes[f"{name}.weight"] = layer.lora_magnitude_vector[adapter].weight.detach().clone().flatten()
        layer.use_dora[adapter] = False  # merges the direction alone
        layer.lora_variant.pop(adapter, None)
    return backbone.merge_and_unload(), magnitudes
