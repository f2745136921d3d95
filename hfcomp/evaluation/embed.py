"""Embeddings of a data set's distinct images and texts by one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoProcessor

from hfcomp.data.collators import TextTokenizer
from hfcomp.data.images import decode_image
from hfcomp.data.pixels import PixelTransform
from hfcomp.modeling import encode_images, encode_texts, load_backbone


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
        model: Hub id, folder or module.
        processor: the model's processor; loaded from `model` when it is left out.
        batch_size: images or texts at a time.
        device: where to run; by default a GPU when there is one.
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
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.backbone = self.backbone.to(self.device).eval()
        processor = processor or AutoProcessor.from_pretrained(model)
        config = self.backbone.config
        self.transform = PixelTransform.from_processor(processor.image_processor)
        self.tokenizer = TextTokenizer(
            processor.tokenizer,
            model_type=config.model_type,
            max_length=config.text_config.max_position_embeddings,
            eos_token_id=getattr(config.text_config, "eos_token_id", None),
        )
        self.batch_size = batch_size

    @torch.inference_mode()
    def images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> NDArray[np.float32]:
        """`[n, D]` fp32, L2-normalised. `images` are what `hfcomp.data.images.decode_image` takes."""
        parts = []
        for start in tqdm(range(0, len(images), self.batch_size), desc="images", disable=not progress, leave=False):
            part = images[start : start + self.batch_size]
            decoded = [decode_image(x, where=f"column '{column}', row {start + i}") for i, x in enumerate(part)]
            pixels = self.transform.normalize(self.transform(decoded)).to(self.device)
            parts.append(encode_images(self.backbone, pixels).float().cpu().numpy())
        return np.concatenate(parts)

    @torch.inference_mode()
    def texts(self, texts: Sequence[str], *, progress: bool = False) -> TextEmbeddings:
        """Embeddings of texts; equal texts are encoded once."""
        distinct = sorted(set(texts), key=len)  # texts of one length together: little padding
        ids, truncated = self.tokenizer(distinct)
        parts = []
        for start in tqdm(range(0, len(ids), self.batch_size), desc="texts", disable=not progress, leave=False):
            part = ids[start : start + self.batch_size]
            padded = self.tokenizer.pad(part, self.tokenizer.length(part)).to(self.device)
            parts.append(encode_texts(self.backbone, padded).float().cpu().numpy())
        position = {text: index for index, text in enumerate(distinct)}
        vectors = np.concatenate(parts)[[position[text] for text in texts]]
        return TextEmbeddings(vectors, sum(truncated))
