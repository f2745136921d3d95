"""Weights between those of a base and of a model that was tuned from it: WiSE-FT (Wortsman et al. 2022)."""

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


def check_base(backbone: nn.Module, base: nn.Module, adapter_place: str | Path, base_place: str | Path) -> None:
    """Checks that an adapter is loaded over a base: that what it left frozen is the base's."""
    expected = dict(base.named_parameters())
    for name, value in backbone.get_base_model().named_parameters():
        plain = name.replace(".base_layer", "").replace(".original_module", "")
        if value.requires_grad or plain not in expected:
            continue
        if value.shape != expected[plain].shape or not torch.equal(value, expected[plain]):
            trained_on = backbone.peft_config[backbone.active_adapter].base_model_name_or_path
            raise ValueError(
                f"{adapter_place} is an adapter of {trained_on}, whose {plain} differs from that of {base_place}. "
                "Pass the model that the adapter was trained on."
            )


def merge_without_magnitudes(backbone: nn.Module, place: str | Path) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The plain model of an adapter, `W + scaling * B A`; of DoRA without its magnitudes, which come beside it.

    Returns:
        The model, and by name of a weight `[out, ...]` its magnitudes `[out]`; none for LoRA.
    """
    from peft.tuners.lora import Embedding, LoraLayer

    adapter = backbone.active_adapter
    config = backbone.peft_config[adapter]
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != LORA:
        raise ValueError(f"{place}: found an adapter of the kind {kind}, expected LoRA or DoRA.")
    magnitudes = {}
    for name, layer in backbone.get_base_model().named_modules():
        if not isinstance(layer, LoraLayer) or adapter not in layer.lora_magnitude_vector:
            continue
        if isinstance(layer, Embedding):
            raise ValueError(f"{place}: {name} is an embedding with DoRA, expected linear layers and convolutions.")
        magnitudes[f"{name}.weight"] = layer.lora_magnitude_vector[adapter].weight.detach().clone().flatten()
        layer.use_dora[adapter] = False  # merges the direction alone
        layer.lora_variant.pop(adapter, None)
    return backbone.merge_and_unload(), magnitudes


# Settings that decide how weights of equal names and shapes are used.
TOWERS = ("text_config", "vision_config")
SETTINGS = ("hidden_act", "num_attention_heads", "layer_norm_eps", "image_size", "patch_size", "eos_token_id")
BOTH = "Both have to be of one architecture: pass the model that the tuned one was trained from."


class Interpolation:
    """A model whose weights are set between those of a base and of a model that was tuned from it.

    At `alpha` each weight is `(1 - alpha) * base + alpha * tuned` (WiSE-FT: Wortsman et al., "Robust fine-tuning of
    zero-shot models", CVPR 2022, arXiv:2109.01903, section 3), computed in fp32 at least and rounded to the precision
    of the tuned model: what is scored here is what `save` writes. 0 gives the base and 1 the tuned model exactly.

    `logit_scale` is interpolated as it is stored, so the scale itself, which is its exponential, is a geometric mean;
    `logit_bias` is interpolated as it is. Buffers of integers have to be equal.

    A weight with a magnitude is that of DoRA (Liu et al. 2024, arXiv:2402.09353, Eq. 5): `tuned` then is the
    direction `W + scaling * B A`. Direction and magnitude are interpolated separately, the magnitude from the norms of
    the base's rows, which scales the adapter as a whole; interpolating the merged weights would be something else.

    Args:
        base: a plain model of transformers.
        tuned: another one of the same architecture; it is copied.
        magnitudes: `[out]` by name of a weight `[out, ...]`.
        dtype: of the weights that are saved; by default that of the tuned model.

    Attributes:
        model: in fp32, with the weights of the last `set`; at first those of the base.
        dtype: of the weights that are saved.

    Raises:
        ValueError: for models of different architectures, naming the first setting, weight or shape that differs, or
            buffers of integers that differ.
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
        # A frozen tower takes no memory and no time.
        changed = [name for name in theirs if name in self._magnitudes or not _equal(ours[name], theirs[name])]
        for name in changed:
            if not theirs[name].is_floating_point():
                raise ValueError(f"{name} holds whole numbers and differs between base and tuned model. {BOTH}")
        self._ends = {name: tuple(one[name].detach().clone() for one in (ours, theirs)) for name in changed}
        self._place = {name: value for name, value in self.model.state_dict().items() if name in self._ends}
        self.set(0.0)

    def set(self, alpha: float) -> nn.Module:
        """Gives the model the weights at `alpha`, from 0 (base) to 1 (tuned), and returns it."""
        check_alpha(alpha)
        with torch.no_grad():
            for name, own in self._place.items():
                own.copy_(self._weight(name, alpha).to(self.dtype))
        return self.model

    def to(self, device: str | torch.device) -> Interpolation:
        self.model.to(device)
        self._ends = {name: tuple(end.to(device) for end in ends) for name, ends in self._ends.items()}
        self._magnitudes = {name: value.to(device) for name, value in self._magnitudes.items()}
        self._place = {name: value for name, value in self.model.state_dict().items() if name in self._ends}
        return self

    def save(self, folder: str | Path, alpha: float) -> None:
        """Writes the model at `alpha` as a trainer does, in the precision of `dtype`."""
        copy.deepcopy(self.set(alpha)).to(self.dtype).save_pretrained(folder)
        write_sentence_transformers_files(folder, self.model.config)

    def _weight(self, name: str, alpha: float) -> torch.Tensor:
        base, tuned = (end.to(torch.promote_types(end.dtype, torch.float32)) for end in self._ends[name])
        weight = torch.lerp(base, tuned.to(base.dtype), alpha)  # exact at both ends, and where they are equal
        if name not in self._magnitudes:
            return weight
        # DoRA's weight is a direction times a learned norm of each row. Without an adapter that norm is the base's
        # own, so it is where the magnitude starts at alpha 0.
        magnitude = torch.lerp(_norms(base), self._magnitudes[name].to(base).view_as(_norms(base)), alpha)
        return weight * (magnitude / _norms(weight).clamp_min(torch.finfo(weight.dtype).tiny))


def load_interpolation(base: str | Path, tuned: str | Path) -> Interpolation:
    """The weights between two models by Hub id or folder; the tuned one may be an adapter (LoRA or DoRA) of the base.

    An adapter is merged: at `alpha` its LoRA scaling is `alpha` times its own, and so is what was trained beside it
    (biases, modules to save, `logit_scale`).

    Raises:
        ValueError: as `load_backbone` and [`Interpolation`], for a folder that is not there, or an adapter of another
            kind or base.
    """
    for place in (base, tuned):
        check_place(place)
    start, end = load_backbone(base, dtype="auto"), load_backbone(tuned, dtype="auto")
    if is_peft(start):
        raise ValueError(f"{base} is an adapter. Name a whole model, such as the one that {tuned} is for.")
    if not is_peft(end):
        return Interpolation(start, end)
    dtype = start.dtype
    end = load_backbone(tuned, dtype=torch.float32)  # half precision would round the merged weights twice
    check_base(end, start.float(), tuned, base)
    merged, magnitudes = merge_without_magnitudes(end, tuned)
    return Interpolation(start, merged, magnitudes=magnitudes, dtype=dtype)


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:  # not NaN either
        raise ValueError(f"alpha: found {alpha:g}, expected 0 (the base) to 1 (the tuned model).")


def _norms(weight: torch.Tensor) -> torch.Tensor:
    """`[out, 1, ...]`: the Euclidean norm of each row of a weight `[out, ...]`."""
    return torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one == other).all())  # of any two precisions


