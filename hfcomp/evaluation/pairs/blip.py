"""BLIP's image-text matching: the probability of its head that a text belongs to an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import BlipForImageTextRetrieval

from hfcomp.evaluation.pairs.model import PairModel


class BlipMatcher(PairModel):
    """Scores pairs with the matching head of a BLIP (Li et al. 2022, arXiv:2201.12086).

    Each image of a batch is encoded once, whatever the number of its texts. The arguments are those of `PairModel`.
    """

    share = 1 / 4  # images are in memory as they are decoded, of this batch and the next
    auto_class = BlipForImageTextRetrieval

    @property
    def facts(self) -> dict[str, Any]:
        """The score's name."""
        return {"score": "image-text matching"}

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of some texts are longer than the text encoder."""
        return sum(
            len(ids) > self.config.text_config.max_position_embeddings
            for ids in self.processor.tokenizer(list(texts))["input_ids"]
        )

    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """`[b]` fp32, the logarithm of the probability of a match."""
        shown = {id(image): image for image in images}
        number = {key: place for place, key in enumerate(shown)}
        pixels = self.processor.image_processor(list(shown.values()), return_tensors="pt")["pixel_values"]
        tokens = self.processor.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=self.config.text_config.max_position_embeddings,
            return_tensors="pt",
        ).to(self.device)
        seen = self.backbone.vision_model(pixels.to(self.device, self.backbone.dtype)).last_hidden_state
        seen = seen[[number[id(image)] for image in images]]
        read = self.backbone.text_encoder(
            input_ids=tokens["input_ids"],
            attention_mask=tokens["attention_mask"],
            encoder_hidden_states=seen,
            encoder_attention_mask=torch.ones(seen.shape[:-1], dtype=torch.long, device=self.device),
        ).last_hidden_state
        return self.backbone.itm_head(read[:, 0]).float().log_softmax(dim=-1)[:, 1]
