"""Scores many interpolations of two models at once: each image is decoded and each text tokenized only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from hfcomp.devices import default_device
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import embed, score_items
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.modeling.interpolation import Interpolation


def point_name(alpha: float) -> str:
    return f"alpha {alpha:g}"


class PointsEmbedder(Embedder):
    """Encodes each batch at several points of an interpolation.

    A vector `[P * D]` concatenates the vectors of all points. Embeddings are kept only in memory, because the weights
    change.

    Args:
        interpolation: Interpolation of the weights; it is moved to the device.
        alphas: The P points.
    """

    def __init__(
        self,
        interpolation: Interpolation,
        alphas: Sequence[float],
        processor: Any,
        *,
        batch_size: int = 128,
        device: str | None = None,
    ) -> None:
        # Both ends of the interpolation must be on the device where the points are computed.
        interpolation.to(device or default_device())
        super().__init__(interpolation.model, processor, batch_size=batch_size, cache=EmbeddingCache())
        self.alphas = list(alphas)
        self._interpolation = interpolation

    def _width(self) -> int:
        return len(self.alphas) * super()._width()

    def _encode(self, encode: Callable[[nn.Module, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> NDArray:
        vectors = []
        # The model of each point encodes the same batch in turn, so images are decoded once for all points.
        for alpha in self.alphas:
            self._interpolation.set(alpha)
            vectors.append(super()._encode(encode, inputs))
        return np.concatenate(vectors, axis=1)

    def score(self, evaluator: Evaluator, *, progress: bool = False) -> pd.DataFrame:
        """Scores every point on the loaded benchmarks; the outcomes of a point have its name as `arm`."""
        tables, width = [], super()._width()
        for loaded in evaluator.loaded:
            bars = progress and not loaded.benchmark.synthetic
            embedded = embed(loaded.benchmark, loaded.data, self, progress=bars)
            evaluator.note_inputs(loaded.benchmark.name, embedded.counts)
            # The vectors of all points lie side by side, as `_encode` concatenates them.
            for number, alpha in enumerate(self.alphas):
                own = embedded.entries(slice(number * width, (number + 1) * width))
                table = score_items(loaded.benchmark, own)
                tables.append(table.assign(arm=point_name(alpha)))
        return pd.concat(tables, ignore_index=True)
