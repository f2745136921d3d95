"""Models that read an image and a text together: BLIP's matching head, and VQAScore for image-text-to-text models."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
import PIL
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from transformers import AutoModelForImageTextToText, BlipForImageTextRetrieval

from hfcomp.data.images import is_tiny
from hfcomp.evaluation.cells import distinct, text_key
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, processor_facts
from hfcomp.evaluation.pairs.items import MOST_PAIRS, PairList, PairScores
from hfcomp.evaluation.pairs.options import PAPER, TEXT, PairOptions
from hfcomp.modeling import load_processor, read_config
from hfcomp.modeling.weight_checks import name_damaged_weights, raise_on_mismatch, silence_library
from hfcomp.options import place_of
from hfcomp.remote_code import load_pretrained
from hfcomp.store import digest

SCORING_VERSION = 1
"""Version that is raised when the same model and pair would get another score, which invalidates cached scores."""
_DECODED = 16  # decoded images that are kept, because pairs of the same image follow each other


class PairModel(EvaluatedModel, ABC):
    """A model whose score of a pair is the probability that the text fits the image.

    Scores are kept as logarithms in fp32, which is exact enough near 0 and near 1.

    Args:
        model: Hub id, folder or module. A module is left unchanged, see `hfcomp.Embedder`.
        processor: The model's processor. By default it is loaded from `model`, or from the place a module came from.
        batch_size: Batch size of `hfcomp.Embedder`; `share` of it is the number of pairs per batch.
        device: Device to run on. Defaults to a module's own device, otherwise to a GPU if available.
        cache: Stored scores. By default, each call scores again.
        split: Whether the processes of `torchrun` or `accelerate launch` share the work.

    Attributes:
        scored_pairs: Number of pairs scored by this process so far.

    Raises:
        ValueError: If the model or processor is of another kind, or a module has a cache on disk.
    """

    most_pairs = MOST_PAIRS
    share: ClassVar[float] = 1.0
    auto_class: ClassVar[Any]
    overrides: ClassVar[dict[str, Any]] = {}  # of the configuration

    def __init__(
        self,
        model: str | Path | nn.Module,
        processor: Any = None,
        *,
        batch_size: int = 128,
        device: str | torch.device | None = None,
        cache: EmbeddingCache | None = None,
        split: bool = False,
    ) -> None:
        size = max(1, int(batch_size * self.share))
        super().__init__(model, device=device, batch_size=size, cache=cache, split=split)
        self.processor = processor or _processor(model)
        # A feature extractor or a plain tokenizer would fail only after the weights are loaded.
        for part in ("image_processor", "tokenizer"):
            if getattr(self.processor, part, None) is None:
                kind = type(self.processor).__name__
                raise ValueError(f"{model}: its processor, a {kind}, has no {part}. Pass the model's own processor.")
        self.scored_pairs = 0

    @cached_property
    def config(self) -> Any:
        if self._backbone is not None:
            return self._backbone.config
        return read_config(self._model)

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """How the model scores, for `results.json`. Scores with different facts are stored separately."""

    @abstractmethod
    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Returns the logarithm of the probability that each text fits its image, `[b]` fp32.

        Args:
            images: `[b]` images; pairs of the same image share one object.
            texts: `[b]` texts.
        """

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Counts the texts that are longer than the model reads; by default, none is cut."""
        return 0

    def dtype(self) -> torch.dtype | str:
        return torch.float32

    def load(self) -> nn.Module:
        with name_damaged_weights(self._model), silence_library():
            backbone, info = load_pretrained(
                self.auto_class,
                self._model,
                dtype=self.dtype(),
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **self.overrides,
            )
        # transformers would initialize missing weights at random and only warn.
        raise_on_mismatch(self._model, missing=info["missing_keys"], shapes=info["mismatched_keys"])
        return backbone

    def score_pairs(self, pairs: PairList, *, progress: bool = False) -> PairScores:
        if self.cache is not None and not self._fingerprints:
            self._fingerprints = {"pairs": self._fingerprint()}
        with self.together():
            return self._score(pairs, progress)

    def _score(self, pairs: PairList, progress: bool) -> PairScores:
        keys, index, first = distinct(
            digest(pairs.keys[image] + text_key(pairs.texts[text], text))
            for image, text in zip(pairs.image, pairs.text, strict=True)
        )

        locks = [Lock() for _ in range(_DECODED)]

        @lru_cache(maxsize=_DECODED)
        def decode(number: int) -> Image.Image:
            return pairs.load_image(number)

        def image_of(number: int) -> Image.Image:
            with locks[number % _DECODED]:  # threads that request the same image get the same object
                return decode(number)

        def load(number: int) -> tuple[tuple[Image.Image, str], bool]:
            pair = first[number]
            image = image_of(int(pairs.image[pair]))
            return (image, pairs.texts[pairs.text[pair]]), is_tiny(image)

        def score(loaded: list[tuple[tuple[Image.Image, str], bool]]) -> NDArray[np.float32]:
            self.scored_pairs += len(loaded)
            images, texts = zip(*(pair for pair, _ in loaded), strict=True)
            return self.log_probabilities(images, texts).float().cpu().numpy()[:, None]

        def order(number: int) -> tuple[int, int]:
            # Pairs of the same image follow each other, so it is decoded once, and sorted texts need little padding.
            return pairs.image[first[number]], len(pairs.texts[pairs.text[first[number]]])

        scores, computed = self.compute("pairs", keys, 1, load, score, progress=progress, order=order, unit=False)
        tiny = len({pairs.keys[pairs.image[first[number]]] for number in np.flatnonzero(scores.flags)})
        # float64, because probabilities near 1 with different logarithms must stay different.
        values = np.exp(scores.vectors[index, 0].astype(np.float64))
        truncated = self.count_truncated([pairs.texts[number] for number in set(pairs.text)])
        return PairScores(values, computed, tiny, truncated)

    def _fingerprint(self) -> dict[str, Any]:
        precision = self.dtype() if self._backbone is None else self._backbone.dtype
        shared = {"weights": self.weights, "device": self.device.type, "dtype": str(precision), **self.facts}
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "pillow": PIL.__version__}
        return {**shared, **versions, "scoring": SCORING_VERSION, **processor_facts(self.processor)}


def _processor(model: str | Path | nn.Module) -> Any:
    try:
        return load_processor(model, argument="processor")
    except ImportError as error:  # the processors of some models need torchvision
        reason = " ".join(str(error).split())
        raise ValueError(f"{model}: its processor cannot be loaded: {reason}") from error


class BlipMatcher(PairModel):
    """Scores pairs with BLIP's matching head (Li et al. 2022, arXiv:2201.12086).

    Each image of a batch is encoded once, whatever the number of its texts. Arguments are those of `PairModel`.
    """

    share = 1 / 4  # decoded images of this batch and the next are in memory
    auto_class = BlipForImageTextRetrieval

    @property
    def facts(self) -> dict[str, Any]:
        """Name of the score."""
        return {"score": "image-text matching"}

    def count_truncated(self, texts: Sequence[str]) -> int:
        """Counts the texts that are longer than the text encoder reads."""
        return sum(
            len(ids) > self.config.text_config.max_position_embeddings
            for ids in self.processor.tokenizer(list(texts))["input_ids"]
        )

    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Returns the logarithm of the probability of a match, `[b]` fp32."""
        # Keyed by identity, because pairs of an image share one object and comparing pixels would cost more.
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


