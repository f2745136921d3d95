"""The model that a trainer trains: a backbone, the objective's state, and one `forward` for all that a loss needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from hfcomp.modeling import checkpoints
from hfcomp.modeling.backbones import encode_images, encode_texts
from hfcomp.modeling.features import USABLE_FIELDS, Features
from hfcomp.modeling.tokens import encode_image_tokens, encode_phrases


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
        device = next(backbone.parameters()).device
        self.objective_state.to(device)
        mean = torch.tensor(list(image_mean), device=device).view(1, -1, 1, 1) / rescale_factor
        std = torch.tensor(list(image_std), device=device).view(1, -1, 1, 1) / rescale_factor
        self.register_buffer("pixel_mean", mean, persistent=False)
        self.register_buffer("pixel_std", std, persistent=False)

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.pixel_mean.device

    @property
    def is_activation_checkpointing(self) -> bool:
        """Whether the backbone recomputes the activations of its layers."""
        name = "activation" if hasattr(self.backbone, "is_activation_checkpointing") else "gradient"
        return getattr(self.backbone, f"is_{name}_checkpointing", False)

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Recompute the backbone's activations layer by layer; called by the Trainer."""
        self._enable_checkpointing("activation_checkpointing_enable", kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """What transformers before 5.23 calls `activation_checkpointing_enable`."""
        self._enable_checkpointing("gradient_checkpointing_enable", kwargs)

    def _enable_checkpointing(self, name: str, kwargs: dict[str, Any]) -> None:
        getattr(self.backbone, name)(**kwargs)
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
        concept_token_mask: torch.Tensor | None = None,
        owner: torch.Tensor | None = None,
        concept_id: torch.Tensor | None = None,
        image_id: torch.Tensor | None = None,
        reference_text: torch.Tensor | None = None,
        reference_negative_text: torch.Tensor | None = None,
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
            concept_input_ids: the concepts that exist, `[c, L]`, image by image; each is encoded as a text.
            concept_token_mask: `[B * max_concepts, L]` bool, in place of `concept_input_ids`: the tokens of the
                caption that make up each concept; see [`hfcomp.modeling.tokens.encode_phrases`].
            owner: `[B * max_concepts]` long, the image's row in this batch, -1 = padding.
            concept_id: `[B * max_concepts]` long, equal numbers for equal phrases.
            image_id: `[B]` long, equal numbers for rows of one image; passed on whether `uses` names it or not.
            reference_text: `[B, D]`, features of the captions that were made beforehand; passed on as they are.
            reference_negative_text: `[B, K, D]`, likewise of the negative captions.
        """
        passed_on = {
            "negative_image_mask": negative_image_mask,
            "negative_text_mask": negative_text_mask,
            "negative_kind": negative_kind,
            "negative_concreteness": negative_concreteness,
            "owner": owner,
            "concept_id": concept_id,
            "reference_text": reference_text,
            "reference_negative_text": reference_negative_text,
        }
        output: dict[str, Any] = {name: value for name, value in passed_on.items() if name in self.uses}
        output |= {} if image_id is None else {"image_id": image_id}
        output |= self._image_fields(pixels, len(input_ids), negative_image_mask)
        texts = {"text": input_ids, "negative_text": negative_input_ids, "concepts": concept_input_ids}
        output |= self._text_fields(texts, concept_token_mask, negative_text_mask, owner)
        if "logit_scale" in self.uses:
            output["logit_scale"] = self.plain.logit_scale.exp().squeeze()
        if "logit_bias" in self.uses:
            output["logit_bias"] = self.plain.logit_bias.squeeze()
        if "learned" in self.uses:
            output["learned"] = {name: module() for name, module in self.objective_state.items()}
        return Features(**output)

    def _image_fields(self, pixels: Any, size: int, mask: torch.Tensor | None) -> dict[str, Any]:
        if "image" not in self.uses and "tokens" not in self.uses:
            return {}

        def encode(start: int, stop: int) -> tuple[torch.Tensor, ...]:
            if isinstance(pixels, torch.Tensor):
                part = pixels[start:stop].to(self.device)
            else:
                part = pixels.slice_to(start, stop, self.device)
            part = self.normalize_pixels(part)
            if "tokens" in self.uses:
                return encode_image_tokens(self.backbone, part)
            return (encode_images(self.backbone, part),)

        embeddings, *tokens = self._in_mini_batches(encode, len(pixels) if "negative_image" in self.uses else size)
        fields = {"image": embeddings[:size]} if "image" in self.uses else {}
        if tokens:
            fields["tokens"] = tokens[0][:size]
        if "negative_image" in self.uses:
            fields["negative_image"] = scatter_rows(embeddings[size:], mask)
        return fields

    def _text_fields(
        self,
        texts: dict[str, torch.Tensor | None],
        concept_token_mask: torch.Tensor | None,
        negative_text_mask: torch.Tensor | None,
        owner: torch.Tensor | None,
    ) -> dict[str, Any]:
        parts = {name: ids for name, ids in texts.items() if name in self.uses}
        phrases = None
        if "concepts" in parts and concept_token_mask is not None:
            phrases = concept_token_mask.unflatten(0, (len(texts["text"]), -1))
            # the captions lead the list, with their phrases
            parts = {"text": texts["text"]} | {name: ids for name, ids in parts.items() if name != "concepts"}
        if not parts:
            return {}
        fields = self._encode_texts(parts, phrases)
        if "negative_text" in fields:
            fields["negative_text"] = scatter_rows(fields["negative_text"], negative_text_mask)
        if phrases is not None:
            fields["concepts"] = fields["concepts"].masked_fill((owner < 0).unsqueeze(-1), 0)
        elif "concepts" in fields:
            fields["concepts"] = scatter_rows(fields["concepts"], owner >= 0)
        return {name: value for name, value in fields.items() if name in self.uses}

    def _encode_texts(self, parts: dict[str, torch.Tensor], phrases: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """All texts as one list; with `phrases` `[B, M, L]` of the first ones also `concepts` `[B * M, D]`."""
        ids = torch.cat(list(parts.values()))

        def encode(start: int, stop: int) -> tuple[torch.Tensor, ...]:
            if phrases is not None:
                return encode_phrases(self.backbone, ids[start:stop], phrases[start:stop])
            return (encode_texts(self.backbone, ids[start:stop]),)

        embeddings, *found = self._in_mini_batches(encode, len(ids))
        fields = dict(zip(parts, embeddings.split([len(part) for part in parts.values()]), strict=True))
        return fields | ({"concepts": found[0].flatten(0, 1)} if found else {})

    def _in_mini_batches(
        self, encode: Callable[[int, int], tuple[torch.Tensor, ...]], count: int
    ) -> tuple[torch.Tensor, ...]:
        size = self.mini_batch_size
        if size is None:
            return encode(0, count)
        if torch.is_grad_enabled():
            return _encode_parts(lambda *span: checkpoint(encode, *span, use_reentrant=False), count, size)
        return _encode_parts(encode, count, size)

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

    def save_pretrained(self, folder: str | Path, **kwargs: Any) -> None:
        """Writes the plain backbone (or its adapter) and, where there is one, the objective's state beside it."""
        checkpoints.save(self, folder, **kwargs)

    def load_pretrained(self, folder: str | Path) -> None:
        """Loads in place what `save_pretrained` wrote; every key must be there and none may be left over.

        Raises:
            ValueError: when weights or the objective's state do not fit, naming the keys.
        """
        checkpoints.load(self, folder)


def scatter_rows(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Puts `values` `[n, D]` at the true places of `mask` `[...]`, zeros elsewhere: `[..., D]`. No host sync."""
    zeros = values.new_zeros((*mask.shape, values.shape[-1]))
    return zeros.masked_scatter(mask.unsqueeze(-1), values)


def _encode_parts(
    encode: Callable[[int, int], tuple[torch.Tensor, ...]], count: int, size: int
) -> tuple[torch.Tensor, ...]:
    found = [encode(start, min(start + size, count)) for start in range(0, max(count, 1), size)]
    return tuple(map(torch.cat, zip(*found, strict=True)))
