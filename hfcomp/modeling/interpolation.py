"""Interpolates weights between a base and a model tuned from it: WiSE-FT (Wortsman et al. 2022)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfcomp.modeling.backbones import load_backbone
from hfcomp.modeling.checkpoints import is_peft, write_sentence_transformers_files
from hfcomp.reading import check_place

LORA = "LORA"


def check_base(backbone: nn.Module, base: nn.Module, adapter: str | Path, base_source: str | Path) -> None:
    """Checks that an adapter was trained on this base: weights that it left frozen must equal the base's."""
    expected = dict(base.named_parameters())
    for name, value in backbone.get_base_model().named_parameters():
        plain = name.replace(".base_layer", "").replace(".original_module", "")
        if value.requires_grad or plain not in expected:
            continue
        if value.shape != expected[plain].shape or not torch.equal(value, expected[plain]):
            trained_on = backbone.peft_config[backbone.active_adapter].base_model_name_or_path
            raise ValueError(
                f"{adapter} is an adapter for {trained_on}, whose {plain} differs from that of {base_source}. "
                "Pass the model on which the adapter was trained."
            )


def merge_without_magnitudes(backbone: nn.Module, source: str | Path) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Merges an adapter into a plain model, `W + scaling * B A`; DoRA's magnitudes are returned separately.

    Returns:
        The model, and the magnitudes `[out]` by name of the weight `[out, ...]`; none for LoRA.
    """
    from peft.tuners.lora import Embedding, LoraLayer

    adapter = backbone.active_adapter
    config = backbone.peft_config[adapter]
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != LORA:
        raise ValueError(f"{source}: found an adapter of type {kind}, expected LoRA or DoRA.")
    magnitudes = {}
    for name, layer in backbone.get_base_model().named_modules():
        if not isinstance(layer, LoraLayer) or adapter not in layer.lora_magnitude_vector:
            continue
        if isinstance(layer, Embedding):
            raise ValueError(
                f"{source}: {name} is an embedding with DoRA, expected only linear layers and convolutions."
            )
        magnitudes[f"{name}.weight"] = layer.lora_magnitude_vector[adapter].weight.detach().clone().flatten()
        layer.use_dora[adapter] = False  # merge only the direction
        layer.lora_variant.pop(adapter, None)
    return backbone.merge_and_unload(), magnitudes


# Settings that determine how weights with equal names and shapes are used.
TOWERS = ("text_config", "vision_config", "image_config")
SETTINGS = ("hidden_act", "num_attention_heads", "layer_norm_eps", "image_size", "patch_size", "eos_token_id")
COUNTER = ".num_batches_tracked"
BOTH = "Both models need the same architecture: pass the model from which the tuned one was trained."


class Interpolation:
    """A model whose weights lie between those of a base and of a model tuned from it.

    At `alpha`, each weight is `(1 - alpha) * base + alpha * tuned` (WiSE-FT: Wortsman et al., "Robust fine-tuning of
    zero-shot models", CVPR 2022, arXiv:2109.01903, section 3), computed in at least fp32 and rounded to the precision
    of the tuned model, so the scored weights are the weights that `save` writes. 0 gives exactly the base, and 1
    exactly the tuned model.

    `logit_scale` is interpolated as stored, so the scale itself, its exponential, is a geometric mean; `logit_bias` is
    interpolated directly. Integer buffers must be equal, except for the batch counters of batch norms, which nothing
    computed depends on: those of the base at 0, otherwise those of the tuned model.

    A weight with a magnitude comes from DoRA (Liu et al. 2024, arXiv:2402.09353, Eq. 5): `tuned` is then the direction
    `W + scaling * B A`. Direction and magnitude are interpolated separately, the magnitude starting from the norms of
    the base's rows. This scales the adapter as a whole, which interpolating the merged weights would not.

    Args:
        base: A plain transformers model.
        tuned: Another model with the same architecture; it is copied.
        magnitudes: Magnitudes `[out]` by name of the weight `[out, ...]`.
        dtype: Dtype of the saved weights. Defaults to that of the tuned model.

    Attributes:
        model: Model in fp32, with the weights of the last `set`; initially those of the base.
        dtype: Dtype of the saved weights.

    Raises:
        ValueError: If the models have different architectures (the message names the first setting, weight or shape
            that differs), or integer buffers differ.
    """

    def __init__(
        self,
        base: nn.Module,
        tuned: nn.Module,
        *,
        magnitudes: Mapping[str, torch.Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_architectures(base, tuned)
        self.dtype = tuned.dtype if dtype is None else dtype
        self.model = copy.deepcopy(tuned).float().eval()
        self._magnitudes = dict(magnitudes or {})
        ours, theirs = base.state_dict(), tuned.state_dict()
        # Keep only changed weights, so a frozen tower takes no memory and no time. The precisions may differ.
        changed = [name for name in theirs if name in self._magnitudes or not (ours[name] == theirs[name]).all()]
        for name in changed:
            if not theirs[name].is_floating_point() and not name.endswith(COUNTER):
                raise ValueError(f"{name} contains integers that differ between base and tuned model. {BOTH}")
        self._ends = {name: tuple(state[name].detach().clone() for state in (ours, theirs)) for name in changed}
        self._targets = {name: value for name, value in self.model.state_dict().items() if name in self._ends}
        self.set(0.0)

    def set(self, alpha: float) -> nn.Module:
        """Sets the model's weights to those at `alpha`, from 0 (base) to 1 (tuned), and returns the model."""
        check_alpha(alpha)
        with torch.no_grad():
            for name, target in self._targets.items():
                weight = self._weight(name, alpha)
                target.copy_(weight.to(self.dtype) if weight.is_floating_point() else weight)
        return self.model

    def to(self, device: str | torch.device) -> Interpolation:
        self.model.to(device)
        self._ends = {name: tuple(end.to(device) for end in ends) for name, ends in self._ends.items()}
        self._magnitudes = {name: value.to(device) for name, value in self._magnitudes.items()}
        self._targets = {name: value for name, value in self.model.state_dict().items() if name in self._ends}
        return self

    def save(self, folder: str | Path, alpha: float) -> None:
        """Writes the model at `alpha` like a trainer, in the precision of `dtype`."""
        copy.deepcopy(self.set(alpha)).to(self.dtype).save_pretrained(folder)
        write_sentence_transformers_files(folder, self.model.config)

    def _weight(self, name: str, alpha: float) -> torch.Tensor:
        if name.endswith(COUNTER):
            return self._ends[name][alpha > 0]
        base, tuned = (end.to(torch.promote_types(end.dtype, torch.float32)) for end in self._ends[name])
        weight = torch.lerp(base, tuned.to(base.dtype), alpha)  # exact at both ends, and for equal weights
        if name not in self._magnitudes:
            return weight
        # DoRA's weight is a direction times a learned norm per row. Without an adapter, that norm is the base's, so
        # the magnitude starts there at alpha 0.
        magnitude = torch.lerp(_norms(base), self._magnitudes[name].to(base).view_as(_norms(base)), alpha)
        return weight * (magnitude / _norms(weight).clamp_min(torch.finfo(weight.dtype).tiny))


def load_interpolation(base: str | Path, tuned: str | Path) -> Interpolation:
    """Loads a base and a tuned model, or a LoRA or DoRA adapter for the base, by Hub id or folder.

    An adapter is merged: at `alpha`, its LoRA scaling is multiplied by `alpha`, and the other weights trained with it
    (biases, modules to save, `logit_scale`) are interpolated too.

    Raises:
        ValueError: In the same cases as `load_backbone` and [`Interpolation`], if a folder does not exist, or if the
            adapter is of another type or for another base.
    """
    for source in (base, tuned):
        check_place(source)
    start, end = load_backbone(base, dtype="auto"), load_backbone(tuned, dtype="auto")
    if is_peft(start):
        raise ValueError(f"{base} is an adapter. Pass a complete model, such as the base model of {tuned}.")
    if not is_peft(end):
        return Interpolation(start, end)
    dtype = start.dtype
    end = load_backbone(tuned, dtype=torch.float32)  # half precision would round the merged weights twice
    check_base(end, start.float(), tuned, base)
    merged, magnitudes = merge_without_magnitudes(end, tuned)
    return Interpolation(start, merged, magnitudes=magnitudes, dtype=dtype)


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:  # also catches NaN
        raise ValueError(f"alpha: found {alpha:g}, expected 0 (the base) to 1 (the tuned model).")


def _norms(weight: torch.Tensor) -> torch.Tensor:
    """Returns the Euclidean norm of each row of a weight `[out, ...]`, shape `[out, 1, ...]`."""
    return torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)


