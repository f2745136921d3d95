"""Embeddings of a data set's distinct images and texts by one model."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from tqdm.auto import tqdm

from hfcomp.data.collators import TextTokenizer
from hfcomp.data.images import decode_image
from hfcomp.data.pixels import PixelTransform
from hfcomp.modeling import encode_images, encode_texts, load_backbone, load_processor


@dataclass(frozen=True)
class TextEmbeddings:
    """Embeddings of texts, in the order that was asked for.

    Attributes:
        vectors: `[n, D]` fp32, L2-normalised.
        truncated: number of distinct texts that were longer than the text tower.
    """

    vectors: NDArray[np.float32]
    truncated: int


class Embedder:
    """Encodes images and texts with a model as its authors prepared them, each distinct one once.

    Args:
        model: Hub id, folder or module. A module is left as it was: it runs where it lies, in eval mode while it
            encodes and in its own modes again afterwards. With another `device`, a copy made now runs there.
        processor: the model's processor; loaded from `model`, or from where a module came from, when it is left out.
        batch_size: images or texts at a time.
        device: where to run; by default a module's own place, else a GPU when there is one.

    Raises:
        ValueError: for a model that is no dual encoder that hfcomp knows, or a module whose processor is not found.
    """

    def __init__(
        self,
        model: str | Path | nn.Module,
        processor: Any = None,
        *,
        batch_size: int = 128,
        device: str | torch.device | None = None,
    ) -> None:
        self.backbone = load_backbone(model)
        processor = processor or load_processor(model, argument="processor")
        if isinstance(model, nn.Module):
            own = self.backbone.device
            self.device = own if device is None else torch.device(device)
            if self.device.type != own.type or self.device.index not in (None, own.index):
                self.backbone = copy.deepcopy(self.backbone).to(self.device)
        else:
            self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
            self.backbone = self.backbone.to(self.device)
        config = self.backbone.config
        self.transform = PixelTransform.from_processor(processor.image_processor)
        self.tokenizer = TextTokenizer(
            processor.tokenizer,
            model_type=config.model_type,
            max_length=config.text_config.max_position_embeddings,
            eos_token_id=getattr(config.text_config, "eos_token_id", None),
        )
        self.batch_size = batch_size

    def images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> NDArray[np.float32]:
        """Embeddings of images; equal ones (the same file, bytes or pixels) are encoded once.

        Args:
            images: what `hfcomp.data.images.decode_image` takes.
            column: what errors call the place of an image, with its row.
            progress: whether to show a bar.

        Returns:
            `[n, D]` fp32, L2-normalised, in the order of `images`.

        Raises:
            TypeError: for one image instead of a list of them.
        """
        if isinstance(images, str | bytes | os.PathLike | Image.Image):
            raise TypeError(f"images: found one {type(images).__name__}, expected a list. Put it into one: [image].")
        where, waiting = [], []
        parts = [np.empty((0, self._width()), dtype=np.float32)]
        with _eval_mode(self.backbone), torch.inference_mode():
            for number, image in _numbered(tqdm(images, desc="images", disable=not progress, leave=False), column):
                where.append(number)
                if image is not None:
                    waiting.append(image)
                if len(waiting) == self.batch_size:
                    parts.append(self._encode_images(waiting))
                    waiting = []
            if waiting:
                parts.append(self._encode_images(waiting))
        return np.concatenate(parts)[np.array(where, dtype=np.intp)]

    def texts(self, texts: Sequence[str], *, progress: bool = False) -> TextEmbeddings:
        """Embeddings of texts; equal texts are encoded once.

        Raises:
            TypeError: for one text instead of a list of them, or an entry that is no text.
        """
        if isinstance(texts, str):
            raise TypeError(
                f"texts: found the text {texts!r}, expected a list of texts. Put it into one: [{texts!r}]."
            )
        texts = list(texts)
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts, entry {index}: found {text!r}, expected a text. Leave such entries out.")
        distinct = sorted(set(texts), key=len)  # texts of one length together: little padding
        ids, truncated = self.tokenizer(distinct)
        parts = [np.empty((0, self._width()), dtype=np.float32)]
        with _eval_mode(self.backbone), torch.inference_mode():
            for start in tqdm(range(0, len(ids), self.batch_size), desc="texts", disable=not progress, leave=False):
                part = ids[start : start + self.batch_size]
                padded = self.tokenizer.pad(part, self.tokenizer.length(part)).to(self.device)
                parts.append(encode_texts(self.backbone, padded).float().cpu().numpy())
        position = {text: index for index, text in enumerate(distinct)}
        where = np.array([position[text] for text in texts], dtype=np.intp)
        return TextEmbeddings(np.concatenate(parts)[where], sum(truncated))

    def _encode_images(self, images: list[Image.Image]) -> NDArray[np.float32]:
        pixels = self.transform.normalize(self.transform(images)).to(self.device)
        return encode_images(self.backbone, pixels).float().cpu().numpy()

    def _width(self) -> int:
        config = self.backbone.config
        return getattr(config, "projection_dim", None) or config.vision_config.hidden_size


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode, then the mode that each part had before."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _numbered(images: Iterable[Any], column: str) -> Iterator[tuple[int, Image.Image | None]]:
    """For each image the number of the distinct one that it is, and the image itself where it is the first."""
    seen: dict[Hashable, int] = {}
    count = 0
    for row, value in enumerate(images):
        source = _source(value)
        if source in seen:
            yield seen[source], None
            continue
        image = decode_image(value, where=f"column '{column}', row {row}")
        pixels = (image.size, hashlib.sha256(image.tobytes()).digest())
        number = seen.setdefault(pixels, count)
        if source is not None:
            seen[source] = number
        yield number, image if number == count else None
        count += number == count


def _source(value: Any) -> Hashable | None:
    """What tells that two images are the same before they are decoded; `None` for what has to be decoded first."""
    if isinstance(value, dict):
        value = value.get("bytes") if value.get("bytes") is not None else value.get("path")
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    return hashlib.sha256(value).digest() if isinstance(value, bytes | bytearray | memoryview) else None
