"""Loads Hub dual encoders, and embeds images and texts in the same way for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, AutoProcessor
from transformers.utils import cached_file, find_adapter_config_file, logging

from hfcomp.families import FAMILIES, TEXT_PARTS, family_of
from hfcomp.modeling.checkpoints import ADAPTER_FILE, OBJECTIVE_STATE_FILE, unfrozen_names
from hfcomp.modeling.weight_checks import (
    COPY_AGAIN,
    check_same,
    name_damaged_weights,
    raise_on_mismatch,
    read_tensors,
    silence_library,
)
from hfcomp.reading import may_be_hub_id

logger = logging.get_logger(__name__)

FEATURES = ("get_image_features", "get_text_features")
# First components of a dual encoder's weight names. Others, such as a classifier's head, are not part of it.
ENCODER_PARTS = ("text_model", "vision_model", "text_projection", "visual_projection", "logit_scale", "logit_bias")


def load_backbone(model: str | Path | nn.Module, **kwargs: Any) -> nn.Module:
    """Loads a dual encoder or PEFT adapter by Hub id or folder, or checks a given model.

    Args:
        model: A Hub id, a folder in the Hub's layout, a `PreTrainedModel` or a `PeftModel`. An adapter's id or folder
            becomes a `PeftModel` whose adapter can be trained further.
        kwargs: Passed to `AutoModel.from_pretrained` (`revision`, `dtype`, `attn_implementation`, ...).

    Raises:
        ValueError: If the model is not a supported dual encoder (NaFlex SigLIP 2 has its own message); if weights are
            damaged, missing, left over or have another shape (the message names them); or if `kwargs` contains
            `ignore_mismatched_sizes`, `trust_remote_code` or `output_loading_info`.
    """
    fixed = sorted({"ignore_mismatched_sizes", "trust_remote_code", "output_loading_info"} & set(kwargs))
    if fixed:
        raise ValueError(
            f"load_backbone does not accept {', '.join(fixed)}: all weights must match the model, and remote code is "
            "never run. Remove the argument."
        )
    if isinstance(model, nn.parallel.DataParallel | nn.parallel.DistributedDataParallel):
        raise ValueError(
            f"model is wrapped in {type(model).__name__}. Pass the plain model: the trainer itself wraps it in "
            "DistributedDataParallel if it is started with `accelerate launch` or `torchrun`."
        )
    backbone = _from_pretrained(model, **kwargs) if isinstance(model, str | Path) else model
    if getattr(backbone, "_hf_peft_config_loaded", False):
        raise ValueError(
            "the model contains an injected adapter (from add_adapter, load_adapter, or AutoModel on an adapter's "
            "folder), which would be lost when saving. Wrap the model with peft.get_peft_model, or pass the folder."
        )
    check_dual_encoder(backbone)
    return backbone


def load_config(model: str | Path) -> Any:
    """Loads the configuration of a dual encoder by Hub id or folder; for an adapter, that of the base model.

    Also validates the names and shapes of the weights, without reading their values.

    Raises:
        ValueError: In the same cases as `load_backbone`.
    """
    base = base_of_adapter(model)
    source, options = (base.source, {"revision": base.revision}) if base else (model, {})
    folder = Path(source)
    if folder.is_dir() and not (folder / "config.json").is_file():
        models = sorted(path.parent.name for path in folder.glob("*/config.json"))
        hint = f" Did you mean one of its subfolders: {', '.join(models)}?" if models else " Expected a model folder."
        if (folder / "open_clip_config.json").is_file():
            hint = f" It is an open_clip folder. Convert it: hfcomp convert {source} --output {source}-transformers"
        raise ValueError(f"{source} has no config.json.{hint}")
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, **options)
    # On the meta device, transformers compares names and shapes without reading values.
    load_backbone(model, device_map="meta")
    return config


def read_config(source: str | Path) -> Any:
    """Reads a model's configuration by Hub id or folder; never runs its code."""
    return AutoConfig.from_pretrained(source, trust_remote_code=False)


def is_dual_encoder(config: Any) -> bool:
    """Returns whether `AutoModel` loads a configuration's model as one with image and text features."""
    model = MODEL_MAPPING.get(type(config), None)
    return all(hasattr(model, name) for name in FEATURES)


class Base(NamedTuple):
    source: str  # Hub id or folder
    revision: str  # branch, tag or commit


def base_of_adapter(model: str | Path) -> Base | None:
    """Returns the base model of an adapter, by the adapter's id or folder; `None` for anything else."""
    if find_adapter_config_file(str(model)) is None:
        return None
    from peft import PeftConfig

    adapter = PeftConfig.from_pretrained(str(model))
    return Base(adapter.base_model_name_or_path, adapter.revision or "main")


def check_dual_encoder(model: nn.Module) -> None:
    """Checks that a model has the methods of a dual encoder and a tower for each.

    Raises:
        ValueError: If something is missing. The message names it.
    """
    plain = model.get_base_model() if hasattr(model, "get_base_model") else model
    missing = [f"{name}()" for name in FEATURES if not hasattr(plain, name)]
    missing += [f"config.{name}" for name in ("text_config",) if not hasattr(getattr(plain, "config", None), name)]
    if missing:
        raise ValueError(
            f"{type(plain).__name__} is not a dual encoder: it has no {' and no '.join(missing)}. Use a model that "
            "embeds images and texts separately, such as CLIP, SigLIP, ALIGN or FLAVA."
        )


