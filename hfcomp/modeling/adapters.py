"""Adapters of PEFT for dual encoders: which modules they adapt, adding one, and merging one into a plain model.

PEFT matches names, not effects. A suffix such as `out_proj` also matches the output projection of SigLIP's attention
pooling, where an adapter does nothing: `nn.MultiheadAttention` reads its weight and never calls the module. Targets
are therefore resolved here, and one without an effect is an error.
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

from hfcomp.modeling.backbones import TOWERS, load_backbone, load_processor
from hfcomp.modeling.checkpoints import is_peft, save_objective_state, write_sentence_transformers_files
from hfcomp.reading import nearest
from hfcomp.writing import replacing_folder

if TYPE_CHECKING:
    from peft import LoraConfig, PeftConfig, PeftModel

logger = logging.get_logger(__name__)

KINDS = ("lora", "dora")
_LAYER = r"(text|vision)_model\.encoder\.layers\.\d+"
TARGETS = {
    "attention": rf"{_LAYER}\.self_attn\.(q|k|v|out)_proj",
    "mlp": rf"{_LAYER}\.mlp\.fc[12]",
    "head": r"text_projection|visual_projection|text_model\.head|vision_model\.head\.mlp\.fc[12]",
    "pooling": r"vision_model\.head\.attention",
}
"""Groups of modules by name: the encoders' layers, what maps a pooled state to the embedding, SigLIP's pooling."""
DEFAULT_TARGETS = ("attention", "mlp")
SCALARS = ("logit_scale", "logit_bias")
# PEFT's word for all linear layers, instead of names.
PEFT_ALL = "all-linear"
_ADAPTED = (nn.Linear, nn.Conv2d, nn.Embedding, nn.MultiheadAttention)
_WITHOUT_EFFECT = "nn.MultiheadAttention reads the weight of its out_proj and never calls the module"


class _Targets(NamedTuple):
    """`pattern` matches modules' whole names; `parameters` are names of parameters."""

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
    """A `LoraConfig` whose targets are exactly the modules that they name.

    Args:
        backbone: a plain CLIP or SigLIP.
        kind: `lora` or `dora`.
        rank: rank of an update.
        alpha: the update is multiplied by `alpha / rank`; unset: twice the rank.
        dropout: dropout of the adapters' inputs, 0 to 1.
        targets: keys of `TARGETS`, ends of module names (`q_proj`), or regular expressions of whole names; by default
            `DEFAULT_TARGETS`.
        frozen_towers: `image`, `text`: towers without adapters.

    Raises:
        ValueError: for a target that no module has, that has no effect, or that DoRA or dropout cannot adapt.
    """
    from peft import LoraConfig

    found = _resolve(backbone, targets or DEFAULT_TARGETS, frozen_towers)
    if found.parameters and (kind == "dora" or dropout):
        what = "DoRA" if kind == "dora" else f"dropout ({dropout:g})"
        raise ValueError(
            f"lora_targets: {', '.join(found.parameters)} is adapted as a parameter, for which PEFT has no {what}. "
            "Leave SigLIP's pooling out of the targets, or use lora without dropout."
        )
    return LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else alpha,
        lora_dropout=dropout,
        use_dora=kind == "dora",
        target_modules=found.pattern or [],
        target_parameters=found.parameters or None,
    )


def add_adapter(backbone: PreTrainedModel, config: PeftConfig, *, seed: int) -> PeftModel:
    """Wraps a plain CLIP or SigLIP in a new adapter, in place; a trained `logit_scale` or `logit_bias` stays trained.

    A `config` without `target_modules` gets those of `lora_config`.

    Raises:
        ValueError: for a target or a `modules_to_save` that no module has, or targets without effect.
    """
    from peft import get_peft_model

    config = copy.deepcopy(config)
    _check_names(backbone, config)
    if hasattr(config, "target_modules") and not config.target_modules and not _parameters(config):
        config.target_modules = lora_config(backbone).target_modules
    # PEFT freezes everything that it does not adapt. The losses need their scale and bias trained, and no adapter has
    # them.
    trained = [parameter for parameter in _scalars(backbone).values() if parameter.requires_grad]
    # Every process draws its own adapter, and so does a run that is resumed: with one seed they begin with the same.
    set_seed(seed)
    # The commit of a base from the Hub: the adapter is for that commit and no later one.
    adapted = get_peft_model(backbone, config, revision=getattr(backbone.config, "_commit_hash", None))
    check_adapter(adapted)
    for parameter in trained:
        parameter.requires_grad_(True)
    return adapted


