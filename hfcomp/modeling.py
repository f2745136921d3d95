"""One face for the dual encoders of the Hub (CLIP, MetaCLIP 2, SigLIP, SigLIP 2), as the trainers need it.

[`DualEncoder`] holds a plain backbone and the objective's own learned state. Everything that a loss differentiates
leaves through its one `forward` as [`Features`]: state that is used outside `forward` is neither synchronised by DDP
nor saved.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, PreTrainedModel
from transformers.utils import ModelOutput, find_adapter_config_file, logging

logger = logging.get_logger(__name__)

OBJECTIVE_STATE_FILE = "objective_state.safetensors"
SUPPORTED_MODEL_TYPES = ("clip", "metaclip_2", "siglip")


@dataclass
class Features(ModelOutput):
    """What a loss may need of one batch. A field is `None` when the trainer's `uses` does not name it.

    `B` rows leave `DualEncoder.forward`; after `CompositionalTrainer.encode` the first dimension is the global `N`
    and `rows` is this process's slice of it. Embeddings are L2-normalised; rows that a mask excludes hold zeros.

    Attributes:
        image: `[N, D]`.
        text: `[N, D]`, of the captions.
        negative_image: `[N, D]`.
        negative_text: `[N, K, D]`.
        negative_image_mask: `[N]` bool, true where a row has a negative image.
        negative_text_mask: `[N, K]` bool.
        negative_kind: `[N, K]` long, ids of `hfcomp.data.columns.NEGATIVE_KINDS`.
        negative_concreteness: `[N, K]` float, 1 to 5, NaN = no rating.
        concepts: `[C, D]`, `max_concepts` for each image, in the order of images.
        owner: `[C]` long, the global row of the image, -1 = padding.
        tokens: `[B, P, D]`, L2-normalised patch tokens of this process's rows; never gathered.
        group_mask: `[G, N]` bool.
        reference_text: `[N, D]`, of a frozen copy of the backbone.
        reference_negative_text: `[N, K, D]`, likewise.
        logit_scale: scalar, the multiplier (already exponentiated).
        logit_bias: scalar, SigLIP only.
        learned: the objective's learned values by name.
        rows: this process's slice of `N`.
    """

    image: torch.Tensor | None = None
    text: torch.Tensor | None = None
    negative_image: torch.Tensor | None = None
    negative_text: torch.Tensor | None = None
    negative_image_mask: torch.Tensor | None = None
    negative_text_mask: torch.Tensor | None = None
    negative_kind: torch.Tensor | None = None
    negative_concreteness: torch.Tensor | None = None
    concepts: torch.Tensor | None = None
    owner: torch.Tensor | None = None
    tokens: torch.Tensor | None = None
    group_mask: torch.Tensor | None = None
    reference_text: torch.Tensor | None = None
    reference_negative_text: torch.Tensor | None = None
    logit_scale: torch.Tensor | None = None
    logit_bias: torch.Tensor | None = None
    learned: dict[str, torch.Tensor] | None = None
    rows: slice | None = None


WITH_GRADIENT = ("image", "text", "negative_image", "negative_text", "concepts")
WITHOUT_GRADIENT = (
    "negative_image_mask",
    "negative_text_mask",
    "negative_kind",
    "negative_concreteness",
    "owner",
)
SCALARS = ("logit_scale", "logit_bias", "learned")
USABLE_FIELDS = (*WITH_GRADIENT, *WITHOUT_GRADIENT, *SCALARS)


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
    model_type = getattr(getattr(backbone, "config", None), "model_type", None)
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
    return backbone


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
    state = Path(model) / OBJECTIVE_STATE_FILE
    if state.exists():
        unfrozen = {key: value for key, value in load_file(state).items() if key.startswith("backbone.")}
        unfrozen = {key.removeprefix("backbone."): value for key, value in unfrozen.items()}
        backbone.load_state_dict(unfrozen, strict=False)
    return backbone


def _pooled(output: Any) -> torch.Tensor:
    """`get_*_features` returns a tensor in transformers 4 and an output with `pooler_output` in 5."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def _normalized(features: torch.Tensor) -> torch.Tensor:
    features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    return nn.functional.normalize(features, dim=-1)


def encode_images(backbone: nn.Module, pixel_values: torch.Tensor) -> torch.Tensor:
    """L2-normalised image embeddings `[B, D]` of normalised pixels `[B, 3, H, W]`."""
    return _normalized(_pooled(backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))))


