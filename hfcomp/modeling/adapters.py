"""PEFT adapters for dual encoders: resolves target modules, adds an adapter, and merges one into a plain model.

PEFT matches names, not effects. A suffix such as `out_proj` also matches the output projection of SigLIP's attention
pooling, where an adapter does nothing: `nn.MultiheadAttention` reads its weight and never calls the module. Targets
are therefore resolved here, and a target without effect raises an error.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel, set_seed
from transformers.utils import logging

from hfcomp.modeling.backbones import load_backbone, load_processor
from hfcomp.modeling.checkpoints import is_peft, save_objective_state, write_sentence_transformers_files
from hfcomp.modeling.embedding import tower_parts
from hfcomp.reading import nearest
from hfcomp.writing import replacing_folder

if TYPE_CHECKING:
    from peft import LoraConfig, PeftConfig, PeftModel

logger = logging.get_logger(__name__)

KINDS = ("lora", "dora")
# Layers of the families' towers: CLIP's, BERT's, FLAVA's, GroupViT's stages.
_LAYER = r"(text|vision|image)_model\.(\w+\.)*layers?\.\d+"
_HEADS = r"(text|visual|image)_projection(\.\d+)?|text_model\.head|vision_model\.head\.mlp\.fc[12]"
TARGETS = {
    "attention": rf"{_LAYER}\.(self_attn|attention)\.((self|attention|output)\.)?"
    r"([qkvo]_proj|out_proj|query|key|value|qkv|projection|dense)",
    "mlp": rf"{_LAYER}\.(mlp|ffn|intermediate|output)\.(fc[12]|dense|(gate|up|down)_proj)",
    "head": _HEADS,
    "pooling": r"vision_model\.head\.attention",
}
"""Named groups of modules: the encoders' layers, the maps from pooled state to embedding, and SigLIP's pooling."""
DEFAULT_TARGETS = ("attention", "mlp")
SCALARS = ("logit_scale", "logit_bias", "temperature")
# PEFT's keyword for all linear layers, used instead of names.
PEFT_ALL = "all-linear"
_ADAPTED = (nn.Linear, nn.Conv2d, nn.Embedding, nn.MultiheadAttention)
_WITHOUT_EFFECT = "nn.MultiheadAttention reads the weight of its out_proj and never calls the module"


class _Targets(NamedTuple):
    """Resolved targets: `pattern` matches whole module names, and `parameters` are parameter names."""

    pattern: str | None
    parameters: list[str]


def lora_config(
    backbone: nn.Module,
    *,
    kind: str = "lora",
    rank: int = 16,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: Sequence[str] | None = None,
    frozen_towers: Collection[str] = (),
) -> LoraConfig:
    """Makes a `LoraConfig` whose targets match exactly the intended modules.

    Args:
        backbone: A plain CLIP or SigLIP model.
        kind: `lora` or `dora`.
        rank: Rank of an update.
        alpha: Numerator of the update's scale `alpha / rank`. Defaults to twice the rank.
        dropout: Dropout of the adapters' inputs, 0 to 1.
        targets: Keys of `TARGETS`, ends of module names (`q_proj`), or regular expressions for whole names. Defaults
            to `DEFAULT_TARGETS`.
        frozen_towers: Towers without adapters: `image`, `text`.

    Raises:
        ValueError: If a target matches no module, has no effect, or cannot be adapted with DoRA or dropout.
    """
    from peft import LoraConfig

    resolved = _resolve(backbone, targets or DEFAULT_TARGETS, frozen_towers)
    if resolved.parameters and (kind == "dora" or dropout):
        feature = "DoRA" if kind == "dora" else f"dropout ({dropout:g})"
        raise ValueError(
            f"lora_targets: {', '.join(resolved.parameters)} is adapted as a parameter, for which PEFT does not "
            f"support {feature}. Remove SigLIP's pooling from the targets, or use lora without dropout."
        )
    return LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        use_dora=kind == "dora",
        target_modules=resolved.pattern or [],
        target_parameters=resolved.parameters or None,
    )


def add_adapter(backbone: PreTrainedModel, config: PeftConfig, *, seed: int) -> PeftModel:
    """Wraps a plain CLIP or SigLIP in a new adapter, in place; trainable scalars such as `logit_scale` stay trainable.

    A `config` without `target_modules` gets those of `lora_config`.

    Raises:
        ValueError: If a target or a name in `modules_to_save` matches no module, or a target has no effect.
    """
    from peft import get_peft_model

    config = copy.deepcopy(config)
    _check_names(backbone, config)
    if hasattr(config, "target_modules") and not config.target_modules and not _parameters(config):
        config.target_modules = lora_config(backbone).target_modules
    # PEFT freezes everything that it does not adapt. But the losses need a trained scale and bias, which no adapter
    # has.
    trained = [parameter for parameter in _scalars(backbone).values() if parameter.requires_grad]
    # Every process, and every resumed run, draws its own adapter. With the same seed, all start with the same one.
    set_seed(seed)
    # Pin the commit of a Hub base: the adapter belongs to that commit and not to a later one.
    peft_model = get_peft_model(backbone, config, revision=getattr(backbone.config, "_commit_hash", None))
    check_adapter(peft_model)
    for parameter in trained:
        parameter.requires_grad_(True)
    return peft_model


def check_adapter(adapted: nn.Module) -> None:
    """Checks a `PeftModel` for adapters without effect, and warns about PEFT's layer for `nn.MultiheadAttention`.

    Raises:
        ValueError: If modules are adapted without effect (the message names them), or a plain model contains adapter
            layers, which would be saved under their names.
    """
    if not is_peft(adapted):
        if any(hasattr(module, "base_layer") for module in adapted.modules()):
            raise ValueError(
                "the model contains adapter layers, which an earlier trainer or get_peft_model added in place. Pass "
                "its PeftModel, or reload the model."
            )
        return
    from peft.tuners.lora.layer import MultiheadAttention
    from peft.tuners.tuners_utils import BaseTunerLayer

    modules = dict(adapted.named_modules())
    # PEFT's layer for nn.MultiheadAttention writes the update of out_proj into the base's weight in each forward pass,
    # so in this case an adapter for out_proj does have an effect.
    attention = {f"{name}.base_layer" for name, module in modules.items() if isinstance(module, MultiheadAttention)}
    idle = [
        f"{_plain(name)}.out_proj"
        for name, module in modules.items()
        if isinstance(module, nn.MultiheadAttention)
        and isinstance(module.out_proj, BaseTunerLayer)
        and name not in attention
    ]
    if idle:
        raise ValueError(
            f"an adapter for {', '.join(idle)} has no effect: {_WITHOUT_EFFECT}. Exclude it, for example with "
            rf"target_modules=r'{TARGETS['attention']}'."
        )
    if attention:
        logger.warning(
            "PEFT's layer for nn.MultiheadAttention applies the update of its output projection twice and rounds the "
            "base's weights in each step, so a resumed run may differ by rounding. "
            "target_parameters=['vision_model.head.attention.in_proj_weight'] is exact."
        )


def merge_adapter(adapter: str | Path, output_dir: str | Path) -> Path:
    """Merges an adapter into its base and writes the plain model, its processor and the objective's state.

    The result has the same form as after full fine-tuning: `CLIPModel.from_pretrained(output_dir)` loads it without
    PEFT. It includes the `logit_scale` that was trained with the adapter.

    Args:
        adapter: Folder or Hub id of an adapter.
        output_dir: New or empty folder.

    Returns:
        `output_dir`.

    Raises:
        ValueError: If the model is not an adapter.
        OSError: If the base is not found, or `output_dir` is not empty.
    """
    output_dir = Path(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise FileExistsError(f"{output_dir} is not an empty folder. Choose another folder, or delete it first.")
    merged = load_merged(adapter)
    with replacing_folder(output_dir) as part:
        _write(merged, adapter, part)
    return output_dir


def write_merged(adapter: Path, folder: Path) -> None:
    _write(load_merged(adapter), adapter, folder)


def load_merged(adapter: str | Path) -> PreTrainedModel:
    """Loads an adapter by folder or Hub id and merges it into its base; returns a plain fp32 model."""
    backbone = load_backbone(adapter, dtype=torch.float32)
    if not is_peft(backbone):
        raise ValueError(f"{adapter} is a plain model, not an adapter: it has no adapter_config.json to merge.")
    # With safe_merge, PEFT raises an error if a merged weight is not finite, instead of writing it.
    return backbone.merge_and_unload(safe_merge=True).requires_grad_(True)


def _write(merged: PreTrainedModel, adapter: str | Path, folder: Path) -> None:
    merged.save_pretrained(folder)
    write_sentence_transformers_files(folder, merged.config)
    load_processor(adapter, argument="processor").save_pretrained(folder)
    save_objective_state(adapter, folder)


def _resolve(backbone: nn.Module, targets: Iterable[str], frozen_towers: Collection[str]) -> _Targets:
    frozen = tuple(part for tower in frozen_towers for part in tower_parts(backbone, tower))
    modules = {name: module for name, module in backbone.named_modules() if isinstance(module, _ADAPTED)}
    patterns, pooling = [], []
    for target in targets:
        pattern, matched = _match(backbone, modules, target)
        kept = [name for name in matched if name.partition(".")[0] not in frozen]
        if not kept:
            raise ValueError(
                f"lora_targets: {target!r} matches only modules of towers that are frozen or that the objective does "
                f"not use ({', '.join(frozen_towers)}). Remove it from lora_targets."
            )
        attentions = [name for name in kept if isinstance(modules[name], nn.MultiheadAttention)]
        pooling += attentions
        if len(attentions) < len(kept):
            patterns.append(pattern)
    # PEFT matches one expression against whole names and supports no exceptions. So frozen towers, and pooling that is
    # adapted as a parameter, must be excluded within the expression.
    excluded = [re.escape(name) for name in (*frozen, *dict.fromkeys(pooling))]
    if patterns and excluded:
        patterns = [rf"(?!({'|'.join(excluded)})(\.|$))({'|'.join(patterns)})"]
    # PEFT raises for modules that it cannot adapt, such as the sequence of layers that is GroupViT's projection.
    names = [name for name, module in backbone.named_modules() if not isinstance(module, _ADAPTED)]
    others = [re.escape(name) for name in names if any(re.fullmatch(pattern, name) for pattern in patterns)]
    if others:
        patterns = [rf"(?!({'|'.join(others)})$)({'|'.join(patterns)})"]
    # SigLIP's attention pooling is an nn.MultiheadAttention. PEFT's layer for it applies the update of the output
    # projection twice and rewrites the base's weights in each forward pass, which rounds them (observed in PEFT 0.21).
    # Its query, key and value projection is therefore adapted as a parameter, which is exact and can be loaded by
    # plain PEFT; its output projection is not adapted.
    parameters = [f"{name}.in_proj_weight" for name in dict.fromkeys(pooling)]
    return _Targets("|".join(patterns) or None, parameters)


def _match(backbone: nn.Module, modules: dict[str, nn.Module], target: str) -> tuple[str, list[str]]:
    """Returns a target's pattern for whole names, and the names of the modules that it matches."""
    pattern = TARGETS.get(target, rf"(.*\.)?({target})")
    try:
        matched = [name for name in modules if re.fullmatch(pattern, name)]
    except re.error as error:
        raise ValueError(f"lora_targets: {target!r} is not a regular expression: {error.msg}.") from error
    if not matched:
        ends = dict.fromkeys(name.rpartition(".")[2] for name in modules)
        hint = "" if target in TARGETS else nearest(target, (*TARGETS, *ends))
        raise ValueError(
            f"lora_targets: no module of {type(backbone).__name__} matches {target!r}.{hint} Expected one of "
            f"{', '.join(TARGETS)}, the end of a module name, or a regular expression for whole names. This model's "
            f"module names end in {', '.join(ends)}."
        )
    idle = [name for name in matched if _is_in_attention(backbone, name)]
    if idle:
        raise ValueError(
            f"lora_targets: {target!r} matches {', '.join(idle)}, where an adapter has no effect: {_WITHOUT_EFFECT}. "
            "The target 'attention' covers only the encoders' layers; 'pooling' covers the queries, keys and values "
            "of SigLIP's attention pooling."
        )
    return pattern, matched


def _is_in_attention(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name.rpartition(".")[0]), nn.MultiheadAttention)


def _check_names(backbone: nn.Module, config: PeftConfig) -> None:
    # PEFT ignores a name that matches no module if others match one.
    modules = [name for name, _ in backbone.named_modules() if name]
    for field in ("target_modules", "modules_to_save"):
        names = getattr(config, field, None) or ()
        for target in () if isinstance(names, str) or PEFT_ALL in names else names:
            if not any(name == target or name.endswith(f".{target}") for name in modules):
                hint = " It is trained without being listed." if target in SCALARS else ""
                ends = dict.fromkeys(name.rpartition(".")[2] for name in modules)
                raise ValueError(
                    f"peft_config: {field} contains {target!r}, but no module name of {type(backbone).__name__} ends "
                    f"in this.{hint or nearest(target, ends)}"
                )


def _parameters(config: PeftConfig) -> Sequence[str]:
    return getattr(config, "target_parameters", None) or ()


def _scalars(backbone: nn.Module) -> dict[str, nn.Parameter]:
    return {name: getattr(backbone, name) for name in SCALARS if hasattr(backbone, name)}


def _plain(name: str) -> str:
    """Returns a module's name in the model that an adapter wraps."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")
