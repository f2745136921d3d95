"""The model for trainers: a backbone, the objective's state, and one `forward` for everything that a loss needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hfcomp.distributed import gather_sizes
from hfcomp.distributed.shards import is_sharded
from hfcomp.fields import FIELDS, Features
from hfcomp.modeling import checkpoints
from hfcomp.modeling.embedding import (
    blank_images,
    check_tokens,
    encode_image_tokens,
    encode_images,
    encode_phrases,
    encode_texts,
    similarity_scale,
)


class DualEncoder(nn.Module):
    """A backbone with the objective's state, and one `forward` that returns [`Features`].

    Args:
        backbone: A CLIP- or SigLIP-like `PreTrainedModel`, or a `PeftModel` around one.
        objective_state: Modules by name whose `forward()` returns the learned value. The values are returned in
            `Features.learned`, so that they are optimized, clipped, synchronized, saved and resumed.
        required_features: Names of the [`Features`] fields that the loss reads; only these are computed.
        image_mean: Mean of the image processor, three channels.
        image_std: Standard deviation of the image processor, three channels.
        rescale_factor: Value of one uint8 step, usually 1/255.
        mini_batch_size: Number of images (and texts) encoded at a time, with activations recomputed in the backward
            pass; `None` encodes all at once. The loss and gradient are the same, with less memory.

    Raises:
        ValueError: If `required_features` contains an unknown name.
    """

    def __init__(
        self,
        backbone: nn.Module,
        objective_state: dict[str, nn.Module] | None = None,
        *,
        required_features: Iterable[str] = ("image_embeds", "text_embeds", "logit_scale"),
        image_mean: Iterable[float] = (0.5, 0.5, 0.5),
        image_std: Iterable[float] = (0.5, 0.5, 0.5),
        rescale_factor: float = 1 / 255,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.objective_state = nn.ModuleDict(objective_state or {})
        self.required_features = tuple(required_features)
        unknown = [name for name in self.required_features if name not in FIELDS]
        if unknown:
            raise ValueError(
                f"required_features contains {unknown}, which the model does not compute. Known: {', '.join(FIELDS)}."
            )
        if "tokens" in self.required_features:
            check_tokens(backbone)
        self.mini_batch_size = mini_batch_size
        # The Trainer edits `model.config` (use_cache, special tokens), but the checkpoint must keep the original.
        self.config = copy.deepcopy(backbone.config)
        self.main_input_name = "input_ids"
        device = next(backbone.parameters()).device
        self.objective_state.to(device)
        # Both include the rescaling, so uint8 pixels need one subtraction and one division on the device. The buffers
        # are not persistent, because a checkpoint contains only the plain backbone.
        mean = torch.tensor(list(image_mean), device=device).view(1, -1, 1, 1) / rescale_factor
        std = torch.tensor(list(image_std), device=device).view(1, -1, 1, 1) / rescale_factor
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.pixel_mean.device

    def train(self, mode: bool = True) -> DualEncoder:
        """Sets the mode of all parts, except that batch norms keep the statistics of the base, as in evaluation."""
        # Statistics of a batch would differ between processes and mini-batches. ALIGN and GroupViT have such norms.
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether the backbone recomputes the activations of its layers."""
        name = "activation" if hasattr(self.backbone, "is_activation_checkpointing") else "gradient"
        return getattr(self.backbone, f"is_{name}_checkpointing", False)

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Makes the backbone recompute its activations layer by layer; called by the Trainer."""
        self._enable_checkpointing("activation_checkpointing_enable", kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """Does the same as `activation_checkpointing_enable`; transformers before 5.23 uses this name."""
        self._enable_checkpointing("gradient_checkpointing_enable", kwargs)

    def _enable_checkpointing(self, name: str, kwargs: dict[str, Any]) -> None:
        getattr(self.backbone, name)(**kwargs)
        if self.is_peft:
            # The frozen embeddings' output needs a gradient; otherwise checkpointed layers have no graph.
            self.backbone.enable_input_require_grads()

    @property
    def is_peft(self) -> bool:
        """Whether the backbone is a `PeftModel`."""
        return checkpoints.is_peft(self.backbone)

    @property
    def plain(self) -> PreTrainedModel:
        """The backbone without PEFT's wrapper."""
        return self.backbone.get_base_model() if self.is_peft else self.backbone

    def normalize_pixels(self, pixels: Any) -> Any:
        """Normalizes uint8 pixels for the image tower; float pixels and named inputs are already normalized."""
        if isinstance(pixels, Mapping) or pixels.is_floating_point():
            return pixels
        return (pixels.to(self.pixel_mean.dtype) - self.pixel_mean) / self.pixel_std

    def forward(
        self,
        input_ids: torch.Tensor,
        pixels: Any = None,
        negative_input_ids: torch.Tensor | None = None,
        concept_input_ids: torch.Tensor | None = None,
        concept_token_mask: torch.Tensor | None = None,
        text_index: torch.Tensor | None = None,
        concept_text_index: torch.Tensor | None = None,
        **fields: torch.Tensor,
    ) -> Features:
        """Encodes a batch from the collator.

        Args:
            input_ids: Captions, `[B, L]`.
            pixels: The `B` images followed by the existing negative images: a tensor `[M, 3, H, W]`, the image tower's
                inputs by name, or an object with `len()` and `slice_to(start, stop, device)` for either. uint8 pixels
                are normalized here.
            negative_input_ids: Existing negative captions, `[n, L]`, row by row.
            concept_input_ids: Existing concepts, `[c, L]`, image by image.
            concept_token_mask: Mask `[B * max_concepts, L]` of the caption tokens of each concept, used instead of
                `concept_input_ids`; see [`hfcomp.modeling.embedding.encode_phrases`].
            text_index: Index `[B]` of each caption in `input_ids`, if equal captions are listed only once.
            concept_text_index: Index `[c]` of each concept in `concept_input_ids`, if equal concepts are listed only
                once.
            fields: Masks, kinds, ratings and ids for [`Features`], passed through.

        Raises:
            TypeError: If a name does not occur in batches.
        """
        unknown = [name for name in fields if name not in FIELDS or not FIELDS[name].in_batch]
        if unknown:
            raise TypeError(f"forward() does not accept {', '.join(unknown)}; see hfcomp.fields for the batch keys.")
        output: dict[str, Any] = {
            name: value for name, value in fields.items() if name in self.required_features or FIELDS[name].always
        }
        size = len(input_ids if text_index is None else text_index)
        output |= self._image_fields(pixels, size, fields.get("negative_image_mask"))
        texts = {
            "text_embeds": input_ids,
            "negative_text_embeds": negative_input_ids,
            "concept_embeds": concept_input_ids,
        }
        repeated = {"text_embeds": text_index, "concept_embeds": concept_text_index}
        output |= self._text_fields(texts, concept_token_mask, fields, repeated)
        if "logit_scale" in self.required_features:
            output["logit_scale"] = similarity_scale(self.plain)
        if "logit_bias" in self.required_features:
            output["logit_bias"] = self.plain.logit_bias.squeeze()
        if "learned" in self.required_features:
            output["learned"] = {name: module() for name, module in self.objective_state.items()}
        if is_sharded(self):
            # FSDP2 adds hooks to the returned tensors, and an in-place operation would remove the hook from a view.
            output = {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in output.items()}
        return Features(**output)

    def _image_fields(self, pixels: Any, size: int, mask: torch.Tensor | None) -> dict[str, Any]:
        if "image_embeds" not in self.required_features and "tokens" not in self.required_features:
            return {}

        def encode(start: int, stop: int) -> tuple[torch.Tensor, ...]:
            # Move one mini-batch at a time, so the pixels of a large batch are never all on the device.
            if isinstance(pixels, Mapping):
                part = {name: values[start:stop].to(self.device) for name, values in pixels.items()}
            elif isinstance(pixels, torch.Tensor):
                part = pixels[start:stop].to(self.device)
            else:
                part = pixels.slice_to(start, stop, self.device)
            part = self.normalize_pixels(part)
            if "tokens" in self.required_features:
                return encode_image_tokens(self.backbone, part)
            return (encode_images(self.backbone, part),)

        embeddings, *tokens = self._encode_mini_batches(
            encode, _count_images(pixels) if "negative_image_embeds" in self.required_features else size
        )
        fields = {"image_embeds": embeddings[:size]} if "image_embeds" in self.required_features else {}
        if tokens:
            fields["tokens"] = tokens[0][:size]
        if "negative_image_embeds" in self.required_features:
            fields["negative_image_embeds"] = scatter_rows(embeddings[size:], mask)
        return fields

    def _text_fields(
        self,
        texts: dict[str, Any],
        concept_token_mask: torch.Tensor | None,
        batch: dict[str, torch.Tensor],
        repeated: dict[str, torch.Tensor | None],
    ) -> dict[str, Any]:
        parts = {name: ids for name, ids in texts.items() if name in self.required_features}
        phrases = None
        if "concept_embeds" in parts and concept_token_mask is not None:
            phrases = concept_token_mask.unflatten(0, (len(texts["text_embeds"]), -1))
            # The captions come first in the list, with their phrases.
            del parts["concept_embeds"]
            parts = {"text_embeds": texts["text_embeds"], **parts}
        if not parts:
            return {}
        fields = self._encode_texts(parts, phrases)
        for name, places in repeated.items():
            if name in fields and places is not None:
                # Equal texts were encoded once; the backward pass of index_select sums the gradients of all places.
                fields[name] = fields[name].index_select(0, places)
        if "negative_text_embeds" in fields:
            fields["negative_text_embeds"] = scatter_rows(fields["negative_text_embeds"], batch["negative_text_mask"])
        if "concept_embeds" in fields:
            exists, concepts = batch["concept_image_index"] >= 0, fields["concept_embeds"]
            fields["concept_embeds"] = (
                scatter_rows(concepts, exists) if phrases is None else concepts.masked_fill(~exists.unsqueeze(-1), 0)
            )
        return {name: value for name, value in fields.items() if name in self.required_features}

    def _encode_texts(self, parts: dict[str, torch.Tensor], phrases: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Encodes all texts together; with `phrases` `[B, M, L]` of the first texts, also the phrases `[B * M, D]`."""
        # Captions, negatives and concepts go through the tower together, which fills the mini-batches and, with FSDP2,
        # gathers the weights only once.
        ids = torch.cat(list(parts.values()))

        def encode(start: int, stop: int) -> tuple[torch.Tensor, ...]:
            if phrases is not None:
                return encode_phrases(self.backbone, ids[start:stop], phrases[start:stop])
            return (encode_texts(self.backbone, ids[start:stop]),)

        embeddings, *concepts = self._encode_mini_batches(encode, len(ids))
        fields = dict(zip(parts, embeddings.split([len(part) for part in parts.values()]), strict=True))
        return fields | ({"concept_embeds": concepts[0].flatten(0, 1)} if concepts else {})

    def _encode_mini_batches(
        self, encode: Callable[[int, int], tuple[torch.Tensor, ...]], count: int
    ) -> tuple[torch.Tensor, ...]:
        size = self.mini_batch_size
        if size is None:
            return encode(0, count)
        spans = [(start, min(start + size, count)) for start in range(0, max(count, 1), size)]
        if is_sharded(self):
            # A forward pass gathers weights, which needs all processes: those with fewer rows encode their last row
            # again.
            needed = max(gather_sizes(len(spans), self.device))
            spans += [(max(count - 1, 0), count)] * (needed - len(spans))
        if torch.is_grad_enabled():
            # A reentrant checkpoint would record no graph here: it requires inputs that need a gradient, but `encode`
            # takes two numbers.
            parts = [checkpoint(encode, *span, use_reentrant=False) for span in spans]
        else:
            parts = [encode(*span) for span in spans]
        return tuple(torch.cat(part)[:count] for part in zip(*parts, strict=True))

    def _dummy_inputs(self) -> dict[str, Any]:
        """Makes one image, text, negative and concept, to find the parameters on which the used fields depend."""
        # Three tokens are enough, and no model has fewer positions.
        ids = torch.ones((1, 3), dtype=torch.long, device=self.device)
        mask = torch.ones((1, 1), dtype=torch.bool, device=self.device)
        return {
            "input_ids": ids,
            "pixels": blank_images(self.plain.config, 2),
            "negative_input_ids": ids,
            "negative_text_mask": mask,
            "negative_image_mask": mask[0],
            "concept_input_ids": ids,
            "concept_image_index": torch.zeros(1, dtype=torch.long, device=self.device),
        }

    def freeze_unused(self) -> list[str]:
        """Freezes the trainable parameters on which no used field depends, and returns their names."""
        # DDP fails at its second step if a trainable parameter has no gradient.
        training, size = self.training, self.mini_batch_size
        self.eval()
        self.mini_batch_size = None
        with torch.enable_grad():
            features = self(**self._dummy_inputs())
            learned = (features.learned or {}).values()
            tensors = [features[name] for name in features if name != "learned"] + list(learned)
            # Any scalar that depends on all used fields will do, because only the existence of a gradient matters.
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

    def save_pretrained(self, folder: str | Path, **kwargs: Any) -> None:
        """Writes the plain backbone (or its adapter) and, if any, the objective's state next to it."""
        checkpoints.save_encoder(self.backbone, self.objective_state, folder, **kwargs)

    def load_pretrained(self, folder: str | Path) -> None:
        """Loads in place what `save_pretrained` wrote; no key may be missing or left over.

        Raises:
            ValueError: If weights or the objective's state do not match. The message names the keys.
        """
        checkpoints.load_encoder(self.backbone, self.objective_state, folder)


def _count_images(pixels: Any) -> int:
    return len(pixels["pixel_values"] if isinstance(pixels, Mapping) else pixels)


def scatter_rows(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Puts `values` `[n, D]` at the true places of `mask` `[...]`, with zeros elsewhere: `[..., D]`. No host sync."""
    # `zeros[mask] = values` would make the host wait until the GPU has counted the true places.
    zeros = values.new_zeros((*mask.shape, values.shape[-1]))
    return zeros.masked_scatter(mask.unsqueeze(-1), values)