def encode_texts(backbone: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """L2-normalised text embeddings `[B, D]` of token ids `[B, L]`, padded on the right.

    No attention mask is passed: CLIP is causal, so that padding on the right changes nothing, and SigLIP attends to
    its padding by design.
    """
    return _normalized(_pooled(backbone.get_text_features(input_ids=input_ids)))


def scatter_rows(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Puts `values` `[n, D]` at the true places of `mask` `[...]`, zeros elsewhere: `[..., D]`. No host sync."""
    zeros = values.new_zeros((*mask.shape, values.shape[-1]))
    return zeros.masked_scatter(mask.unsqueeze(-1), values)


class DualEncoder(nn.Module):
    """A backbone with the objective's state, and one `forward` that returns [`Features`].

    Args:
        backbone: a CLIP- or SigLIP-like `PreTrainedModel`, or a `PeftModel` around one.
        objective_state: modules by name whose `forward()` returns the learned value; they leave through
            `Features.learned`, so that they are optimised, clipped, synchronised, saved and resumed.
        uses: names of the fields that the loss reads; only these are computed.
        image_mean: mean of the image processor, three channels.
        image_std: standard deviation of the image processor, three channels.
        rescale_factor: what one uint8 step is worth, usually 1/255.
        mini_batch_size: images (and texts) encoded at a time, their activations recomputed in backward; `None`
            encodes all at once and keeps them. Same loss and gradient, a fraction of the memory.

    Raises:
        ValueError: for an unknown name in `uses`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        objective_state: dict[str, nn.Module] | None = None,
        *,
        uses: Iterable[str] = ("image", "text", "logit_scale"),
        image_mean: Iterable[float] = (0.5, 0.5, 0.5),
        image_std: Iterable[float] = (0.5, 0.5, 0.5),
        rescale_factor: float = 1 / 255,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.objective_state = nn.ModuleDict(objective_state or {})
        self.uses = tuple(uses)
        unknown = [name for name in self.uses if name not in USABLE_FIELDS]
        if unknown:
            raise ValueError(f"uses names {unknown}, which no forward computes; known: {', '.join(USABLE_FIELDS)}.")
        self.mini_batch_size = mini_batch_size
        # The Trainer edits `model.config` (use_cache, special tokens); the checkpoint must keep the author's.
        self.config = copy.deepcopy(backbone.config)
        self.main_input_name = "input_ids"
        mean = torch.tensor(list(image_mean)).view(1, -1, 1, 1) / rescale_factor
        std = torch.tensor(list(image_std)).view(1, -1, 1, 1) / rescale_factor
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.pixel_mean.device

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether the backbone recomputes the activations of its layers."""
        return getattr(self.backbone, "is_activation_checkpointing", False)

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Recompute the backbone's activations layer by layer; called by the Trainer."""
        self.backbone.activation_checkpointing_enable(**kwargs)
        if self.is_peft:
            # The frozen embeddings' output needs a gradient, or checkpointed layers have no graph to follow.
            self.backbone.enable_input_require_grads()

    @property
    def is_peft(self) -> bool:
        """Whether the backbone is a `PeftModel`."""
        return not isinstance(self.backbone, PreTrainedModel) and hasattr(self.backbone, "peft_config")

    @property
    def plain(self) -> PreTrainedModel:
        """The backbone without PEFT's wrapper: owner of `logit_scale` and `logit_bias`."""
        return self.backbone.get_base_model() if self.is_peft else self.backbone

    def normalize_pixels(self, pixels: torch.Tensor) -> torch.Tensor:
        """uint8 pixels to what the image tower expects; float pixels are taken as normalised already."""
        if pixels.is_floating_point():
            return pixels
        return (pixels.to(self.pixel_mean.dtype) - self.pixel_mean) / self.pixel_std

    def forward(
        self,
        input_ids: torch.Tensor,
        pixels: Any = None,
        negative_input_ids: torch.Tensor | None = None,
        negative_text_mask: torch.Tensor | None = None,
        negative_image_mask: torch.Tensor | None = None,
        negative_kind: torch.Tensor | None = None,
        negative_concreteness: torch.Tensor | None = None,
        concept_input_ids: torch.Tensor | None = None,
        owner: torch.Tensor | None = None,
    ) -> Features:
        """Encodes a batch of the collator.

        Args:
            input_ids: captions, `[B, L]`.
            pixels: the `B` images and behind them the negative images that exist: a tensor `[M, 3, H, W]`, or an
                object with `len()` and `slice_to(start, stop, device)`, which moves a mini-batch at a time. uint8 is
                normalised here, float is taken as normalised already.
            negative_input_ids: the negative captions that exist, `[n, L]`, row by row.
            negative_text_mask: `[B, K]` bool, `n` of them true.
            negative_image_mask: `[B]` bool.
            negative_kind: `[B, K]` long.
            negative_concreteness: `[B, K]` float, NaN = no rating.
            concept_input_ids: the concepts that exist, `[c, L]`, image by image.
            owner: `[B * max_concepts]` long, the image's row in this batch, -1 = padding.
        """
        passed_on = {
            "negative_image_mask": negative_image_mask,
            "negative_text_mask": negative_text_mask,
            "negative_kind": negative_kind,
            "negative_concreteness": negative_concreteness,
            "owner": owner,
        }
        output: dict[str, Any] = {name: value for name, value in passed_on.items() if name in self.uses}
        output |= self._image_fields(pixels, len(input_ids), negative_image_mask)
        output |= self._text_fields(input_ids, negative_input_ids, negative_text_mask, concept_input_ids, owner)
        if "logit_scale" in self.uses:
            output["logit_scale"] = self.plain.logit_scale.exp().squeeze()
        if "logit_bias" in self.uses:
            output["logit_bias"] = self.plain.logit_bias.squeeze()
        if "learned" in self.uses:
            output["learned"] = {name: module() for name, module in self.objective_state.items()}
        return Features(**output)

    def _image_fields(self, pixels: Any, size: int, mask: torch.Tensor | None) -> dict[str, Any]:
        if "image" not in self.uses:
            return {}
        count = len(pixels) if "negative_image" in self.uses else size

        def encode(start: int, stop: int) -> torch.Tensor:
            if isinstance(pixels, torch.Tensor):
                part = pixels[start:stop].to(self.device)
            else:
                part = pixels.slice_to(start, stop, self.device)
            return encode_images(self.backbone, self.normalize_pixels(part))

        embeddings = self._in_mini_batches(encode, count)
        if "negative_image" not in self.uses:
            return {"image": embeddings}
        return {"image": embeddings[:size], "negative_image": scatter_rows(embeddings[size:], mask)}

    def _text_fields(
        self,
        input_ids: torch.Tensor,
        negative_input_ids: torch.Tensor | None,
        negative_text_mask: torch.Tensor | None,
        concept_input_ids: torch.Tensor | None,
        owner: torch.Tensor | None,
    ) -> dict[str, Any]:
        parts = {"text": input_ids, "negative_text": negative_input_ids, "concepts": concept_input_ids}
        parts = {name: ids for name, ids in parts.items() if name in self.uses}
        if not parts:
            return {}
        ids = torch.cat(list(parts.values()))

        def encode(start: int, stop: int) -> torch.Tensor:
            return encode_texts(self.backbone, ids[start:stop])

        embeddings = self._in_mini_batches(encode, len(ids))
        split = dict(zip(parts, embeddings.split([len(part) for part in parts.values()]), strict=True))
        if "negative_text" in split:
            split["negative_text"] = scatter_rows(split["negative_text"], negative_text_mask)
        if "concepts" in split:
            split["concepts"] = scatter_rows(split["concepts"], owner >= 0)
        return split

    def _in_mini_batches(self, encode: Callable[[int, int], torch.Tensor], count: int) -> torch.Tensor:
        size = self.mini_batch_size
        if size is None or not torch.is_grad_enabled():
            return encode(0, count) if size is None else _encode_parts(encode, count, size)
        return _encode_parts(lambda *span: checkpoint(encode, *span, use_reentrant=False), count, size)

    def dummy_inputs(self) -> dict[str, Any]:
        """One image, text, negative and concept, to find out which parameters the used fields depend on."""
        vision, text = self.plain.config.vision_config, self.plain.config.text_config
        ids = torch.ones((1, text.max_position_embeddings), dtype=torch.long, device=self.device)
        one = torch.ones((1, 1), dtype=torch.bool, device=self.device)
        return {
            "input_ids": ids,
            "pixels": torch.zeros((2, vision.num_channels, vision.image_size, vision.image_size)),
            "negative_input_ids": ids,
            "negative_text_mask": one,
            "negative_image_mask": one[0],
            "concept_input_ids": ids,
            "owner": torch.zeros(1, dtype=torch.long, device=self.device),
        }

    def freeze_unused(self) -> list[str]:
        """Freezes the trainable parameters on which no used field depends, and returns their names.

        An output that no loss uses, or a parameter without gradient, stops DDP at its second step.
        """
        training, size = self.training, self.mini_batch_size
        self.eval()
        self.mini_batch_size = None
        with torch.enable_grad():
            features = self(**self.dummy_inputs())
            learned = (features.learned or {}).values()
            tensors = [features[name] for name in features if name != "learned"] + list(learned)
            total = sum(value.float().sum() for value in tensors if value.requires_grad)
            named = [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]
            gradients = (
                torch.autograd.grad(total, [parameter for _, parameter in named], allow_unused=True)
                if isinstance(total, torch.Tensor)
                else [None] * len(named)
            )
        self.train(training)
        self.mini_batch_size = size
        frozen = [name for (name, _), gradient in zip(named, gradients, strict=True) if gradient is None]
        for name in frozen:
            self.get_parameter(name).requires_grad_(False)
        return frozen

    def extra_state(self) -> dict[str, torch.Tensor]:
        """What `save_pretrained` of the backbone does not write: the objective's state.

        Under PEFT also the parameters of the base model that were unfrozen by hand: an adapter has no `logit_scale`.
        """
        state = {f"objective_state.{name}": value for name, value in self.objective_state.state_dict().items()}
        if self.is_peft:
            from peft import get_peft_model_state_dict

            adapter = get_peft_model_state_dict(self.backbone, adapter_name=self.backbone.active_adapter)
            saved = {value.data_ptr() for value in adapter.values()}
            for name, parameter in self.backbone.named_parameters():
                if parameter.requires_grad and parameter.data_ptr() not in saved:
                    state[f"backbone.{name}"] = parameter.detach()
        return {name: value.detach().cpu().contiguous() for name, value in state.items()}

    def save_pretrained(self, folder: str | Path, **kwargs: Any) -> None:
        """Writes the plain backbone (or its adapter) and, where there is one, the objective's state beside it."""
        kwargs.pop("state_dict", None)
        self.backbone.save_pretrained(folder, **kwargs)
        state = self.extra_state()
        if state and kwargs.get("is_main_process", True):
            save_file(state, Path(folder) / OBJECTIVE_STATE_FILE, metadata={"format": "pt"})

    def load_pretrained(self, folder: str | Path) -> None:
        """Loads in place what `save_pretrained` wrote; every key must be there and none may be left over.

        Raises:
            ValueError: when weights or the objective's state do not fit, naming the keys.
        """
        folder = Path(folder)
        if self.is_peft:
            self._load_adapter(folder)
        else:
            _load_strictly(self.backbone, _read_weights(folder), folder)
        expected = self.extra_state()
        path = folder / OBJECTIVE_STATE_FILE
        if not expected and not path.exists():
            return
        state = load_file(path) if path.exists() else {}
        if set(state) != set(expected):
            raise ValueError(
                f"{path}: holds {sorted(state)}, but this objective expects {sorted(expected)}. "
                "Resume with the trainer that wrote the checkpoint."
            )
        self.load_state_dict(state, strict=False)

    def _load_adapter(self, folder: Path) -> None:
        from peft import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

        adapter = self.backbone.active_adapter
        # PEFT writes an adapter of a name of its own into a folder of that name
        folder = folder if adapter == "default" else folder / adapter
        state = load_peft_weights(str(folder), device="cpu")
        expected = get_peft_model_state_dict(self.backbone, adapter_name=adapter)
        missing, unexpected = sorted(set(expected) - set(state)), sorted(set(state) - set(expected))
        if missing or unexpected:
            raise ValueError(f"{folder}: the adapter misses {missing} and holds unexpected {unexpected}.")
        set_peft_model_state_dict(self.backbone, state, adapter_name=adapter)


def _encode_parts(encode: Callable[[int, int], torch.Tensor], count: int, size: int) -> torch.Tensor:
    starts = range(0, max(count, 1), size)
    return torch.cat([encode(start, min(start + size, count)) for start in starts])


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return {key: value for name in sorted(names) for key, value in load_file(folder / name).items()}
    path = folder / "model.safetensors"
    if not path.exists():
        raise ValueError(f"{folder}: no model.safetensors here; expected a folder that a trainer of hfcomp saved.")
    return load_file(path)


def _load_strictly(model: nn.Module, state: dict[str, torch.Tensor], folder: Path) -> None:
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise ValueError(f"{folder}: the weights miss {missing} and hold unexpected {unexpected}.")
