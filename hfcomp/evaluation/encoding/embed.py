"""Embeddings of a dataset's distinct images and texts by one model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from hfcomp.data.images import decode_image, is_tiny
from hfcomp.data.pixels import PixelTransform
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.cells import check_text, decoded, distinct, image_key, tokens_key
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, processor_facts
from hfcomp.modeling import encode_images, encode_texts, load_backbone, load_config, load_processor

ENCODING_VERSION = 3
"""Raised when the same model, image or text would get another vector; older cached vectors are then not read."""


@dataclass(frozen=True)
class TextEmbeddings:
    """Embeddings of texts, in the order that was asked for.

    Attributes:
        vectors: `[n, D]` fp32, L2-normalized.
        truncated: number of distinct texts that were longer than the text tower.
        merged: how many of these were cut to the tokens of another one.
    """

    vectors: NDArray[np.float32]
    truncated: int
    merged: int = 0


@dataclass(frozen=True)
class Indexed:
    """Embeddings of the distinct ones of n images or texts.

    Attributes:
        vectors: `[m, D]` fp32, L2-normalized.
        index: `[n]`, which of them each one has; -1 for a missing image.
        flagged: number of distinct texts that were cut, or of images one pixel wide or high.
        computed: number of distinct ones that were encoded now; the others were cached.
        merged: how many of the texts that were cut have the tokens of another one then.
    """

    vectors: NDArray[np.float32]
    index: NDArray[np.int64]
    flagged: int
    computed: int
    merged: int = 0

    def take(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[k, D]`; every one of them has to be there."""
        return self.vectors[self.index[rows]]


