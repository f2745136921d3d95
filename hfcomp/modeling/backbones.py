"""The dual encoders of the Hub: loading, and one way to embed images and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoProcessor
from transformers.utils import cached_file, find_adapter_config_file

from hfcomp.modeling.checkpoints import OBJECTIVE_STATE_FILE

SUPPORTED_MODEL_TYPES = ("clip", "metaclip_2", "siglip")


def load_backbone(model: str | Path | nn.Module, **kwargs: Any) -> nn.Module:
    """Loads a dual encoder by Hub id or folder (a PEFT adapter's too), or checks one that is given.

    Args:
        model: a Hub id, a folder in the Hub's layout, a `PreTrainedModel` or a `PeftModel`. An adapter's id or folder
            becomes a `PeftModel` whose adapter can be trained on.
        kwargs: handed to `AutoModel.from_pretrained` (`revision`, `dtype`, `attn_implementation`, ...).

    Raises:
        ValueError: for a model that is no dual encoder that hfcomp knows; NaFlex SigLIP 2 is refused by name.
    """
    if isinstance(model, nn.parallel.DataParallel | nn.parallel.DistributedDataParallel):
        raise ValueError(
            f"model is wrapped in {type(model).__name__}. Pass the plain model: the trainer wraps it in "
            "DistributedDataParallel itself when it is started with `accelerate launch` or `torchrun`."
        )
    backbone = _from_pretrained(model, **kwargs) if isinstance(model, str | Path) else model
    if getattr(backbone, "_hf_peft_config_loaded", False):
        raise ValueError(
            "the model carries an adapter inside itself (add_adapter, load_adapter, or AutoModel on an adapter's "
            "folder), which it would save without its weights. Wrap it with peft.get_peft_model, or pass the folder."
        )
    check_model_type(getattr(backbone, "config", None))
    return backbone


def load_config(model: str | Path) -> Any:
    """The configuration of a dual encoder by Hub id or folder, of an adapter the base model's, without its weights.

    Raises:
        ValueError: for a model that is no dual encoder that hfcomp knows; NaFlex SigLIP 2 is refused by name.
    """
    base = base_of_adapter(model)
    place, options = (base.place, {"revision": base.revision}) if base else (model, {})
    config = AutoConfig.from_pretrained(place, **options)
    check_model_type(config)
    return config


class Base(NamedTuple):
    """The model that an adapter is for.

    Attributes:
        place: Hub id or folder.
        revision: branch, tag or commit.
    """

    place: str
    revision: str


def base_of_adapter(model: str | Path) -> Base | None:
    """The model that an adapter's id or folder is for; `None` for what is no adapter."""
    if find_adapter_config_file(str(model)) is None:
        return None
    from peft import PeftConfig

    adapter = PeftConfig.from_pretrained(str(model))
    return Base(adapter.base_model_name_or_path, adapter.revision or "main")


def check_model_type(config: Any) -> None:
    """Raises ValueError unless a configuration is of a dual encoder that hfcomp knows."""
    model_type = getattr(config, "model_type", None)
    if model_type == "siglip2":
        raise ValueError(
            "model type 'siglip2' is the NaFlex kind of SigLIP 2 (variable resolution), which is not supported. "
            "Use a fixed-resolution SigLIP 2 checkpoint such as google/siglip2-base-patch16-224."
        )
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ValueError(
            f"model type {model_type!r} is no dual encoder that hfcomp can train; "
            f"expected one of {', '.join(SUPPORTED_MODEL_TYPES)}."
        )


def _from_pretrained(model: str | Path, **kwargs: Any) -> nn.Module:
    hub = {key: kwargs[key] for key in ("revision", "token", "cache_dir", "local_files_only") if key in kwargs}
    if find_adapter_config_file(str(model), **hub) is None:
        return AutoModel.from_pretrained(model, **kwargs)
    from peft import PeftConfig, PeftModel

    adapter = PeftConfig.from_pretrained(str(model), **hub)
    base = AutoModel.from_pretrained(
        adapter.base_model_name_or_path, **{**kwargs, "revision": adapter.revision or "main"}
    )
    backbone = PeftModel.from_pretrained(base, str(model), is_trainable=True, config=adapter, **hub)
    _restore_unfrozen(backbone, str(model), hub)
    return backbone


def _restore_unfrozen(backbone: nn.Module, model: str, hub: dict[str, Any]) -> None:
    """Parameters of the base model that were trained with an adapter: their values, and that they are trained."""
    path = cached_file(model, OBJECTIVE_STATE_FILE, _raise_exceptions_for_missing_entries=False, **hub)
    if path is None:
        return
    prefix = "backbone."
    state = {key.removeprefix(prefix): value for key, value in load_file(path).items() if key.startswith(prefix)}
    backbone.load_state_dict(state, strict=False)
    for name in state:
        backbone.get_parameter(name).requires_grad_(True)


def load_processor(model: str | Path | nn.Module, *, argument: str) -> Any:
    """The processor that belongs to a model: of its id or folder, or of where a module was loaded from.

    An adapter may come without one; it then has that of the model that it is for.

    Args:
        model: a Hub id, a folder or a module.
        argument: what the caller's own parameter for a processor is called, for the way out in errors.

    Raises:
        ValueError: for a module that does not say where it came from, or whose origin has no processor.
    """
    if isinstance(model, str | Path):
        return _processor_of(model)
    name = getattr(model, "name_or_path", "") or getattr(model.config, "_name_or_path", "")
    way_out = f"Pass the model's own: {argument}=AutoProcessor.from_pretrained(...)."
    if not name:
        raise ValueError(f"the module does not say where it was loaded from, so it has no processor. {way_out}")
    try:
        return AutoProcessor.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the module comes from {name!r}, where no processor can be loaded: {error} {way_out}"
        ) from error


def _processor_of(place: str | Path) -> Any:
    try:
        return AutoProcessor.from_pretrained(place)
    except (OSError, ValueError):
        base = base_of_adapter(place)
        if base is None:
            raise
        return AutoProcessor.from_pretrained(base.place, revision=base.revision)


def _pooled(output: Any) -> torch.Tensor:
    """`get_*_features` returns a tensor in transformers 4 and an output with `pooler_output` in 5."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def normalized(features: torch.Tensor) -> torch.Tensor:
    """L2-normalised along the last dimension; half types become fp32 first."""
    features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    return nn.functional.normalize(features, dim=-1)


def encode_images(backbone: nn.Module, pixel_values: torch.Tensor) -> torch.Tensor:
    """L2-normalised image embeddings `[B, D]` of normalised pixels `[B, 3, H, W]`."""
    return normalized(_pooled(backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))))


def encode_texts(backbone: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """L2-normalised text embeddings `[B, D]` of token ids `[B, L]`, padded on the right.

    No attention mask is passed: CLIP is causal, so that padding on the right changes nothing, and SigLIP attends to
    its padding by design.
    """
    return normalized(_pooled(backbone.get_text_features(input_ids=input_ids)))


def freeze_towers(backbone: nn.Module, towers: list[str]) -> None:
    """Freezes the `image` or the `text` tower with its projection; `logit_scale` stays as it is."""
    parts = {"image": ("vision_model", "visual_projection"), "text": ("text_model", "text_projection")}
    prefixes = tuple(part for tower in towers for part in parts[tower])
    for name, parameter in backbone.named_parameters():
        if any(piece in prefixes for piece in name.split(".")):
            parameter.requires_grad_(False)
