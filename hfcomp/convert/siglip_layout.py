"""Maps SigLIP weights between open_clip's layout, which has a timm image tower, and transformers' `SiglipModel`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from hfcomp.convert.activations import Activation
from hfcomp.convert.clip_layout import count_layers, image_size, norm_epsilon, reject_other_networks, text_blocks
from hfcomp.convert.weight_table import Weight, pair
from hfcomp.modeling.weight_checks import OtherNetwork

TRUNK = "visual.trunk."
EPSILON = 1e-6
_TEXT_EPSILON = 1e-5  # torch's default, used unless norm_kwargs names another value
# Number of attention heads of timm's SigLIP models, by model size.
_HEADS = {"base": 12, "large": 16, "so400m": 16, "giantopt": 16}
_NAME = re.compile(r"vit_(\w+?)_patch\d+_siglip_\d+")
_BLOCK = (("norm1", "layer_norm1"), ("norm2", "layer_norm2"), ("attn.proj", "self_attn.out_proj"))
_MLP = (("mlp.fc1", "mlp.fc1"), ("mlp.fc2", "mlp.fc2"))
_SUPPORTED_SETTINGS = {
    "pool_type": ("last",),
    "no_causal_mask": (True,),
    "proj_bias": (True,),
    "timm_proj_bias": (False,),
}


def siglip_table(image_layers: int, text_layers: int) -> list[Weight]:
    image, words, head = "vision_model.embeddings", "text_model.embeddings", "vision_model.head"
    pool = f"{TRUNK}attn_pool"
    table = [
        *(Weight((name,), (name,), "squeezed scalar") for name in ("logit_scale", "logit_bias")),
        *pair(f"{TRUNK}patch_embed.proj", f"{image}.patch_embedding"),
        # timm's positions have a batch dimension of size 1.
        Weight((f"{TRUNK}pos_embed",), (f"{image}.position_embedding.weight",), "without batch dimension"),
        *pair(f"{TRUNK}norm", "vision_model.post_layernorm"),
        Weight((f"{pool}.latent",), (f"{head}.probe",)),
        *pair(f"{pool}.proj", f"{head}.attention.out_proj"),
        *pair(f"{pool}.norm", f"{head}.layernorm"),
        *(weight for name, other in _MLP for weight in pair(f"{pool}.{name}", f"{head}.{other}")),
        Weight(("text.token_embedding.weight",), (f"{words}.token_embedding.weight",)),
        Weight(("text.positional_embedding",), (f"{words}.position_embedding.weight",)),
        *text_blocks("text.", "text_model.", text_layers),
        *pair("text.ln_final", "text_model.final_layer_norm"),
        *pair("text.text_projection", "text_model.head"),
    ]
    # The pooling query is one learned vector, so timm projects it separately from keys and values. transformers keeps
    # the three in one tensor, in this order. In the blocks, timm joins the three and transformers keeps them separate.
    for part in ("weight", "bias"):
        table.append(Weight((f"{pool}.q.{part}", f"{pool}.kv.{part}"), (f"{head}.attention.in_proj_{part}",)))
    for layer in range(image_layers):
        block, twin = f"{TRUNK}blocks.{layer}", f"vision_model.encoder.layers.{layer}"
        table += [weight for name, other in _BLOCK + _MLP for weight in pair(f"{block}.{name}", f"{twin}.{other}")]
        for part in ("weight", "bias"):
            names = tuple(f"{twin}.self_attn.{letter}_proj.{part}" for letter in "qkv")
            table.append(Weight((f"{block}.attn.qkv.{part}",), names))
    return table


def reject_other_trunks(names: set[str], config: Mapping[str, Any] | None) -> None:
    """Raises OtherNetwork for other timm image towers, and ValueError for a SigLIP without its configuration."""
    if config is None:
        raise ValueError(
            "open_clip_config.json is missing: the weights of a timm image tower do not reveal its number of "
            "heads and its activation. Put the file from its Hub repository next to the weights."
        )
    tower = config.get("vision_cfg", {}).get("timm_model_name")
    if f"{TRUNK}attn_pool.latent" not in names or not _NAME.fullmatch(str(tower)):
        raise OtherNetwork(
            f"the image tower is timm's {tower}, not SigLIP's; transformers has no CLIP with this tower."
        )


def siglip_sizes(
    tensors: Mapping[str, torch.Tensor], config: Mapping[str, Any], activation: Activation
) -> dict[str, Any]:
    """Returns the fields of a `SiglipConfig` except the token ids; sizes are taken from the weights."""
    reject_other_networks(config, _SUPPORTED_SETTINGS)
    vision, text = config["vision_cfg"], config.get("text_cfg", {})
    # The weights do not reveal whether a causal mask is used. SigLIP uses none: every token attends to every other.
    if (vision.get("timm_pool"), vision.get("timm_proj")) != ("map", "none") or not text.get("no_causal_mask"):
        raise OtherNetwork(
            "open_clip_config.json: expected timm_pool=map, timm_proj=none and no_causal_mask=true for SigLIP."
        )
    vocabulary, words = tensors["text.token_embedding.weight"].shape
    _, patches, width = tensors[f"{TRUNK}pos_embed"].shape
    patch = tensors[f"{TRUNK}patch_embed.proj.weight"].shape[-1]
    layers = {name.split(".")[3] for name in tensors if name.startswith(f"{TRUNK}blocks.")}
    return {
        "vision_config": {
            "hidden_size": width,
            "intermediate_size": tensors[f"{TRUNK}blocks.0.mlp.fc1.weight"].shape[0],
            "num_hidden_layers": len(layers),
            "num_attention_heads": _HEADS[_NAME.fullmatch(vision["timm_model_name"])[1]],
            "image_size": image_size(patches, patch, vision),
            "patch_size": patch,
            "hidden_act": activation.image,
            "layer_norm_eps": EPSILON,
        },
        "text_config": {
            "vocab_size": vocabulary,
            "hidden_size": words,
            "intermediate_size": tensors["text.transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
            "num_hidden_layers": count_layers(tensors, "text."),
            "num_attention_heads": text["heads"],
            "max_position_embeddings": tensors["text.positional_embedding"].shape[0],
            "projection_size": tensors["text.text_projection.weight"].shape[0],
            "hidden_act": activation.text,
            "layer_norm_eps": norm_epsilon(text, _TEXT_EPSILON),
        },
    }
