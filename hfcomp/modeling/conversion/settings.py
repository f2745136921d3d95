"""Settings of open_clip's `model_cfg` that change what a tower computes, and those that a conversion cannot keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Fields that the weights show too, that the conversion reads, or that change nothing in evaluation.
_READ = {
    *("image_size", "layers", "width", "head_width", "heads", "mlp_ratio", "patch_size", "context_length"),
    *("vocab_size", "act_kwargs", "norm_kwargs", "hf_tokenizer_name", "tokenizer_kwargs", "tokenizer_type"),
    *("patch_dropout", "output_tokens", "pad_id", "bos_id", "attn_pooler_queries", "attn_pooler_heads"),
    *("timm_model_name", "timm_model_pretrained", "timm_pool", "timm_proj", "timm_drop", "timm_drop_path"),
    *("hf_model_pretrained", "hf_proj_type", "hf_pooler_type", "norm_eps", "tokenizer_mode", "tiktoken_name"),
}
_OF_MODEL = {
    *("embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text", "output_dict"),
    *("init_logit_scale", "init_logit_bias", "nonscalar_logit_scale", "cast_dtype"),
}
# Other fields change the network: each has the value that leaves it a plain one.
_PLAIN = {
    "pool_type": ("tok", "argmax"),
    "pos_embed_type": ("learnable",),
    "block_type": ("default",),
    "proj_type": ("linear",),
    "text_arch": ("clip",),
    "norm_type": ("layernorm",),
}


def refuse_other_networks(config: Mapping[str, Any], plain: Mapping[str, tuple[Any, ...]] | None = None) -> None:
    """Refuses settings of a network that the target model does not have.

    Args:
        config: `model_cfg` of `open_clip_config.json`.
        plain: fields of the towers that have another plain value than a CLIP's.

    Raises:
        ValueError: naming the first such setting.
    """
    for name in sorted(set(config) - _OF_MODEL):
        raise ValueError(f"{_place(name, config[name])}: not a setting of a CLIP or SigLIP. {_ADVICE}")
    allowed = {**_PLAIN, **(plain or {})}
    for part in ("vision_cfg", "text_cfg"):
        tower = config.get(part, {})
        if isinstance(tower.get("layers"), list):
            raise ValueError(f"{part}: a ResNet, which no CLIP of transformers has. {_ADVICE}")
        for name in sorted(set(tower) - _READ):
            value = tower[name]
            if value not in (None, False, *allowed.get(name, ())):
                raise ValueError(f"{_place(f'{part}.{name}', value)}: the network has no counterpart. {_ADVICE}")


def norm_epsilon(tower: Mapping[str, Any], default: float) -> float:
    """Epsilon of a tower's layer norms."""
    return float((tower.get("norm_kwargs") or {}).get("eps", default))


_ADVICE = "Such a model stays with open_clip."


def _place(name: str, value: Any) -> str:
    return (
        f"open_clip_config.json: {name}={value!r}" if not isinstance(value, dict) else f"open_clip_config.json: {name}"
    )
