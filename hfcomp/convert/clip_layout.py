"""Layout of CLIP with two plain transformers, as published by OpenAI and stored by open_clip, and `CLIPModel`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers import CLIPConfig

from hfcomp.convert.activations import GELU, GELU_TANH, QUICK_GELU, Activation
from hfcomp.convert.weight_table import Weight, pair, source_names
from hfcomp.modeling.weight_checks import COPY_AGAIN, OtherNetwork

# Fields that also follow from the weights, that the conversion reads, or that do not affect evaluation.
_READ = {
    *("image_size", "layers", "width", "head_width", "heads", "mlp_ratio", "patch_size", "context_length"),
    *("vocab_size", "act_kwargs", "norm_kwargs", "hf_tokenizer_name", "tokenizer_kwargs", "tokenizer_type"),
    *("patch_dropout", "output_tokens", "pad_id", "bos_id", "attn_pooler_queries", "attn_pooler_heads"),
    *("timm_model_name", "timm_model_pretrained", "timm_pool", "timm_proj", "timm_drop", "timm_drop_path"),
    *("hf_model_pretrained", "hf_proj_type", "hf_pooler_type", "norm_eps", "tokenizer_mode", "tiktoken_name"),
}
_MODEL_FIELDS = {
    *("embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text", "output_dict"),
    *("init_logit_scale", "init_logit_bias", "nonscalar_logit_scale", "cast_dtype"),
}
# Other fields change the network. With these values it is one that transformers has.
_SUPPORTED_SETTINGS = {
    "pool_type": ("tok", "argmax"),
    "pos_embed_type": ("learnable",),
    "block_type": ("default",),
    "proj_type": ("linear",),
    "text_arch": ("clip",),
    "norm_type": ("layernorm",),
}


def reject_other_networks(config: Mapping[str, Any], supported: Mapping[str, tuple[Any, ...]] | None = None) -> None:
    """Raises OtherNetwork for network settings that the target model does not support."""
    # Some settings, such as pooling, change what a model computes without changing any weight. An unknown setting may
    # be one of them, so it raises an error instead of being guessed.
    for name in sorted(set(config) - _MODEL_FIELDS):
        raise OtherNetwork(f"{_place(name, config[name])}: not a known setting of CLIP or SigLIP. {_ADVICE}")
    allowed = {**_SUPPORTED_SETTINGS, **(supported or {})}
    for part in ("vision_cfg", "text_cfg"):
        tower = config.get(part, {})
        # A ResNet has a list of layers for its four stages, a transformer a single number.
        if isinstance(tower.get("layers"), list):
            raise OtherNetwork(f"{part}: found a ResNet, but no CLIP model in transformers has one. {_ADVICE}")
        for name in sorted(set(tower) - _READ):
            value = tower[name]
            if value not in (None, False, *allowed.get(name, ())):
                place = _place(f"{part}.{name}", value)
                raise OtherNetwork(f"{place}: this network has no counterpart in transformers. {_ADVICE}")


def norm_epsilon(tower: Mapping[str, Any], default: float) -> float:
    return float((tower.get("norm_kwargs") or {}).get("eps", default))


_ADVICE = "Use this model with open_clip."


def _place(name: str, value: Any) -> str:
    return (
        f"open_clip_config.json: {name}={value!r}" if not isinstance(value, dict) else f"open_clip_config.json: {name}"
    )


EPSILON = 1e-5
HEAD_WIDTH = 64
_TEXT_HEADS = 8  # open_clip's default
# Head widths of open_clip's released image towers whose heads are wider than 64 (ViT-H, g, bigG, e), by tower width;
# and tower widths with heads of 64.
_WIDE_HEADS = {1280: 80, 1408: 88, 1664: 104, 1792: 112}
_USUAL_WIDTHS = (384, 512, 640, 768, 896, 1024)
_TEXT_PARTS = ("token_embedding.", "positional_embedding", "transformer.", "ln_final.", "text_projection")
_IGNORED = re.compile(r"(.*\.)?(attn_mask|position_ids)")  # buffers that follow from the shapes
_BLOCK = (
    ("ln_1", "layer_norm1"),
    ("attn.out_proj", "self_attn.out_proj"),
    ("ln_2", "layer_norm2"),
    ("mlp.c_fc", "mlp.fc1"),
    ("mlp.c_proj", "mlp.fc2"),
)


def text_blocks(source: str, target: str, layers: int) -> list[Weight]:
    """Lists the weights of the transformer in open_clip's towers, which has query, key and value in one tensor."""
    table = []
    for layer in range(layers):
        block, twin = f"{source}transformer.resblocks.{layer}", f"{target}encoder.layers.{layer}"
        for name, other in _BLOCK:
            table += pair(f"{block}.{name}", f"{twin}.{other}")
        for part in ("weight", "bias"):
            names = tuple(f"{twin}.self_attn.{letter}_proj.{part}" for letter in "qkv")
            table.append(Weight((f"{block}.attn.in_proj_{part}",), names))
    return table


