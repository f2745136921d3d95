"""Models with a matching head, whose own forward pass scores pairs: BLIP-2, FLAVA and ViLT."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch.nn import functional
from transformers import Blip2ForImageTextRetrieval, FlavaForPreTraining, ViltForImageAndTextRetrieval

from hfcomp.evaluation.pairs.models import PairModel
from hfcomp.families import text_length


class HeadMatcher(PairModel):
    """Scores pairs with the model's own forward pass and head. Arguments are those of `PairModel`."""

    share = 1 / 8  # every pair passes through the whole model

    @property
    def facts(self) -> dict[str, Any]:
        """Name of the score."""
        return {"score": "image-text matching"}

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Number of tokens that the model reads."""

    @abstractmethod
    def read_head(self, output: Any) -> torch.Tensor:
        """Returns the logarithm of the probability of a match, `[b]`, from the output of the forward pass."""

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Counts the texts that are longer than the model reads."""
        return sum(len(ids) > self.max_length for ids in self.processor.tokenizer(list(texts))["input_ids"])

    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Returns the logarithm of the probability of a match, `[b]` fp32."""
        settings = {"padding": True, "truncation": True, "max_length": self.max_length, "return_tensors": "pt"}
        tokens = self.processor.tokenizer(list(texts), **settings).to(self.device)
        pixels = self.processor.image_processor(list(images), return_tensors="pt")
        return self.read_head(self.forward(pixels.to(self.device, self.backbone.dtype), tokens))

    def forward(self, pixels: Mapping[str, torch.Tensor], tokens: Mapping[str, torch.Tensor]) -> Any:
        """Runs the model on prepared images and texts."""
        return self.backbone(**pixels, **tokens)


class Blip2Matcher(HeadMatcher):
    """BLIP-2's matching head (Li et al. 2023, arXiv:2301.12597): the mean of the logits over its queries."""

    auto_class = Blip2ForImageTextRetrieval

    @property
    def max_length(self) -> int:
        """Positions of the Q-Former, which reads the text."""
        return self.config.qformer_config.max_position_embeddings

    def forward(self, pixels: Mapping[str, torch.Tensor], tokens: Mapping[str, torch.Tensor]) -> Any:
        """Runs the model with its matching head."""
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        if self.config.image_token_index is not None:
            # The model drops as many tokens as it has queries, which its processor puts in front of a text.
            queries = (self.config.num_query_tokens, 0)
            ids, mask = functional.pad(ids, queries), functional.pad(mask, queries, value=1)
        return self.backbone(**pixels, input_ids=ids, attention_mask=mask, use_image_text_matching_head=True)

    def read_head(self, output: Any) -> torch.Tensor:
        """The second of the two classes is a match."""
        return output.logits_per_image.float().log_softmax(dim=-1)[:, 1]


class FlavaMatcher(HeadMatcher):
    """FLAVA's matching head (Singh et al. 2022, arXiv:2112.04482), which it has next to its two embeddings."""

    auto_class = FlavaForPreTraining
    overrides = {"init_codebook": False}  # the codebook is a separate model for pre-training

    @property
    def max_length(self) -> int:
        """Length of a text, as for its embedding."""
        return text_length(self.config, self.processor.tokenizer)

    def forward(self, pixels: Mapping[str, torch.Tensor], tokens: Mapping[str, torch.Tensor]) -> Any:
        """Runs the encoders and the matching head only: the other heads predict masked words and patches."""
        return self.backbone.itm_head(self.backbone.flava(**pixels, **tokens).multimodal_embeddings)

    def read_head(self, output: Any) -> torch.Tensor:
        """The second of the two classes is a match."""
        return output.float().log_softmax(dim=-1)[:, 1]


class ViltMatcher(HeadMatcher):
    """ViLT's ranking head (Kim et al. 2021, arXiv:2102.03334): one logit per pair."""

    auto_class = ViltForImageAndTextRetrieval

    @property
    def max_length(self) -> int:
        """Positions of its texts."""
        return self.config.max_position_embeddings

    def read_head(self, output: Any) -> torch.Tensor:
        """The sigmoid of the logit; only the order of scores counts."""
        return functional.logsigmoid(output.logits.float().squeeze(-1))