def _check_architectures(base: nn.Module, tuned: nn.Module) -> None:
    ours, theirs = _settings(base.config), _settings(tuned.config)
    for name, value in theirs.items():
        if ours.get(name) != value:
            raise ValueError(f"{name} is {ours.get(name)!r} in the base and {value!r} in the tuned model. {BOTH}")
    ours, theirs = base.state_dict(), tuned.state_dict()
    for name in (*theirs, *ours):
        if name not in ours or name not in theirs:
            has, lacks = ("tuned model", "base") if name in theirs else ("base", "tuned model")
            raise ValueError(f"the {has} has the weight {name}, but the {lacks} does not. {BOTH}")
        if ours[name].shape != theirs[name].shape:
            shapes = f"{list(ours[name].shape)} in the base and {list(theirs[name].shape)} in the tuned model"
            raise ValueError(f"the weight {name} has the shape {shapes}. {BOTH}")


def _settings(config: Any) -> dict[str, Any]:
    """Returns the settings that determine how weights are used, by name."""
    towers = {tower: getattr(config, tower).to_dict() for tower in TOWERS if hasattr(config, tower)}
    settings = {f"{tower}.{name}": values.get(name) for tower, values in towers.items() for name in SETTINGS}
    # Weights with equal names and shapes may still be used differently, for example with another activation. Mixing
    # such models would give neither.
    return {"model_type": config.model_type, **settings}
