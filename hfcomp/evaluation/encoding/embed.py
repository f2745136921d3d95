"""Embeddings of a dataset's distinct images and texts from one model."""

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
from hfcomp.data.pixels import PixelTransform, ProcessorInputs, choose_transform
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.cells import check_text, decoded, distinct, image_key, tokens_key
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.evaluated_model import EvaluatedModel, eval_mode, processor_facts
from hfcomp.families import embedding_width, family_of
from hfcomp.modeling import encode_images, encode_texts, load_backbone, load_config, load_processor
from hfcomp.remote_code import pin

ENCODING_VERSION = 3
"""Version that is raised when the same model, image or text would get another vector, which invalidates the cache."""


@dataclass(frozen=True)
class TextEmbeddings:
    """Embeddings of texts, in the given order.

    Attributes:
        vectors: `[n, D]` fp32, L2-normalized.
        truncated: Number of distinct texts that were longer than the text tower.
        merged: Number of these that were cut to the tokens of another text.
    """

    vectors: NDArray[np.float32]
    truncated: int
    merged: int = 0


@dataclass(frozen=True)
class Indexed:
    """Embeddings of the m distinct images or texts among n.

    Attributes:
        vectors: `[m, D]` fp32, L2-normalized.
        index: `[n]`, row of `vectors` for each image or text; -1 for a missing image.
        flagged: Number of distinct texts that were cut, or of distinct images one pixel wide or high.
        computed: Number of distinct images or texts that were encoded now; the others were cached.
        merged: Number of cut texts that then have the tokens of another text.
    """

    vectors: NDArray[np.float32]
    index: NDArray[np.int64]
    flagged: int
    computed: int
    merged: int = 0

    def take(self, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Returns the vectors of some rows, `[k, D]`, none of which may be missing."""
        return self.vectors[self.index[rows]]


class Embedder(EvaluatedModel):
    """Encodes each distinct image and text once, with the preprocessing of the model's authors.

    Args:
        model: Hub id, folder or module. A module is left unchanged: it runs on its device, in eval mode while it
            encodes, and its own modes are restored afterwards. With another `device`, a copy made now runs there.
            Weights of a Hub id or folder are loaded only when something must be encoded.
        processor: The model's processor. By default it is loaded from `model`, or from the place a module came from.
        batch_size: Images or texts per batch.
        device: Device to run on. Defaults to a module's own device, otherwise to a GPU if available.
        cache: Stored embeddings. By default, each call encodes again. A module needs a cache without a folder, created
            after the last change of its weights.
        split: Whether the processes of `torchrun` or `accelerate launch` share the work. All of them must then make
            the same calls, and all get every embedding. Batches do not depend on the number of processes.
        revision: Branch, tag or commit of a Hub id.
        trust_remote_code: Whether to run the Python code in the model's repository or folder. A Hub id then needs a
            commit of 40 digits.

    Attributes:
        encoded_images: Number of images encoded by this process so far.
        encoded_texts: Number of texts encoded by this process so far.

    Raises:
        ValueError: If the model is not a dual encoder, a module's processor is not found, or a module has a
            cache on disk.
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
        revision: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        model = pin([model], revision, trust=trust_remote_code)[0]
        super().__init__(model, device=device, batch_size=batch_size, cache=cache, split=split)
        self.config = load_config(model) if self._backbone is None else self._backbone.config
        processor = processor or load_processor(model, argument="processor")
        self.transform = choose_transform(processor.image_processor, family_of(self.config).image_inputs)
        self.tokenizer = TextTokenizer.from_processor(processor, self.config)
        self.encoded_images = 0
        self.encoded_texts = 0
        if self._backbone is not None:
            self._try(self._backbone)
        if cache is not None:
            self._fingerprints = self._make_fingerprints(processor)

    def runnable_part(self, model: nn.Module) -> nn.Module:
        """Returns a module's backbone.

        Raises:
            ValueError: If the module is not a dual encoder.
        """
        return load_backbone(model)

    def load(self) -> nn.Module:
        """Loads the model of a Hub id or folder in fp32, whatever the precision of its file."""
        backbone = load_backbone(self._model, dtype=torch.float32)
        self._try(backbone)
        return backbone

    def images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> NDArray[np.float32]:
        """Embeds images; those with the same bytes, file or pixels are encoded once.

        Args:
            images: Images as `hfcomp.data.images.decode_image` takes them.
            column: Name of the column in errors, which also give the row.
            progress: Whether to show a bar.

        Returns:
            `[n, D]` fp32, L2-normalized, in the order of `images`.

        Raises:
            TypeError: If `images` is a single image instead of a list.
            ValueError: If an image is missing.
        """
        if isinstance(images, str | bytes | os.PathLike | Image.Image):
            raise TypeError(f"images: found one {type(images).__name__}, expected a list. Put it into one: [image].")
        indexed = self.index_images(images, column=column, progress=progress)
        # `decode_image` raises the error for a missing image, with its place.
        if (indexed.index < 0).any():
            decode_image(None, where=f"column '{column}', row {int(np.argmax(indexed.index < 0))}")
        return indexed.take(slice(None))

    def texts(self, texts: Sequence[str], *, progress: bool = False) -> TextEmbeddings:
        """Embeds texts; those with equal tokens are encoded once and have bit-identical vectors.

        Raises:
            TypeError: If `texts` is a single string instead of a list, or an entry is not a string.
        """
        indexed = self.index_texts(texts, progress=progress)
        return TextEmbeddings(indexed.take(slice(None)), indexed.flagged, indexed.merged)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Like `images`, but returns one vector per distinct image; an image that is `None` gets none.

        At most two batches of images are in memory at a time.
        """
        with self.together():
            return self._index_images(images, column, progress)

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """Like `texts`, but returns one vector for all texts with the same tokens.

        `flagged` still counts distinct texts.
        """
        if isinstance(texts, str):
            raise TypeError(
                f"texts: found the string {texts!r}, expected a list of strings. Put it into one: [{texts!r}]."
            )
        with self.together():
            return self._index_texts(texts, progress)

    def _index_images(self, images: Sequence[Any], column: str, progress: bool) -> Indexed:
        def encode(inputs: Any) -> NDArray[np.float32]:
            vectors = self._encode(encode_images, inputs)
            self.encoded_images += len(vectors)
            return vectors

        return index_images(self, self.transform, images, encode, self._width(), column=column, progress=progress)

    def _index_texts(self, texts: Sequence[str], progress: bool) -> Indexed:
        # Equal texts are tokenized once, and texts with equal tokens are encoded once.
        number = {text: place for place, text in enumerate(dict.fromkeys(map(check_text, texts, count())))}
        ids, cut = self.tokenizer(list(number))
        is_cut = np.array(cut, dtype=bool)
        keys, index, first = distinct(map(tokens_key, ids))

        def encode(rows: list[tuple[list[int], bool]]) -> NDArray[np.float32]:
            self.encoded_texts += len(rows)
            # Padded to the longest text of the batch, or to the full length if the model was trained that way.
            part = [row for row, _ in rows]
            padded = self.tokenizer.pad(part, self.tokenizer.length(part)).to(self.device)
            return self._encode(encode_texts, padded)

        vectors, computed = self.compute(
            "texts",
            keys,
            self._width(),
            lambda place: (ids[first[place]], cut[first[place]]),
            encode,
            progress=progress,
            ahead=False,
            order=lambda place: (len(ids[first[place]]), keys[place]),  # similar lengths need little padding
        )
        # A truncated text counts as merged, unless it is the first with its tokens and no complete text has them.
        merged = sum(cut) - len(np.setdiff1d(index[is_cut], index[~is_cut]))
        return Indexed(vectors.vectors, index[[number[text] for text in texts]], sum(cut), computed, merged)

    def _try(self, backbone: nn.Module) -> None:
        """Embeds a gray image and a word, to find a model that has the methods of a dual encoder but no embeddings."""
        side, width = max(getattr(self.transform, "size", (64,))), embedding_width(self.config)
        pixels = self.transform.batch([self.transform([Image.new("RGB", (side, side), "gray")])], backbone.device)
        rows = self.tokenizer.tokenizer(["a"], padding=False)["input_ids"]
        ids = self.tokenizer.pad(rows, self.tokenizer.length(rows)).to(backbone.device)
        for what, encode, inputs in (("image", encode_images, pixels), ("text", encode_texts, ids)):
            try:
                with eval_mode(backbone), torch.inference_mode():
                    shape = list(encode(backbone, inputs).shape)
            except (AttributeError, TypeError, ValueError, RuntimeError) as error:
                raise ValueError(_no_embedding(backbone, what, str(error).splitlines()[0])) from error
            if shape != [1, width]:
                raise ValueError(_no_embedding(backbone, what, f"its shape is {shape}, expected [1, {width}]"))

    def _encode(self, encode: Callable[[nn.Module, Any], torch.Tensor], inputs: Any) -> NDArray:
        return encode(self.backbone, inputs).float().cpu().numpy()

    def _width(self) -> int:
        return embedding_width(self.config)

    def _make_fingerprints(self, processor: Any) -> dict[str, dict[str, Any]]:
        # A Hub id or folder is loaded in fp32, see `load`.
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
        # Pillow decodes and resizes, and another version may produce different pixels.
        pixels = {"pixels": facts["pixels"], "pillow": PIL.__version__}
        return {"images": {**shared, **pixels}, "texts": {**shared, "tokenizer": tokenizer}}


def _no_embedding(backbone: nn.Module, what: str, problem: str) -> str:
    return (
        f"{type(backbone).__name__} gives no {what} embedding: {problem}. Use a model whose get_image_features and "
        "get_text_features return vectors of one space."
    )


def index_images(
    model: EvaluatedModel,
    transform: PixelTransform | ProcessorInputs,
    images: Sequence[Any],
    encode: Callable[[Any], NDArray[np.float32]],
    width: int,
    *,
    column: str,
    progress: bool,
    desc: str = "",
) -> Indexed:
    """Computes a vector `[width]` for each distinct image; `encode` maps a batch of model inputs to vectors."""
    names = [f"column '{column}', row {row}" for row in range(len(images))]
    keys, index, first = distinct(map(image_key, images, names))

    def load(number: int) -> tuple[Any, bool]:
        image = decoded(images[first[number]], names[first[number]])
        return transform([image], where=[names[first[number]]]), is_tiny(image)

    def encode_batch(loaded: list[tuple[Any, bool]]) -> NDArray[np.float32]:
        return encode(transform.batch([pixels for pixels, _ in loaded], model.device))

    vectors, computed = model.compute("images", keys, width, load, encode_batch, progress=progress, desc=desc)
    return Indexed(vectors.vectors, index, int(vectors.flags.sum()), computed)
