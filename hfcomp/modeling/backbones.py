"""The dual encoders of the Hub: loading, and one way to embed images and texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoProcessor
from transformers.utils import cached_file, find_adapter_config_file, logging

from hfcomp.modeling.checkpoints import ADAPTER_FILE, OBJECTIVE_STATE_FILE, unfrozen_names
from hfcomp.modeling.weight_checks import COPY_AGAIN, check_same, damage_named, no_report, read_tensors, refuse
from hfcomp.reading import may_be_hub_id

logger = logging.get_logger(__name__)

SUPPORTED_MODEL_TYPES = ("clip", "metaclip_2", "siglip")
TOWERS = {"image": ("vision_model", "visual_projection"), "text": ("text_model", "text_projection")}
# First parts of the names of a dual encoder's weights. Others, such as a classifier's head, are not part of it.
OWN_PARTS = ("text_model", "vision_model", "text_projection", "visual_projection", "logit_scale", "logit_bias")


def load_backbone(model: str | Path | nn.Module, **kwargs: Any) -> nn.Module:
    """Loads a dual encoder by Hub id or folder (a PEFT adapter's too), or checks one that is given.

    Args:
        model: a Hub id, a folder in the Hub's layout, a `PreTrainedModel` or a `PeftModel`. An adapter's id or folder
            becomes a `PeftModel` whose adapter can be trained on.
        kwargs: handed to `AutoModel.from_pretrained` (`revision`, `dtype`, `attn_implementation`, ...).

    Raises:
        ValueError: for a model that is not a supported dual encoder, NaFlex SigLIP 2 by name; for weights that are
            damaged, missing, of another shape or left over, naming them; for `ignore_mismatched_sizes`,
            `trust_remote_code` or `output_loading_info` among `kwargs`.
    """
    fixed = sorted({"ignore_mismatched_sizes", "trust_remote_code", "output_loading_info"} & set(kwargs))
    if fixed:
        raise ValueError(
            f"load_backbone does not accept {', '.join(fixed)}: all weights must fit the model, and remote code is "
            "never run. Remove the argument."
        )
    if isinstance(model, nn.parallel.DataParallel | nn.parallel.DistributedDataParallel):
        raise ValueError(
            f"model is wrapped in {type(model).__name__}. Pass the plain model: the trainer wraps it in "
            "DistributedDataParallel itself when it is started with `accelerate launch` or `torchrun`."
        )
    backbone = _from_pretrained(model, **kwargs) if isinstance(model, str | Path) else model
    if getattr(backbone, "_hf_peft_config_loaded", False):
        raise ValueError(
            "the model contains an injected adapter (add_adapter, load_adapter, or AutoModel on an adapter's "
            "folder), which saving would lose. Wrap it with peft.get_peft_model, or pass the folder."
        )
    check_model_type(getattr(backbone, "config", None))
    return backbone


def load_config(model: str | Path) -> Any:
    """The configuration of a dual encoder by Hub id or folder, of an adapter the base model's.

    Names and shapes of its weights are validated, values are not read.

    Raises:
        ValueError: as `load_backbone` does.
    """
    base = base_of_adapter(model)
    place, options = (base.place, {"revision": base.revision}) if base else (model, {})
    folder = Path(place)
    if folder.is_dir() and not (folder / "config.json").is_file():
        models = sorted(path.parent.name for path in folder.glob("*/config.json"))
        hint = f" Did you mean a folder in it: {', '.join(models)}?" if models else " Expected the folder of a model."
        if (folder / "open_clip_config.json").is_file():
            hint = f" It is an open_clip folder. Convert it: hfcomp convert {place} --output {place}-transformers"
        raise ValueError(f"{place}: there is no config.json.{hint}")
    config = AutoConfig.from_pretrained(place, trust_remote_code=False, **options)
    check_model_type(config)
    # On the meta device transformers compares names and shapes and reads no values.
    load_backbone(model, device_map="meta")
    return config


class Base(NamedTuple):
    place: str  # Hub id or folder
    revision: str  # branch, tag or commit


def base_of_adapter(model: str | Path) -> Base | None:
    """The model that an adapter's id or folder is for; `None` for anything else."""
    if find_adapter_config_file(str(model)) is None:
        return None
    from peft import PeftConfig

    adapter = PeftConfig.from_pretrained(str(model))
    return Base(adapter.base_model_name_or_path, adapter.revision or "main")


def check_model_type(config: Any) -> None:
    model_type = getattr(config, "model_type", None)
    if model_type == "siglip2":
        raise ValueError(
            "model type 'siglip2' is the NaFlex variant of SigLIP 2 (variable resolution), which is not supported. "
            "Use a fixed-resolution SigLIP 2 checkpoint such as google/siglip2-base-patch16-224."
        )
    if model_type not in SUPPORTED_MODEL_TYPES:
        raise ValueError(
            f"model type {model_type!r} is not a supported dual encoder; "
            f"expected one of {', '.join(SUPPORTED_MODEL_TYPES)}."
        )


def _from_pretrained(model: str | Path, **kwargs: Any) -> nn.Module:
    hub = {key: kwargs[key] for key in ("revision", "token", "cache_dir", "local_files_only") if key in kwargs}
    if find_adapter_config_file(str(model), **hub) is None:
        return _whole_model(model, **kwargs)
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict, load_peft_weights

    adapter = PeftConfig.from_pretrained(str(model), **hub)
    base = _base_of(model, adapter, kwargs)
    with damage_named(model):
        # Read a second time, as a dictionary: PeftModel.from_pretrained only warns of weights that the file lacks and
        # leaves them as they were initialized. check_same below compares all names and shapes, and its error names the
        # adapter.
        found = load_peft_weights(str(model), device="cpu", **hub)
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
    except KeyError as error:  # of a whole module that was trained with the adapter
        raise ValueError(f"{model}: the weights of the adapter miss {error}. {COPY_AGAIN}") from error
    check_same(model, found, get_peft_model_state_dict(backbone))
    _restore_unfrozen(backbone, str(model), hub)
    return backbone


def _base_of(model: str | Path, adapter: Any, kwargs: dict[str, Any]) -> nn.Module:
    """The plain model that an adapter names."""
    place = adapter.base_model_name_or_path
    try:
        if not place or not (Path(place).is_dir() or may_be_hub_id(place)):
            raise OSError("no such folder")  # and no id that the Hub could be asked for
        return _whole_model(place, **{**kwargs, "revision": adapter.revision or "main"})
    except OSError as error:
        raise OSError(
            f"{model}: the base of this adapter, {place!r}, cannot be loaded: {' '.join(str(error).split())}. Correct "
            "base_model_name_or_path in its adapter_config.json: a Hub id, or a folder as seen from the current one."
        ) from error


def _whole_model(model: str | Path, **kwargs: Any) -> nn.Module:
    """A model whose every weight was in its files; transformers only warns, and initializes missing ones at random."""
    with damage_named(model), no_report():
        backbone, info = AutoModel.from_pretrained(
            model, trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )
    check_model_type(backbone.config)
    # CLIPs that were saved years ago hold position_ids, a buffer that transformers does not store any more.
    unused = {name for name in info["unexpected_keys"] if not name.endswith(".position_ids")}
    own = {name for name in unused if name.partition(".")[0] in OWN_PARTS}
    # If weights are missing, they may exist under names that nothing reads.
    refuse(
        model,
        missing=info["missing_keys"],
        unused=unused if info["missing_keys"] else own,
        shapes=info["mismatched_keys"],
    )
    if unused:
        logger.warning_once(f"{model}: weights that no dual encoder has are not used: {sorted(unused)}")
    return backbone


def _restore_unfrozen(backbone: nn.Module, model: str, hub: dict[str, Any]) -> None:
    """Parameters of the base model that were trained with an adapter: their values, and that they are trained."""
    path, adapter = (
        cached_file(model, name, _raise_exceptions_for_missing_entries=False, **hub)
        for name in (OBJECTIVE_STATE_FILE, ADAPTER_FILE)
    )
    prefix = "backbone."
    stored = {} if path is None else read_tensors(path)
    # An adapter that is copied without this file would silently fall back to the base's logit_scale.
    trained = set() if adapter is None else unfrozen_names(adapter)
    refuse(path or f"{model}: no {OBJECTIVE_STATE_FILE}", missing=trained - set(stored))
    state = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
    own = dict(backbone.named_parameters())
    check_same(path or model, state, {name: own[name] for name in state if name in own})
    for name, value in state.items():
        own[name].data.copy_(value)
        own[name].requires_grad_(True)


def load_processor(model: str | Path | nn.Module, *, argument: str) -> Any:
    """The processor that belongs to a model: from its id or folder, or from a module's origin.

    An adapter may come without one; it then has that of the model that it is for.

    Args:
        model: a Hub id, a folder or a module.
        argument: what the caller's own parameter for a processor is called, for errors.

    Raises:
        ValueError: for a module of unknown origin, or with an origin without a processor.
    """
    if isinstance(model, str | Path):
        return _processor_of(model)
    name = getattr(model, "name_or_path", "") or getattr(model.config, "_name_or_path", "")
    advice = f"Pass the model's own: {argument}=AutoProcessor.from_pretrained(...)."
    if not name:
        raise ValueError(f"the module has no name_or_path, so its processor is unknown. {advice}")
    try:
        return AutoProcessor.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the module comes from {name!r}, where no processor can be loaded: {error} {advice}"
        ) from error