def check_adapter(adapted: nn.Module) -> None:
    """Looks for adapters without an effect in a `PeftModel`, and warns of PEFT's layer for `nn.MultiheadAttention`.

    Raises:
        ValueError: naming the modules that are adapted without an effect; for a plain model with layers of an adapter,
            which would be saved under their names.
    """
    if not is_peft(adapted):
        if any(hasattr(module, "base_layer") for module in adapted.modules()):
            raise ValueError(
                "the model has layers of an adapter, which an earlier trainer or get_peft_model added in place. Pass "
                "its PeftModel, or load the model again."
            )
        return
    from peft.tuners.lora.layer import MultiheadAttention
    from peft.tuners.tuners_utils import BaseTunerLayer

    modules = dict(adapted.named_modules())
    # PEFT's layer for nn.MultiheadAttention writes the update of out_proj into the base's weight in each forward, so
    # there an adapter of out_proj does have an effect.
    own = {f"{name}.base_layer" for name, module in modules.items() if isinstance(module, MultiheadAttention)}
    idle = [
        f"{_plain(name)}.out_proj"
        for name, module in modules.items()
        if isinstance(module, nn.MultiheadAttention)
        and isinstance(module.out_proj, BaseTunerLayer)
        and name not in own
    ]
    if idle:
        raise ValueError(
            f"an adapter of {', '.join(idle)} has no effect: {_WITHOUT_EFFECT}. Exclude it, for example with "
            rf"target_modules=r'{TARGETS['attention']}'."
        )
    if own:
        logger.warning(
            "PEFT's layer for nn.MultiheadAttention applies the update of its output projection twice and rounds the "
            "base's weights in each step, so that a resumed run may differ by rounding. "
            "target_parameters=['vision_model.head.attention.in_proj_weight'] is exact."
        )


def merge_adapter(adapter: str | Path, output_dir: str | Path) -> Path:
    """Merges an adapter into its base and writes the plain model, its processor and the objective's state.

    The result is what full fine-tuning writes: `CLIPModel.from_pretrained(output_dir)` loads it without PEFT. The
    `logit_scale` that was trained with the adapter is in it.

    Args:
        adapter: folder or Hub id of an adapter.
        output_dir: a new folder, or an empty one.

    Returns:
        `output_dir`.

    Raises:
        ValueError: for a model that is not an adapter.
        OSError: where the base is not found, or `output_dir` is not empty.
    """
    output_dir = Path(output_dir)
    if output_dir.exists() and (not output_dir.is_dir() or any(output_dir.iterdir())):
        raise FileExistsError(f"{output_dir} is not an empty folder. Choose another, or remove it first.")
    merged = load_merged(adapter)
    with replacing_folder(output_dir) as part:
        _write(merged, adapter, part)
    return output_dir


def write_merged(adapter: Path, folder: Path) -> None:
    _write(load_merged(adapter), adapter, folder)


def load_merged(adapter: str | Path) -> PreTrainedModel:
    """The plain model that an adapter makes of its base, as fp32, by the adapter's folder or Hub id."""
    backbone = load_backbone(adapter, dtype=torch.float32)
    if not is_peft(backbone):
        raise ValueError(f"{adapter} is a plain model, not an adapter: it has no adapter_config.json to merge.")
    # With safe_merge PEFT raises for a merged weight that is not finite, instead of writing it.
    return backbone.merge_and_unload(safe_merge=True).requires_grad_(True)


