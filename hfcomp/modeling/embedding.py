"""Embeds images and texts, patches and phrases, in the same way for all dual encoders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hfcomp.families import FAMILIES, TEXT_PARTS, family_of


def _pooler_output(backbone: nn.Module, output: Any) -> torch.Tensor:
    # `get_*_features` returns a tensor in transformers 4, and an output with `pooler_output` in 5.
    features = output if isinstance(output, torch.Tensor) else output.pooler_output
    if features is None:
        raise ValueError("its output has no pooler_output")
    return features[:, 0] if family_of(backbone.config).first_token else features


def normalize(features: torch.Tensor) -> torch.Tensor:
    """L2-normalizes features along the last dimension; converts half precision to fp32 first."""
    # Cosines in bf16 are multiples of 1/256 near 1, so a caption and its hard negative would often tie.
    features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    return nn.functional.normalize(features, dim=-1)


def encode_images(backbone: nn.Module, images: torch.Tensor | Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns L2-normalized image embeddings `[B, D]`.

    Args:
        images: Normalized pixels `[B, 3, H, W]`, or the inputs of a tower that needs more than these, by name.
    """
    inputs = images if isinstance(images, Mapping) else {"pixel_values": images}
    inputs = {**inputs, "pixel_values": inputs["pixel_values"].to(backbone.dtype)}
    return normalize(_pooler_output(backbone, backbone.get_image_features(**inputs)))


def vision_config(config: Any) -> Any:
    """Returns the configuration of the image tower."""
    return getattr(config, "vision_config", None) or config.image_config


def blank_images(config: Any, number: int) -> torch.Tensor | dict[str, torch.Tensor]:
    """Returns inputs of an image tower for black images: pixels `[n, 3, H, W]`, or several inputs by name."""
    vision = vision_config(config)
    if "spatial_shapes" not in family_of(config).image_inputs:
        return torch.zeros((number, getattr(vision, "num_channels", 3), vision.image_size, vision.image_size))
    patches, side = vision.num_patches, math.isqrt(vision.num_patches)
    return {
        "pixel_values": torch.zeros((number, patches, vision.num_channels * vision.patch_size**2)),
        "pixel_attention_mask": torch.ones((number, patches), dtype=torch.long),
        "spatial_shapes": torch.full((number, 2), side),
    }


def encode_texts(backbone: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """Returns L2-normalized text embeddings `[B, D]` of right-padded token ids `[B, L]`."""
    # CLIP is causal, so right padding changes nothing, and SigLIP attends to its padding by design.
    inputs, family = {"input_ids": input_ids}, family_of(backbone.config)
    if family.padding == "masked":
        inputs["attention_mask"] = (input_ids != backbone.config.text_config.pad_token_id).long()
    elif family.causal_mask:
        inputs["attention_mask"] = _causal_mask(*input_ids.shape, backbone)
    return normalize(_pooler_output(backbone, backbone.get_text_features(**inputs)))


def _causal_mask(size: int, length: int, backbone: nn.Module) -> torch.Tensor:
    # Four dimensions and additive, `[B, 1, L, L]`: every implementation of attention uses such a mask as it is.
    lowest = torch.finfo(backbone.dtype).min
    mask = torch.full((length, length), lowest, dtype=backbone.dtype, device=backbone.device).triu(1)
    return mask.expand(size, 1, length, length)


def similarity_scale(model: nn.Module) -> torch.Tensor:
    """Returns the factor by which a model multiplies cosines, a scalar: `exp(logit_scale)`, or 1 / `temperature`."""
    if family_of(model.config).temperature:
        return 1 / model.temperature.squeeze()
    return model.logit_scale.exp().squeeze()


def check_tokens(model: nn.Module) -> None:
    """Raises ValueError if a model's family has no embeddings of single tokens and patches."""
    if not family_of(model.config).tokens:
        known = ", ".join(name for name, family in FAMILIES.items() if family.tokens)
        raise ValueError(
            f"{type(model).__name__} has no embeddings of single patches and phrases, which are needed here. "
            f"Use a model of one of these types: {known}."
        )


# Embeddings of single tokens (an image's patches, the phrases of a caption) come from the same forward pass as the
# pooled embedding, through the model's own head. They add no parameters and do not change the pooled embedding.
def encode_image_tokens(backbone: nn.Module, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeds images and their patches.

    SigLIP: output of the pooling head if it attends only to the patch, x + mlp(layernorm(x)), where x is the output
    projection of the patch's values. CLIP: the patch after the layer norm and projection of the class token.

    For normalized pixels `[B, 3, H, W]`, returns the embeddings of the images, `[B, D]`, and of their patches in
    reading order, `[B, P, D]`; both L2-normalized.

    Source:
        C2LIP (arXiv 2603.25722), V' in section 3.2, with the output projection, the layer norm, the residual and the
        L2 norm of its released code; the paper writes f_MLP. CLIP: our choice, because the paper covers only SigLIP.
    """
    check_tokens(backbone)
    output = backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))
    tower, states = backbone.vision_model, output.last_hidden_state
    if hasattr(tower, "head"):
        # A single key gets all the attention, and an adapter for the head has the same effect as in the pooled
        # embedding.
        tokens = tower.head(states.flatten(0, 1).unsqueeze(1)).unflatten(0, states.shape[:2])
    else:
        tokens = backbone.visual_projection(tower.post_layernorm(states[:, 1:]))
    return normalize(output.pooler_output), normalize(tokens)


def encode_phrases(
    backbone: nn.Module, input_ids: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeds captions and phrases in them.

    A phrase's embedding is the mean of its tokens' states after the last layer norm, passed through the text tower's
    head (SigLIP) or projection (CLIP). CLIP is causal: its tokens depend only on the tokens before them.

    Args:
        input_ids: Token ids `[B, L]`, padded on the right.
        mask: Mask `[b, M, L]` of the tokens of each phrase, for the first `b` texts.

    Returns:
        Embeddings of the captions, `[B, D]`, and of their phrases, `[b, M, D]`; both L2-normalized. The embedding of a
        phrase without tokens is meaningless.

    Source:
        C2LIP (arXiv 2603.25722), section 3.2: "pooling the representations of the text tokens". The mean, the layer
        norm and the head are our choice: the paper does not specify them, and its released code encodes each phrase
        separately.
    """
    check_tokens(backbone)
    output = backbone.get_text_features(input_ids=input_ids)
    states = output.last_hidden_state[: len(mask)]
    # Compute the masked means of all phrases of a caption as one matrix product. Absent phrases divide by 1, not 0.
    means = mask.to(states.dtype) @ states / mask.sum(-1, keepdim=True).clamp(min=1)
    return normalize(output.pooler_output), normalize(_text_head(backbone)(means))


def _text_head(backbone: nn.Module) -> Any:
    tower = backbone.text_model
    return tower.head if hasattr(tower, "head") else backbone.text_projection


def tower_parts(model: nn.Module, tower: str) -> tuple[str, ...]:
    """Returns the names of the modules of the `image` or `text` tower, with its projection."""
    return TEXT_PARTS if tower == "text" else family_of(model.config).image_parts


def freeze_towers(backbone: nn.Module, towers: list[str]) -> None:
    """Freezes the `image` or `text` tower with its projection; `logit_scale` does not change."""
    prefixes = tuple(part for tower in towers for part in tower_parts(backbone, tower))
    for name, parameter in backbone.named_parameters():
        # Compare every component of the name, not only the first, because PEFT adds its own prefixes.
        if any(piece in prefixes for piece in name.split(".")):
            parameter.requires_grad_(False)