def _processor_of(place: str | Path) -> Any:
    try:
        return AutoProcessor.from_pretrained(place, trust_remote_code=False)
    except (OSError, ValueError):
        base = base_of_adapter(place)
        if base is None:
            raise
        return AutoProcessor.from_pretrained(base.place, revision=base.revision, trust_remote_code=False)


def _pooler_output(output: Any) -> torch.Tensor:
    """`get_*_features` returns a tensor in transformers 4 and an output with `pooler_output` in 5."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def normalized(features: torch.Tensor) -> torch.Tensor:
    """L2-normalized along the last dimension; half types become fp32 first."""
    # Cosines in bf16 are multiples of 1/256 near 1: a caption and its hard negative would often tie.
    features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    return nn.functional.normalize(features, dim=-1)


def encode_images(backbone: nn.Module, pixel_values: torch.Tensor) -> torch.Tensor:
    """L2-normalized image embeddings `[B, D]` of normalized pixels `[B, 3, H, W]`."""
    return normalized(_pooler_output(backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))))


def encode_texts(backbone: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """L2-normalized text embeddings `[B, D]` of token ids `[B, L]`, padded on the right."""
    # No attention mask: CLIP is causal, so padding on the right changes nothing, and SigLIP attends to its padding by
    # design.
    return normalized(_pooler_output(backbone.get_text_features(input_ids=input_ids)))


# Embeddings of single tokens, an image's patches and the phrases of a caption, come from the forward that gives the
# pooled embedding, through the model's own head: they add no parameter and leave the pooled embedding as it is.
def encode_image_tokens(backbone: nn.Module, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of images and of their patches.

    SigLIP: what the pooling head makes of a patch that it attends to alone, x + mlp(layernorm(x)) with x the output
    projection of the patch's values. CLIP: the patch through the layer norm and the projection of the class token.

    Of normalized pixels `[B, 3, H, W]` it returns the images, `[B, D]`, and their patches, `[B, P, D]` in reading
    order; both L2-normalized.

    Source:
        C2LIP (arXiv 2603.25722), V' of section 3.2, with the output projection, the layer norm, the residual and the
        L2 norm of its released code; the paper writes f_MLP. CLIP: our choice, the paper has SigLIP only.
    """
    output = backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))
    tower, states = backbone.vision_model, output.last_hidden_state
    if hasattr(tower, "head"):
        # One key gets all the attention, and an adapter of the head counts as it does in the pooled embedding.
        tokens = tower.head(states.flatten(0, 1).unsqueeze(1)).unflatten(0, states.shape[:2])
    else:
        tokens = backbone.visual_projection(tower.post_layernorm(states[:, 1:]))
    return normalized(output.pooler_output), normalized(tokens)


