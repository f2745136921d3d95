"""Models that read an image and a text together: every distinct pair is scored once, and stored by content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from tqdm.auto import tqdm

from hfcomp.data.images import is_tiny
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.content import decoded, digest, distinct, processor_facts, text_key
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, loaded_ahead, workers
from hfcomp.evaluation.pairs.items import MOST_PAIRS, PairList, PairScores
from hfcomp.modeling import load_processor
from hfcomp.modeling.weight_checks import damage_named, no_report, refuse

SCORING_VERSION = 1
"""Raised when the same model and pair would get another score; older cached scores are then not read."""
_DECODED = 16  # images that are kept: pairs of one image follow each other


class PairModel(EvaluatedModel, ABC):
    """A model whose score of a pair is the probability that the text fits the image.

    Scores are kept as logarithms in fp32, which is exact enough near 0 and near 1.

    Args:
        model: Hub id, folder or module. A module is left unchanged, see `hfcomp.Embedder`.
        processor: the model's processor; loaded from `model`, or from where a module came from, when it is left out.
        batch_size: what `hfcomp.Embedder` calls so; `share` of it are pairs at a time.
        device: where to run; by default a module's own place, else a GPU when there is one.
        cache: stored scores. By default each call scores again.
        split: whether the processes of `torchrun` or `accelerate launch` share the work.

    Attributes:
        scored_pairs: pairs that were scored by this process so far.

    Raises:
        ValueError: for a model or processor that is not of this kind, or a module with a cache on disk.
    """

    most_pairs = MOST_PAIRS
    share: ClassVar[float] = 1.0
    auto_class: ClassVar[Any]

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
        for part in ("image_processor", "tokenizer"):
            if getattr(self.processor, part, None) is None:
                kind = type(self.processor).__name__
                raise ValueError(f"{model}: its processor, a {kind}, has no {part}. Pass the model's own processor.")
        self.scored_pairs = 0

    @cached_property
    def config(self) -> Any:
        """The model's configuration."""
        if self._backbone is not None:
            return self._backbone.config
        return transformers.AutoConfig.from_pretrained(self._model, trust_remote_code=False)

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """How it scores, for `results.json`; scores are stored apart for what differs in them."""

    @abstractmethod
    def log_probabilities(self, images: Sequence[Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """`[b]` fp32, the logarithm of the probability that each text fits its image.

        Args:
            images: `b` of them; those of one image are the same object.
            texts: `b` of them.
        """

    def truncated(self, texts: Sequence[str]) -> int:
        """How many of some texts are longer than the model reads; by default none is cut."""
        return 0

    def dtype(self) -> torch.dtype | str:
        """The precision that weights are loaded in."""
        return torch.float32

    def load(self) -> nn.Module:
        """The model of an id or folder, with all of its weights.

        Raises:
            ValueError: for weights that are damaged, missing or of another shape, naming them.
        """
        with damage_named(self._model), no_report():
            backbone, info = self.auto_class.from_pretrained(
                self._model,
                dtype=self.dtype(),
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        refuse(self._model, missing=info["missing_keys"], shapes=info["mismatched_keys"])
        return backbone

    def score_pairs(self, pairs: PairList, *, progress: bool = False) -> PairScores:
        """The probability of each pair.

        Args:
            pairs: of a benchmark.
            progress: whether to show a bar of the pairs.
        """
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
            return decoded(pairs.cell(number), str(pairs.first[number]))

        def image_of(number: int) -> Image.Image:
            with locks[number % _DECODED]:  # threads that want one image get one object
                return decode(number)

        def load(number: int) -> tuple[tuple[Image.Image, str], bool]:
            pair = first[number]
            image = image_of(int(pairs.image[pair]))
            return (image, pairs.texts[pairs.text[pair]]), is_tiny(image)

        def score(loaded: list[tuple[tuple[Image.Image, str], bool]]) -> NDArray[np.float32]:
            self.scored_pairs += len(loaded)
            images, texts = zip(*(pair for pair, _ in loaded), strict=True)
            return self.log_probabilities(images, texts).float().cpu().numpy()[:, None]

        store, found, missing = self.look_up("pairs", keys, 1, unit=False)
        missing.sort(key=lambda number: (pairs.image[first[number]], len(pairs.texts[pairs.text[first[number]]])))
        bar = tqdm(total=len(missing), desc="pairs", disable=not progress or not missing, leave=False, unit="pair")
        with bar, ThreadPoolExecutor(max_workers=workers()) as pool:
            self.fill(store, found, missing, loaded_ahead(pool, load, self.own_batches(missing)), score, bar)
        tiny = len({pairs.keys[pairs.image[first[number]]] for number in np.flatnonzero(found.flags)})
        values = np.exp(found.vectors[index, 0].astype(np.float64))
        return PairScores(values, len(missing), tiny, self.truncated([pairs.texts[one] for one in set(pairs.text)]))

    def _fingerprint(self) -> dict[str, Any]:
        precision = self.dtype() if self._backbone is None else self._backbone.dtype
        shared = {"weights": self.weights, "device": self.device.type, "dtype": str(precision), **self.facts}
        versions = {"torch": torch.__version__, "transformers": transformers.__version__, "pillow": PIL.__version__}
        return {**shared, **versions, "scoring": SCORING_VERSION, **processor_facts(self.processor)}


def _processor(model: str | Path | nn.Module) -> Any:
    try:
        return load_processor(model, argument="processor")
    except ImportError as error:  # the processors of some models need torchvision
        needed = " ".join(str(error).split())
        raise ValueError(f"{model}: its processor cannot be loaded: {needed}") from error