def _check_architectures(base: nn.Module, tuned: nn.Module) -> None:
    ours, theirs = _settings(base.config), _settings(tuned.config)
    for name, value in theirs.items():
        if ours.get(name) != value:
            raise ValueError(f"{name} is {ours.get(name)!r} in the base and {value!r} in the tuned model. {BOTH}")
    ours, theirs = base.state_dict(), tuned.state_dict()
    for name in (*theirs, *ours):
        if name not in ours or name not in theirs:
            has, lacks = ("tuned model", "base") if name in theirs else ("base", "tuned model")
            raise ValueError(f"the {has} has the weight {name} and the {lacks} does not. {BOTH}")
        if ours[name].shape != theirs[name].shape:
            shapes = f"{list(ours[name].shape)} in the base and {list(theirs[name].shape)} in the tuned model"
            raise ValueError(f"the weight {name} is {shapes}. {BOTH}")


def _settings(config: Any) -> dict[str, Any]:
    """What decides how weights are used, by name."""
    towers = {tower: getattr(config, tower).to_dict() for tower in TOWERS}
    found = {f"{tower}.{name}": values.get(name) for tower, values in towers.items() for name in SETTINGS}
    # Weights of equal names and shapes may still be used differently, for example with another activation: a mixture
    # of such models is neither.
    return {"model_type": config.model_type, **found}
