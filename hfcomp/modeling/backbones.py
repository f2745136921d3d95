"""Loads Hub dual encoders and their processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from transformers import AutoConfig, AutoModel, AutoProcessor
from transformers.utils import cached_file, find_adapter_config_file, logging

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
from hfcomp.remote_code import load_pretrained, model_class

logger = logging.get_logger(__name__)

FEATURES = ("get_image_features", "get_text_features")
_EXPECTED = "Use a model that embeds images and texts separately, such as CLIP, SigLIP, ALIGN or FLAVA."
# First components of a dual encoder's weight names. Others, such as a classifier's head, are not part of it.
ENCODER_PARTS = ("text_model", "vision_model", "text_projection", "visual_projection", "logit_scale", "logit_bias")


def load_backbone(model: str | Path | nn.Module, **kwargs: Any) -> nn.Module:
    """Loads a dual encoder or PEFT adapter by Hub id or folder, or checks a given model.

    Args:
        model: A Hub id, a folder in the Hub's layout, a `PreTrainedModel` or a `PeftModel`. An adapter's id or folder
            becomes a `PeftModel` whose adapter can be trained further.
        kwargs: Passed to `AutoModel.from_pretrained` (`revision`, `dtype`, `attn_implementation`, ...).

    Raises:
        ValueError: If the model is not a dual encoder (see `hfcomp.families`); if weights are damaged, missing, left
            over or have another shape (the message names them); or if `kwargs` contains `ignore_mismatched_sizes`,
            `trust_remote_code` or `output_loading_info`.
    """
    fixed = sorted({"ignore_mismatched_sizes", "trust_remote_code", "output_loading_info"} & set(kwargs))
    if fixed:
        raise ValueError(
            f"load_backbone does not accept {', '.join(fixed)}: all weights must match the model, and code from its "
            "repository runs only with `hfcomp evaluate --trust_remote_code`. Remove the argument."
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
    config = load_pretrained(AutoConfig, source, **options)
    if not is_dual_encoder(source, config):
        raise ValueError(f"model type {config.model_type!r} is not a dual encoder. {_EXPECTED}")
    # On the meta device, transformers compares names and shapes without reading values.
    load_backbone(model, device_map="meta")
    return config


def read_config(source: str | Path) -> Any:
    """Reads a model's configuration by Hub id or folder; its code runs only if it is trusted."""
    return load_pretrained(AutoConfig, source)


def is_dual_encoder(source: str | Path, config: Any) -> bool:
    """Returns whether `AutoModel` loads a Hub id or folder as a model with image and text features."""
    model = model_class(source, config)
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
            f"{type(plain).__name__} is not a dual encoder: it has no {' and no '.join(missing)}. {_EXPECTED}"
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
        backbone, info = load_pretrained(
            AutoModel, model, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
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
        return load_pretrained(AutoProcessor, name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the module comes from {name!r}, from which no processor can be loaded: {error} {advice}"
        ) from error


def _load_processor(source: str | Path) -> Any:
    try:
        return load_pretrained(AutoProcessor, source)
    except (OSError, ValueError):
        base = base_of_adapter(source)
        if base is None:
            raise
        return load_pretrained(AutoProcessor, base.source, revision=base.revision)