def _write(merged: PreTrainedModel, adapter: str | Path, folder: Path) -> None:
    merged.save_pretrained(folder)
    write_sentence_transformers_files(folder, merged.config)
    load_processor(adapter, argument="processor").save_pretrained(folder)
    save_objective_state(adapter, folder)


def _resolve(backbone: nn.Module, targets: Iterable[str], frozen_towers: Collection[str]) -> _Targets:
    frozen = tuple(part for tower in frozen_towers for part in TOWERS[tower])
    modules = {name: module for name, module in backbone.named_modules() if isinstance(module, _ADAPTED)}
    patterns, pooling = [], []
    for target in targets:
        pattern, matched = _match(backbone, modules, target)
        kept = [name for name in matched if name.partition(".")[0] not in frozen]
        if not kept:
            raise ValueError(
                f"lora_targets: {target!r} matches modules of a tower that is frozen or that the objective does not "
                f"use ({', '.join(frozen_towers)}), and no others. Leave it out of lora_targets."
            )
        attentions = [name for name in kept if isinstance(modules[name], nn.MultiheadAttention)]
        pooling += attentions
        if len(attentions) < len(kept):
            patterns.append(pattern)
    # PEFT matches one expression against whole names and knows no exceptions: frozen towers, and pooling that is
    # adapted as a parameter, must be excluded inside the expression.
    excluded = [re.escape(name) for name in (*frozen, *dict.fromkeys(pooling))]
    if patterns and excluded:
        patterns = [rf"(?!({'|'.join(excluded)})(\.|$))({'|'.join(patterns)})"]
    # SigLIP's attention pooling is one nn.MultiheadAttention. PEFT's layer for it applies the update of the output
    # projection twice and rewrites the base's weights in each forward, which rounds them (seen in PEFT 0.21). Its
    # query, key and value projection is therefore adapted as a parameter, which is exact and which plain PEFT loads;
    # its output projection is not adapted.
    parameters = [f"{name}.in_proj_weight" for name in dict.fromkeys(pooling)]
    return _Targets("|".join(patterns) or None, parameters)


def _match(backbone: nn.Module, modules: dict[str, nn.Module], target: str) -> tuple[str, list[str]]:
    """The pattern of whole names that a target stands for, and the names of modules that it matches."""
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
            f"{', '.join(TARGETS)}, the end of a module's name, or a regular expression of whole names. The names of "
            f"this model's modules end in {', '.join(ends)}."
        )
    idle = [name for name in matched if _in_attention(backbone, name)]
    if idle:
        raise ValueError(
            f"lora_targets: {target!r} matches {', '.join(idle)}, where an adapter has no effect: {_WITHOUT_EFFECT}. "
            "The target attention stands for the encoders' layers alone; pooling for the queries, keys and values of "
            "SigLIP's attention pooling."
        )
    return pattern, matched


def _in_attention(model: nn.Module, name: str) -> bool:
    return isinstance(model.get_submodule(name.rpartition(".")[0]), nn.MultiheadAttention)


def _check_names(backbone: nn.Module, config: PeftConfig) -> None:
    # PEFT ignores a name that matches no module if others match one.
    modules = [name for name, _ in backbone.named_modules() if name]
    for field in ("target_modules", "modules_to_save"):
        names = getattr(config, field, None) or ()
        for one in () if isinstance(names, str) or PEFT_ALL in names else names:
            if not any(name == one or name.endswith(f".{one}") for name in modules):
                hint = " It is trained without being named." if one in SCALARS else ""
                ends = dict.fromkeys(name.rpartition(".")[2] for name in modules)
                raise ValueError(
                    f"peft_config: {field} names {one!r}, but no module of {type(backbone).__name__} ends in that."
                    f"{hint or nearest(one, ends)}"
                )


def _parameters(config: PeftConfig) -> Sequence[str]:
    return getattr(config, "target_parameters", None) or ()


def _scalars(backbone: nn.Module) -> dict[str, nn.Parameter]:
    return {name: getattr(backbone, name) for name in SCALARS if hasattr(backbone, name)}


def _plain(name: str) -> str:
    """A module's name in the model that an adapter wraps."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")
