"""DINOScore: the cosine of two images by a vision transformer that has seen no text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import PIL
import torch
import transformers
from numpy.typing import NDArray
from torch import nn
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoImageProcessor

from hfcomp.analysis.pairs.pretrained import find_device, load_model
from hfcomp.data.images import is_tiny
from hfcomp.data.pixels import PixelTransform
from hfcomp.evaluation.cells import decoded, distinct, image_key
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.encoding.evaluated_model import NOT_FINITE
from hfcomp.evaluation.encoding.identity import identity

USE = "image_model"
THREADS = 8


class ImageEmbedder:
    """Encodes images with a vision transformer by Hub id or folder, each distinct one once, in fp32.

    The vector of an image is the class token of the last layer behind its layer norm (`pooler_output` of DINOv2),
    L2-normalised: the usual reading of "DINOScore", and our choice, as the paper does not say.

    Args:
        place: Hub id or folder.
        batch_size: images at a time.
        device: by default a GPU where there is one.
        cache: stored embeddings.

    Raises:
        ValueError: for a place without a model or an image processor.
    """

    def __init__(
        self, place: str, *, batch_size: int = 128, device: str | None = None, cache: EmbeddingCache | None = None
    ) -> None:
        self.place, self.batch_size = place, batch_size
        self.device, self.cache = find_device(device), cache or EmbeddingCache()
        try:
            config = AutoConfig.from_pretrained(place, trust_remote_code=False)
            processor = AutoImageProcessor.from_pretrained(place, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise ValueError(f"{USE}: {place} has no configuration or image processor: {error}") from error
        self.transform = PixelTransform.from_processor(processor)
        self.width = config.hidden_size
        self._facts = {
            "use": "class token",
            "weights": identity(place),
            "device": self.device.type,
            "pixels": {"class": type(processor).__name__, **json.loads(processor.to_json_string())},
            "versions": [torch.__version__, transformers.__version__, PIL.__version__],
        }

    @property
    def weights(self) -> str:
        """What identifies the weights."""
        return str(self._facts["weights"])

    @cached_property
    def model(self) -> nn.Module:
        """The model, loaded on first use."""
        return load_model(self.place, needed_by=USE).to(self.device)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """One vector for each distinct image; an image that is `None` gets none.

        Args:
            images: what `hfcomp.data.images.decode_image` takes.
            column: what errors call the place of an image, with its row.
            progress: whether to show a bar.

        Raises:
            ValueError: for an image that cannot be read, embeddings that are not finite, or a model without a class
                token.
        """
        names = [f"column '{column}', row {row}" for row in range(len(images))]
        keys, index, first = distinct(map(image_key, images, names))
        store = self.cache.store(self._facts, self.place)
        vectors, flags, there = store.look_up(keys, self.width)
        missing = np.flatnonzero(~there).tolist()

        def load(number: int) -> tuple[torch.Tensor, bool]:
            where = names[first[number]]
            image = decoded(images[first[number]], where)
            return self.transform([image], where=[where]), is_tiny(image)

        bar = tqdm(total=len(missing), desc=f"{USE}: {column}", disable=not progress, leave=False, unit="img")
        try:
            with bar, ThreadPoolExecutor(THREADS) as pool:
                for start in range(0, len(missing), self.batch_size):
                    batch = missing[start : start + self.batch_size]
                    loaded = list(pool.map(load, batch))
                    vectors[batch] = self._encode(torch.cat([pixels for pixels, _ in loaded]))
                    flags[batch] = [tiny for _, tiny in loaded]
                    store.add([keys[number] for number in batch], vectors[batch], flags[batch], own=True)
                    bar.update(len(batch))
        finally:  # what was encoded is kept, whatever stopped it
            store.flush()
        return Indexed(vectors, index, int(flags.sum()), len(missing))

    @torch.inference_mode()
    def _encode(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        tokens = self.model(pixel_values=self.transform.normalize(pixels.to(self.device))).last_hidden_state
        if tokens.ndim != 3:
            raise ValueError(f"{USE}: {self.place} is not a vision transformer with a class token, such as DINOv2.")
        vectors = nn.functional.normalize(tokens[:, 0].float(), dim=-1).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise ValueError(f"{USE}: {NOT_FINITE}")
        return vectors