def encode_phrases(
    backbone: nn.Module, input_ids: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of captions and of phrases in them.

    A phrase is the mean of the states of its tokens, behind the last layer norm, through the head (SigLIP) or the
    projection (CLIP) of the text tower. CLIP is causal: its tokens know what stands before them only.

    Args:
        input_ids: `[B, L]`, padded on the right.
        mask: `[b, M, L]` bool, the tokens of the phrases of the first `b` texts.

    Returns:
        The captions, `[B, D]`, and their phrases, `[b, M, D]`; both L2-normalized. A phrase without tokens has no
        meaning.

    Source:
        C2LIP (arXiv 2603.25722), section 3.2: "pooling the representations of the text tokens". The mean, the layer
        norm and the head are our choice: the paper does not specify them, and its released code encodes each phrase
            alone.
    """
    output = backbone.get_text_features(input_ids=input_ids)
    states = output.last_hidden_state[: len(mask)]
    # A masked mean of all phrases of a caption as one matrix product. An absent phrase divides by 1 instead of 0.
    means = mask.to(states.dtype) @ states / mask.sum(-1, keepdim=True).clamp(min=1)
    return normalized(output.pooler_output), normalized(_text_head(backbone)(means))


def _text_head(backbone: nn.Module) -> Any:
    tower = backbone.text_model
    return tower.head if hasattr(tower, "head") else backbone.text_projection


def freeze_towers(backbone: nn.Module, towers: list[str]) -> None:
    """Freezes the `image` or the `text` tower with its projection; `logit_scale` stays as it is."""
    prefixes = tuple(part for tower in towers for part in TOWERS[tower])
    for name, parameter in backbone.named_parameters():
        # Any part of the name, not only the first: PEFT adds its own prefixes.
        if any(piece in prefixes for piece in name.split(".")):
            parameter.requires_grad_(False)
