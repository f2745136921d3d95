"""Many models between two, scored at once: every image is decoded and every text tokenized once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.evaluated_model import free_device
from hfcomp.evaluation.engine import embed, score_items
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.modeling.interpolation import Interpolation


def point_name(alpha: float) -> str:
    return f"alpha {alpha:g}"


class PointsEmbedder(Embedder):
    """Encodes with a model at several points of an interpolation, batch by batch.

    A vector is that of every point in a row, `[P * D]`. Embeddings are kept in memory alone, as weights change.

    Args:
        interpolation: of the weights; it is moved to the device.
        alphas: the P points.
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
        # Both ends of the interpolation must be on the device where the points are made.
        interpolation.to(device or free_device())
        super().__init__(interpolation.model, processor, batch_size=batch_size, cache=EmbeddingCache())
        self.alphas = list(alphas)
        self._interpolation = interpolation

    def _width(self) -> int:
        return len(self.alphas) * super()._width()

    def _encode(self, encode: Callable[[nn.Module, torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> NDArray:
        found = []
        # Each point's model in turn encodes the same batch, so images are decoded once for all points.
        for alpha in self.alphas:
            self._interpolation.set(alpha)
            found.append(super()._encode(encode, inputs))
        return np.concatenate(found, axis=1)

    def score(self, evaluator: Evaluator, *, progress: bool = False) -> pd.DataFrame:
        """The outcomes of every point, which is their `arm`, on loaded benchmarks."""
        tables, width = [], super()._width()
        for one in evaluator.loaded:
            embedded = embed(one.benchmark, one.data, self, progress=progress and not one.benchmark.synthetic)
            evaluator.note_inputs(one.benchmark.name, embedded.counts)
            # The vectors of all points lie side by side, as `_encode` concatenates them.
            for number, alpha in enumerate(self.alphas):
                own = embedded.entries(slice(number * width, (number + 1) * width))
                table = score_items(one.benchmark, own)
                tables.append(table.assign(arm=point_name(alpha)))
        return pd.concat(tables, ignore_index=True)
