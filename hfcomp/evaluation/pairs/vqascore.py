"""VQAScore: the probability that a model answers "Yes" when it is asked whether a figure shows a text."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from transformers import AutoModelForImageTextToText

from hfcomp.evaluation.pairs.model import PairModel

QUESTION = 'Does this figure show "{text}"? Please answer yes or no.'
"""Of Lin et al. 2024 (arXiv:2404.01291)."""
ANSWERS = "Yes", " Yes"
"""The answer; which of the two a tokenizer's own word begins with depends on what the prompt ends with."""


class VQAScorer(PairModel):
    """Scores pairs with an image-text-to-text model, such as LLaVA or Qwen2-VL (Lin et al. 2024, arXiv:2404.01291).

    The question goes through the processor's chat template where it has one; otherwise it follows the image token. The
    score is the probability of "Yes" as the next token, summed over the tokens that are this word after the prompt.

    On a CPU weights run in fp32, elsewhere in the precision of their file. The arguments are those of `PairModel`.

    Raises:
        ValueError: as `PairModel`, or where no single token of the tokenizer is "Yes".
    """

    share = 1 / 8  # an image is hundreds of tokens
    auto_class = AutoModelForImageTextToText

    def __init__(self, model: str | Path | nn.Module, processor: Any = None, **settings: Any) -> None:
        super().__init__(model, processor, **settings)
        if self.processor.tokenizer.pad_token is None:  # it is masked, so any token will do
            self.processor = copy.deepcopy(self.processor)
            self.processor.tokenizer.pad_token = self.processor.tokenizer.eos_token

    @property
    def facts(self) -> dict[str, Any]:
        """The score's name, the prompt around a text `{text}`, and the tokens that are "Yes"."""
        tokens = self.processor.tokenizer.convert_ids_to_tokens(self.yes_tokens)
        return {"score": "VQAScore", "prompt": self.prompt("{text}"), "yes": ", ".join(map(repr, tokens))}

    def dtype(self) -> torch.dtype | str:
        """Precision of the weights: fp32 on a CPU, elsewhere that of their file."""
        return torch.float32 if self.device.type == "cpu" else "auto"

    def prompt(self, text: str) -> str:
        """The prompt for a text, with the mark of the image."""
        question = QUESTION.replace("{text}", text)
        if self._has_template:
            content = [{"type": "image"}, {"type": "text", "text": question}]
            chat = [{"role": "user", "content": content}]
            return self.processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return f"{self._mark}\n{question}".strip()

    @cached_property
    def yes_tokens(self) -> list[int]:
        """Ids of the tokens that are "Yes" after the prompt.

        Raises:
            ValueError: where there is none.
        """
        tokenizer = self.processor.tokenizer

        def ids(text: str) -> list[int]:
            return tokenizer(text, add_special_tokens=False)["input_ids"]

        prompt = self.prompt("a cat")
        before = ids(prompt)
        after = [ids(prompt + answer) for answer in ANSWERS] if not self._answers_apart else []
        found = {own[-1] for own in after if len(own) == len(before) + 1 and own[:-1] == before}
        alone = [ids(answer) for answer in ANSWERS]
        found = found or {own[0] for own in alone if len(own) == 1}
        if not found or tokenizer.unk_token_id in found:
            raise ValueError(
                f"{self._model}: no single token of its tokenizer is 'Yes' ({alone[0]} are its tokens), so that "
                "VQAScore is not defined. Choose another model."
            )
        return sorted(found)

    @property
    def _has_template(self) -> bool:
        return getattr(self.processor, "chat_template", None) is not None

    @cached_property
    def _mark(self) -> str:
        """What a prompt without a template begins with: the image token, unless the processor puts it there itself."""
        token = str(getattr(self.processor, "image_token", None) or "")
        blank = Image.new("RGB", (224, 224))
        try:
            ids = self.processor(images=[blank], text=["a cat"], return_tensors="pt")["input_ids"]
        except ValueError:  # it counts the tokens in the text, and there is none
            return token
        return "" if (ids == self.processor.tokenizer.convert_tokens_to_ids(token)).any() else token

    @property
    def _answers_apart(self) -> bool:
        """Whether answers are written by a decoder that does not continue the prompt."""
        decoder = getattr(self.config, "use_decoder_only_language_model", None)
        return bool(self.config.is_encoder_decoder) or decoder is False

    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """`[b]` fp32, the logarithm of the probability of "Yes" after each prompt."""
        prompts = [self.prompt(text) for text in texts]
        tokenizer = self.processor.tokenizer
        begun = tokenizer.bos_token is not None and prompts[0].startswith(tokenizer.bos_token)
        inputs = self.processor(
            images=[[image] for image in images] if self._has_template else list(images),
            text=prompts,
            padding=True,
            padding_side="right" if self._answers_apart else "left",  # the next token follows a decoder's last one
            return_tensors="pt",
            **({"add_special_tokens": False} if begun else {}),
        ).to(self.device, self.backbone.dtype)
        # generate() numbers positions after the padding, starts decoders and keeps the last token's scores alone
        output = self.backbone.generate(
            **inputs,
            max_new_tokens=1,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=tokenizer.pad_token_id,
        )
        logarithms = output.logits[0].float().log_softmax(dim=-1)
        return logarithms[:, self.yes_tokens].logsumexp(dim=-1)