def _from_pretrained(model: str | Path, **kwargs: Any) -> nn.Module:
    hub = {key: kwargs[key] for key in ("revision", "token", "cache_dir", "local_files_only") if key in kwargs}
    if find_adapter_config_file(str(model), **hub) is None:
        return _whole_model(model, **kwargs)
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict, load_peft_weights

    adapter = PeftConfig.from_pretrained(str(model), **hub)
    base = _base_of(model, adapter, kwargs)
    with name_damaged_weights(model):
        # Read the weights again, as a dictionary: PeftModel.from_pretrained only warns about missing weights and
        # leaves them as initialized. check_same below compares all names and shapes, and its error names the adapter.
        adapter_weights = load_peft_weights(str(model), device="cpu", **hub)
    try:
        backbone = PeftModel.from_pretrained(
            base,
            str(model),
            is_trainable=True,
            config=adapter,
            ignore_mismatched_sizes=True,
            low_cpu_mem_usage=base.device.type == "meta",
            **hub,
        )
    except KeyError as error:  # from a whole module that was trained with the adapter
        raise ValueError(f"{model}: the weights of the adapter lack {error}. {COPY_AGAIN}") from error
    check_same(model, adapter_weights, get_peft_model_state_dict(backbone))
    _restore_unfrozen(backbone, str(model), hub)
    return backbone


def _base_of(model: str | Path, adapter: Any, kwargs: dict[str, Any]) -> nn.Module:
    """Loads the plain model that an adapter names as its base."""
    source = adapter.base_model_name_or_path
    try:
        if not source or not (Path(source).is_dir() or may_be_hub_id(source)):
            raise OSError("no such folder")  # it is not a possible Hub id either
        return _whole_model(source, **{**kwargs, "revision": adapter.revision or "main"})
    except OSError as error:
        raise OSError(
            f"{model}: the base of this adapter, {source!r}, cannot be loaded: {' '.join(str(error).split())}. "
            "Correct base_model_name_or_path in its adapter_config.json: use a Hub id, or a path relative to the "
            "current folder."
        ) from error


def _whole_model(model: str | Path, **kwargs: Any) -> nn.Module:
    """Loads a model and checks that its files contain every weight; transformers only warns about missing weights."""
    with name_damaged_weights(model), silence_library():
        backbone, info = AutoModel.from_pretrained(
            model, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )
    check_dual_encoder(backbone)
    # Old CLIP checkpoints contain position_ids, a buffer that transformers no longer stores.
    unused = {name for name in info["unexpected_keys"] if not name.endswith(".position_ids")}
    parts = {*ENCODER_PARTS, *(name for name, _ in backbone.named_children())}
    lost = {name for name in unused if name.partition(".")[0] in parts}
    # If weights are missing, they may exist under names that nothing reads.
    raise_on_mismatch(
        model,
        missing=info["missing_keys"],
        unused=unused if info["missing_keys"] else lost,
        shapes=info["mismatched_keys"],
    )
    if unused:
        logger.warning_once(f"{model}: ignoring weights that do not belong to a dual encoder: {sorted(unused)}")
    return backbone


def _restore_unfrozen(backbone: nn.Module, model: str, hub: dict[str, Any]) -> None:
    """Restores base-model parameters that were trained together with an adapter: values and `requires_grad`."""
    path, adapter = (
        cached_file(model, name, _raise_exceptions_for_missing_entries=False, **hub)
        for name in (OBJECTIVE_STATE_FILE, ADAPTER_FILE)
    )
    prefix = "backbone."
    stored = {} if path is None else read_tensors(path)
    # If an adapter were copied without this file, it would silently fall back to the base's logit_scale.
    trained = set() if adapter is None else unfrozen_names(adapter)
    raise_on_mismatch(path or f"{model}: no {OBJECTIVE_STATE_FILE}", missing=trained - set(stored))
    state = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
    parameters = dict(backbone.named_parameters())
    check_same(path or model, state, {name: parameters[name] for name in state if name in parameters})
    for name, value in state.items():
        parameters[name].data.copy_(value)
        parameters[name].requires_grad_(True)


def load_processor(model: str | Path | nn.Module, *, argument: str) -> Any:
    """Loads the processor of a model: from its id or folder, or from a module's origin.

    If an adapter has no processor, loads that of its base model.

    Args:
        model: A Hub id, a folder or a module.
        argument: Name of the caller's parameter for a processor, for error messages.

    Raises:
        ValueError: If a module's origin is unknown or has no processor.
    """
    if isinstance(model, str | Path):
        return _load_processor(model)
    name = getattr(model, "name_or_path", "") or getattr(model.config, "_name_or_path", "")
    advice = f"Pass the model's own processor: {argument}=AutoProcessor.from_pretrained(...)."
    if not name:
        raise ValueError(f"the module has no name_or_path, so its processor is unknown. {advice}")
    try:
        return AutoProcessor.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the module comes from {name!r}, from which no processor can be loaded: {error} {advice}"
        ) from error


def _load_processor(source: str | Path) -> Any:
    try:
        return AutoProcessor.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError):
        base = base_of_adapter(source)
        if base is None:
            raise
        return AutoProcessor.from_pretrained(base.source, revision=base.revision, trust_remote_code=False)


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


def blank_images(config: Any, number: int) -> torch.Tensor | dict[str, torch.Tensor]:
    """Returns inputs of an image tower for black images: pixels `[n, 3, H, W]`, or several inputs by name."""
    vision = getattr(config, "vision_config", None) or config.image_config
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