class VQAScorer(PairModel):
    """Scores pairs with an image-text-to-text model, such as LLaVA or Qwen2-VL (Lin et al. 2024, arXiv:2404.01291).

    The question is put into the processor's chat template, if any; otherwise it follows the image token. The score is
    the probability of the answer ("Yes") as the next token, summed over the tokens that spell it after the prompt.

    On a CPU, weights run in fp32, elsewhere in the precision of their file. Arguments are those of `PairModel`.

    Raises:
        ValueError: As for `PairModel`, or if no single token of the tokenizer is the answer.
    """

    share = 1 / 8  # an image is hundreds of tokens
    auto_class = AutoModelForImageTextToText

    def __init__(self, model: str | Path | nn.Module, processor: Any = None, **settings: Any) -> None:
        super().__init__(model, processor, **settings)
        self.options = PAPER
        if self.processor.tokenizer.pad_token is None:  # padding is masked, so any token works
            self.processor = copy.deepcopy(self.processor)
            self.processor.tokenizer.pad_token = self.processor.tokenizer.eos_token

    def ask(self, options: PairOptions) -> list[int]:
        """Sets question and answer, and returns `answer_tokens`."""
        self.options, self._fingerprints = options, {}
        vars(self).pop("answer_tokens", None)
        return self.answer_tokens

    @property
    def facts(self) -> dict[str, Any]:
        """Name of the score, prompt around a text `{text}`, and tokens of the answer."""
        tokens = self.processor.tokenizer.convert_ids_to_tokens(self.answer_tokens)
        return {"score": "VQAScore", "prompt": self.prompt(TEXT), "answer": ", ".join(map(repr, tokens))}

    def dtype(self) -> torch.dtype | str:
        """Precision of the weights: fp32 on a CPU, elsewhere that of their file."""
        return torch.float32 if self.device.type == "cpu" else "auto"

    def prompt(self, text: str) -> str:
        """Returns the prompt for a text, with the placeholder of the image."""
        question = self.options.vqa_prompt.replace(TEXT, text)
        # A chat model answers as trained only within its own template.
        if self._has_template:
            content = [{"type": "image"}, {"type": "text", "text": question}]
            chat = [{"role": "user", "content": content}]
            return self.processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return f"{self._mark}\n{question}".strip()

    @cached_property
    def answer_tokens(self) -> list[int]:
        """Ids of the tokens that are the answer after the prompt.

        Raises:
            ValueError: If there is none.
        """
        tokenizer, answer = self.processor.tokenizer, self.options.vqa_answer
        # Whether the token includes the space depends on the tokenizer and on the end of the prompt.
        spellings = answer, f" {answer}"

        def ids(text: str) -> list[int]:
            return tokenizer(text, add_special_tokens=False)["input_ids"]

        prompt = self.prompt("a cat")
        before = ids(prompt)
        after = [ids(prompt + word) for word in spellings] if not self._answers_apart else []
        # The answer may merge with the end of the prompt, and is then not a separate token.
        tokens = {own[-1] for own in after if len(own) == len(before) + 1 and own[:-1] == before}
        separate = [ids(word) for word in spellings]
        tokens = tokens or {own[0] for own in separate if len(own) == 1}
        if not tokens or tokenizer.unk_token_id in tokens:
            pieces = tokenizer.convert_ids_to_tokens(separate[0])
            raise ValueError(
                f"vqa_answer: found {answer!r}, which is {pieces} to the tokenizer of {place_of(self._model)}, "
                "expected a single token. Choose another answer or another model."
            )
        return sorted(tokens)

    @property
    def _has_template(self) -> bool:
        return getattr(self.processor, "chat_template", None) is not None

    @cached_property
    def _mark(self) -> str:
        """Start of a prompt without a template: the image token, unless the processor adds it."""
        token = str(getattr(self.processor, "image_token", None) or "")
        # Only a trial shows whether a processor adds the image token.
        blank = Image.new("RGB", (224, 224))
        try:
            ids = self._process(images=[blank], text=["a cat"])["input_ids"]
        except ValueError:  # the processor requires an image token in the text
            return token
        return "" if (ids == self.processor.tokenizer.convert_tokens_to_ids(token)).any() else token

    @property
    def _answers_apart(self) -> bool:
        """Whether a separate decoder writes answers, without continuing the prompt."""
        decoder = getattr(self.config, "use_decoder_only_language_model", None)
        return bool(self.config.is_encoder_decoder) or decoder is False

    def _process(self, **inputs: Any) -> Any:
        with silence_library():  # PaliGemma's processor warns in every batch that it adds the image token
            return self.processor(**inputs, return_tensors="pt")

    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Returns the logarithm of the probability of the answer after each prompt, `[b]` fp32."""
        prompts = [self.prompt(text) for text in texts]
        tokenizer = self.processor.tokenizer
        # If the template writes the first token, the tokenizer must not add a second one.
        begun = tokenizer.bos_token is not None and prompts[0].startswith(tokenizer.bos_token)
        inputs = self._process(
            images=[[image] for image in images] if self._has_template else list(images),
            text=prompts,
            padding=True,
            padding_side="right" if self._answers_apart else "left",  # a decoder's next token follows the last one
            **({"add_special_tokens": False} if begun else {}),
        ).to(self.device, self.backbone.dtype)
        # generate() numbers positions after the padding, starts decoders, and keeps only the last token's scores.
        output = self.backbone.generate(
            **inputs,
            max_new_tokens=1,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=tokenizer.pad_token_id,
        )
        # Over the whole vocabulary in fp32, because half precision would tie probabilities near 1.
        logarithms = output.logits[0].float().log_softmax(dim=-1)
        return logarithms[:, self.answer_tokens].logsumexp(dim=-1)