class Embedder(EvaluatedModel):
    """Encodes images and texts with a model as its authors prepared them, each distinct one once.

    Args:
        model: Hub id, folder or module. A module is left unchanged: it runs on its device, in eval mode while it
            encodes and in its own modes again afterwards. With another `device`, a copy made now runs there. Weights
            of an id or folder are not loaded before something has to be encoded.
        processor: the model's processor; loaded from `model`, or from where a module came from, when it is left out.
        batch_size: images or texts at a time.
        device: where to run; by default a module's own place, else a GPU when there is one.
        cache: stored embeddings. By default each call encodes again. For a module the cache has to be one without a
            folder, made after the last change of its weights.
        split: whether the processes of `torchrun` or `accelerate launch` share the work; all of them have to make the
            same calls then, and all get every embedding. Batches do not depend on the number of processes.

    Attributes:
        encoded_images: images that were encoded by this process so far.
        encoded_texts: texts likewise.

    Raises:
        ValueError: for a model that is not a supported dual encoder, a module whose processor is not found, or a
            module with a cache on disk.
    """

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
        super().__init__(model, device=device, batch_size=batch_size, cache=cache, split=split)
        self.config = load_config(model) if self._backbone is None else self._backbone.config
        processor = processor or load_processor(model, argument="processor")
        self.transform = PixelTransform.from_processor(processor.image_processor)
        self.tokenizer = TextTokenizer.from_processor(processor, self.config)
        self.encoded_images = 0
        self.encoded_texts = 0
        if cache is not None:
            self._fingerprints = self._make_fingerprints(processor)

    def checked(self, model: nn.Module) -> nn.Module:
        """The backbone of a module.

        Raises:
            ValueError: for a module that is not a supported dual encoder.
        """
        return load_backbone(model)

    def load(self) -> nn.Module:
        """The model of an id or folder, in fp32 whatever the precision of its file."""
        return load_backbone(self._model, dtype=torch.float32)

    def images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> NDArray[np.float32]:
        """Embeddings of images; those of the same bytes, file or pixels are encoded once.

        Args:
            images: what `hfcomp.data.images.decode_image` takes.
            column: what errors call the place of an image, with its row.
            progress: whether to show a bar.

        Returns:
            `[n, D]` fp32, L2-normalized, in the order of `images`.

        Raises:
            TypeError: for one image instead of a list of them.
            ValueError: for a missing image.
        """
        if isinstance(images, str | bytes | os.PathLike | Image.Image):
            raise TypeError(f"images: found one {type(images).__name__}, expected a list. Put it into one: [image].")
        found = self.index_images(images, column=column, progress=progress)
        # `decode_image` raises the error for a missing image, with its place.
        if (found.index < 0).any():
            decode_image(None, where=f"column '{column}', row {int(np.argmax(found.index < 0))}")
        return found.take(slice(None))

    def texts(self, texts: Sequence[str], *, progress: bool = False) -> TextEmbeddings:
        """Embeddings of texts; those of equal tokens are encoded once, and have the same vector to the last bit.

        Raises:
            TypeError: for a single text instead of a list, or an entry that is not a text.
        """
        found = self.index_texts(texts, progress=progress)
        return TextEmbeddings(found.take(slice(None)), found.flagged, found.merged)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """As `images`, with one vector for each distinct image; an image that is `None` gets none.

        No more than two batches of images are in memory at a time.
        """
        with self.together():
            return self._index_images(images, column, progress)

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """As `texts`, with one vector for all texts that the tokenizer makes the same tokens of.

        `flagged` counts distinct texts all the same.
        """
        if isinstance(texts, str):
            raise TypeError(
                f"texts: found the text {texts!r}, expected a list of texts. Put it into one: [{texts!r}]."
            )
        with self.together():
            return self._index_texts(texts, progress)

    def _index_images(self, images: Sequence[Any], column: str, progress: bool) -> Indexed:
        def encode(pixels: torch.Tensor) -> NDArray[np.float32]:
            self.encoded_images += len(pixels)
            return self._encode(encode_images, pixels)

        return index_images(self, self.transform, images, encode, self._width(), column=column, progress=progress)

    def _index_texts(self, texts: Sequence[str], progress: bool) -> Indexed:
        # Equal texts are tokenized once, and texts with equal tokens are encoded once.
        number = {text: place for place, text in enumerate(dict.fromkeys(map(check_text, texts, count())))}
        ids, cut = self.tokenizer(list(number))
        is_cut = np.array(cut, dtype=bool)
        keys, index, first = distinct(map(tokens_key, ids))

        def encode(rows: list[tuple[list[int], bool]]) -> NDArray[np.float32]:
            self.encoded_texts += len(rows)
            # Padded to the longest of the batch, or to the full length if the model was trained that way.
            part = [row for row, _ in rows]
            padded = self.tokenizer.pad(part, self.tokenizer.length(part)).to(self.device)
            return self._encode(encode_texts, padded)

        found, computed = self.compute(
            "texts",
            keys,
            self._width(),
            lambda place: (ids[first[place]], cut[first[place]]),
            encode,
            progress=progress,
            ahead=False,
            order=lambda place: (len(ids[first[place]]), keys[place]),  # texts of one length together: little padding
        )
        # A truncated text counts as merged unless it is the first one with its tokens and no whole text has them.
        merged = sum(cut) - len(np.setdiff1d(index[is_cut], index[~is_cut]))
        return Indexed(found.vectors, index[[number[text] for text in texts]], sum(cut), computed, merged)

    def _encode(self, encode: Callable[[nn.Module, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> NDArray:
        return encode(self.backbone, inputs).float().cpu().numpy()

    def _width(self) -> int:
        return getattr(self.config, "projection_dim", None) or self.config.vision_config.hidden_size

    def _make_fingerprints(self, processor: Any) -> dict[str, dict[str, Any]]:
        # An id or folder is loaded in fp32, see `load`.
        precision = str(self._backbone.dtype) if self._backbone is not None else str(torch.float32)
        shared = {
            "weights": self.weights,
            "device": self.device.type,
            "dtype": precision,
            "encoding": ENCODING_VERSION,
        }
        shared |= {"torch": torch.__version__, "transformers": transformers.__version__}
        facts = processor_facts(processor)
        tokenizer = {
            **facts["tokenizer"],
            "max_length": self.tokenizer.max_length,
            "full_length": self.tokenizer.pad_to_full,
            "pad_token_id": processor.tokenizer.pad_token_id,
        }
        # Pillow decodes and resizes, and another version may produce other pixels.
        pixels = {"pixels": facts["pixels"], "pillow": PIL.__version__}
        return {"images": {**shared, **pixels}, "texts": {**shared, "tokenizer": tokenizer}}


def index_images(
    model: EvaluatedModel,
    transform: PixelTransform,
    images: Sequence[Any],
    encode: Callable[[torch.Tensor], NDArray[np.float32]],
    width: int,
    *,
    column: str,
    progress: bool,
    desc: str = "",
) -> Indexed:
    """A vector `[width]` for each distinct image, which `encode` makes of a batch of normalized pixels."""
    names = [f"column '{column}', row {row}" for row in range(len(images))]
    keys, index, first = distinct(map(image_key, images, names))

    def load(number: int) -> tuple[torch.Tensor, bool]:
        image = decoded(images[first[number]], names[first[number]])
        return transform([image], where=[names[first[number]]]), is_tiny(image)

    def encode_batch(loaded: list[tuple[torch.Tensor, bool]]) -> NDArray[np.float32]:
        return encode(transform.normalize(torch.cat([pixels for pixels, _ in loaded]).to(model.device)))

    found, computed = model.compute("images", keys, width, load, encode_batch, progress=progress, desc=desc)
    return Indexed(found.vectors, index, int(found.flags.sum()), computed)