def text_prefix(tensors: Mapping[str, Any]) -> str:
    """Returns `text.` if the text tower is a separate module (open_clip's `custom_text`), otherwise ""."""
    return "text." if "text.token_embedding.weight" in tensors else ""


KEPT_POSITIONS = 20
"""First text positions, which Long-CLIP leaves as they are: it found that CLIP trained few others well."""


def fold_positions(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Returns the tensors of a CLIP with one table of text positions, also for Long-CLIP, which has two."""
    name = f"{text_prefix(tensors)}positional_embedding"
    if not {name, f"{name}_res"} <= set(tensors):
        return tensors
    # Long-CLIP multiplies the first 20 rows of its first table by 1 and the others by 0, and those of its second table
    # by the opposite (mask1 and mask2 in `model_longclip.py` at 3966af9), and adds both.
    first, second = tensors[name], tensors[f"{name}_res"]
    if first.shape != second.shape:
        raise ValueError(
            f"{name}_res: found shape {list(second.shape)}, expected {list(first.shape)} as in {name}. {COPY_AGAIN}"
        )
    folded = torch.cat([first[:KEPT_POSITIONS], second[KEPT_POSITIONS:]])
    return {key: value for key, value in tensors.items() if key != f"{name}_res"} | {name: folded}


def clip_table(text: str, image_layers: int, text_layers: int) -> list[Weight]:
    image, words = "vision_model.embeddings", "text_model.embeddings"
    return [
        # open_clip's `nonscalar_logit_scale` gives it the shape [1].
        Weight(("logit_scale",), ("logit_scale",), "scalar"),
        Weight(("visual.class_embedding",), (f"{image}.class_embedding",)),
        Weight(("visual.conv1.weight",), (f"{image}.patch_embedding.weight",)),
        Weight(("visual.positional_embedding",), (f"{image}.position_embedding.weight",)),
        # This is the spelling in transformers.
        *pair("visual.ln_pre", "vision_model.pre_layrnorm"),
        *text_blocks("visual.", "vision_model.", image_layers),
        *pair("visual.ln_post", "vision_model.post_layernorm"),
        # open_clip multiplies by a plain matrix; the weight of a `Linear` layer is its transpose.
        Weight(("visual.proj",), ("visual_projection.weight",), "transposed"),
        Weight((f"{text}token_embedding.weight",), (f"{words}.token_embedding.weight",)),
        Weight((f"{text}positional_embedding",), (f"{words}.position_embedding.weight",)),
        *text_blocks(text, "text_model.", text_layers),
        *pair(f"{text}ln_final", "text_model.final_layer_norm"),
        Weight((f"{text}text_projection",), ("text_projection.weight",), "transposed"),
    ]


def reject_other_towers(names: set[str]) -> None:
    """Raises OtherNetwork for networks that have no model in transformers, naming the network."""
    # Without this check, these names would merely be left over, and the error would say "damaged" instead of naming a
    # different network.
    kinds = {
        "lora_": "contains LoRA weights in another layout than TSVLC's, or damaged. Merge them with the code that "
        "trained them and save the merged state: the file does not reveal their scale.",
        "visual.layer1.": "is a ResNet CLIP (such as RN50), for which transformers has no model.",
        "text_decoder.": "is a CoCa model, for which transformers has no model.",
        "visual.attn_pool.": "pools images by attention (CoCa), for which transformers has no model.",
        "text.transformer.embeddings.": "has a Hub text tower (such as XLM-RoBERTa), which `CLIPModel` does not "
        "support.",
        ".ls_1.": "has layer scales, which `CLIPModel` does not support.",
    }
    for mark, problem in kinds.items():
        if any(mark in name for name in names):
            raise (ValueError if mark == "lora_" else OtherNetwork)(f"the checkpoint {problem}")
    if "visual.ln_pre.weight" not in names:
        raise OtherNetwork("the image tower has no visual.ln_pre (CLIPA), but `CLIPModel` always has it.")


def clip_sizes(
    tensors: Mapping[str, torch.Tensor],
    config: Mapping[str, Any] | None,
    activation: Activation,
    head_width: int | None,
) -> dict[str, Any]:
    """Returns the fields of a `CLIPConfig` except the token ids; sizes are taken from the weights.

    Args:
        tensors: Tensors of the checkpoint.
        config: `model_cfg` from `open_clip_config.json`, if any.
        activation: Activations of both towers.
        head_width: Width of the image tower's attention heads, if neither the file nor the tower's width determines
            it.
    """
    config = config or {}
    reject_other_networks(config)
    vision, text = config.get("vision_cfg", {}), config.get("text_cfg", {})
    prefix = text_prefix(tensors)
    vocabulary, words = tensors[f"{prefix}token_embedding.weight"].shape
    width, _, height, patch = tensors["visual.conv1.weight"].shape
    if height != patch:
        raise ValueError(f"visual.conv1.weight: found patches of {height} x {patch} pixels, expected square patches.")
    embedding = tensors["visual.proj"].shape[1]
    # The weights do not reveal this size: any split of the width into heads has the same tensors.
    own_width = head_width or vision.get("head_width") or _head_width(width, bool(config))
    shared = {"projection_dim": embedding}
    return {
        "projection_dim": embedding,
        "vision_config": {
            **shared,
            "hidden_size": width,
            "intermediate_size": tensors["visual.transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
            "num_hidden_layers": count_layers(tensors, "visual."),
            "num_attention_heads": width // own_width,
            "image_size": image_size(tensors["visual.positional_embedding"].shape[0] - 1, patch, vision),
            "patch_size": patch,
            "hidden_act": activation.image,
            "layer_norm_eps": norm_epsilon(vision, EPSILON),
        },
        "text_config": {
            **shared,
            "vocab_size": vocabulary,
            "hidden_size": words,
            "intermediate_size": tensors[f"{prefix}transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
            "num_hidden_layers": count_layers(tensors, prefix),
            "num_attention_heads": text.get("heads", _TEXT_HEADS) if config else _text_heads(words),
            "max_position_embeddings": tensors[f"{prefix}positional_embedding"].shape[0],
            "hidden_act": activation.text,
            "layer_norm_eps": norm_epsilon(text, EPSILON),
        },
    }


def image_size(patches: int, patch: int, vision: Mapping[str, Any]) -> int:
    """Returns the height and width of images in pixels, from a number of patches and `vision_cfg`."""
    side = math.isqrt(patches)
    given = vision.get("image_size", side * patch)
    sides = set(given) if isinstance(given, list) else {given}
    # Rounded down: 384 pixels contain 27 patches of 14 pixels, and 6 pixels that no patch reads.
    if side * side != patches or len(sides) > 1 or next(iter(sides)) // patch != side:
        raise ValueError(
            f"the image tower has positions for {patches} patches of {patch} pixels, but images have {given} pixels. "
            "Expected square images of the matching size. open_clip interpolates positions when it loads other sizes: "
            "load the model in open_clip, save it, and convert the saved model."
        )
    return int(next(iter(sides)))


def count_layers(tensors: Mapping[str, Any], prefix: str) -> int:
    start = f"{prefix}transformer.resblocks."
    return len({name.removeprefix(start).partition(".")[0] for name in tensors if name.startswith(start)})


def leftover(tensors: Mapping[str, Any], table: list[Weight]) -> tuple[list[str], list[str]]:
    """Returns the names that a table does not read: those of the towers, and others, such as a teacher's."""
    # An unread tower weight means a different network. Weights of other modules are recorded and left out.
    names = sorted(set(tensors) - set(source_names(table)))
    names = [name for name in names if not _IGNORED.fullmatch(name)]
    towers = [name for name in names if name.startswith(("visual.", "text.", *_TEXT_PARTS))]
    return towers, [name for name in names if name not in towers]


def model_config(config: CLIPConfig) -> dict[str, Any]:
    """Makes open_clip's `model_cfg` for a CLIP model."""
    vision, text = config.vision_config, config.text_config
    # open_clip has one switch for both towers.
    quick = [tower.hidden_act == QUICK_GELU for tower in (vision, text)]
    if len(set(quick)) > 1 or not {vision.hidden_act, text.hidden_act} <= {QUICK_GELU, GELU, GELU_TANH}:
        raise ValueError(
            f"the towers have the activations {vision.hidden_act} and {text.hidden_act}, but open_clip supports only "
            f"{QUICK_GELU} or {GELU} for both towers."
        )
    head_width = vision.hidden_size // vision.num_attention_heads
    shared = [_tower_config(tower) for tower in (vision, text)]
    return {
        "embed_dim": config.projection_dim,
        **({"quick_gelu": True} if quick[0] else {}),
        "vision_cfg": {
            "image_size": vision.image_size,
            **({"head_width": head_width} if head_width != HEAD_WIDTH else {}),
            "patch_size": vision.patch_size,
            **shared[0],
        },
        "text_cfg": {
            "context_length": text.max_position_embeddings,
            "vocab_size": text.vocab_size,
            "heads": text.num_attention_heads,
            **shared[1],
        },
    }


def _tower_config(tower: Any) -> dict[str, Any]:
    width, inner = tower.hidden_size, tower.intermediate_size
    ratio = inner / width
    # open_clip stores a ratio and truncates its product with the width, and rounding may put the product just below.
    ratio = ratio if int(width * ratio) == inner else (inner + 0.5) / width
    fields = {"layers": tower.num_hidden_layers, "width": width}
    fields |= {"mlp_ratio": ratio} if ratio != 4 else {}
    fields |= {"norm_kwargs": {"eps": tower.layer_norm_eps}} if tower.layer_norm_eps != EPSILON else {}
    return fields | ({"act_kwargs": {"approximate": "tanh"}} if tower.hidden_act == GELU_TANH else {})


def _head_width(width: int, has_config: bool) -> int:
    if has_config:
        return HEAD_WIDTH  # open_clip's default
    if width in _WIDE_HEADS or width in _USUAL_WIDTHS:
        return _WIDE_HEADS.get(width, HEAD_WIDTH)
    raise ValueError(
        f"open_clip_config.json is missing: the weights do not reveal the width of the attention heads in an "
        f"image tower of width {width}. Pass --head_width, which is {HEAD_WIDTH} in most models."
    )


def _text_heads(width: int) -> int:
    """Returns the number of heads of a text tower; in all released models they are 64 wide."""
    if width % HEAD_WIDTH:
        raise ValueError(
            f"open_clip_config.json is missing: the weights do not reveal the number of attention heads in a text "
            f"tower of width {width}. Put open_clip's file next to the weights."
        )
    return width // HEAD_WIDTH
