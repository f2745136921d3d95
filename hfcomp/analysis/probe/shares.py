"""Computes the share of the gradient on the hard negative in random batches of encoded pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hfcomp.losses.gradient_share import negative_logits
from hfcomp.statistics.bootstrap import students_tail, two_sided_quantile

ADAPTIVE = "adaptive"
"""Margin of Eq. 4 with the paper's parameters, which depends on each pair's concreteness."""
BOTH = "both"
DIRECTIONS = (BOTH, "image to text", "text to image")
Share = Mapping[str, Any]
"""Entry with `batch_size`, `batches`, `margin`, `direction`; `value` with `low` and `high`; and the mean magnitudes
`hard` and `easy` over `anchors`."""


@dataclass(frozen=True)
class EncodedPairs:
    """L2-normalized embeddings of n pairs and their negatives, in batch order."""

    tensors: Mapping[str, Tensor]  # arguments of `negative_logits` by name, each with n rows
    scale: Tensor  # logit scale of the model
    margins: Mapping[float | str, Tensor | float]  # by name: a number, or logits `[n]`

    def __len__(self) -> int:
        return len(self.tensors["image"])


def gradient_shares(pairs: EncodedPairs, batch_size: int, margins: Sequence[float | str] | None = None) -> list[Share]:
    """Computes the share of the gradient on the hard negative over all full batches of a size.

    This is the share of Concrete Jungle's Figure 6: the sum of p_ii' over the anchors of a batch, divided by the sum
    of 1 - p_ii, the magnitude of the gradient on their own pairs (Eq. 3). Anchors are the images and texts of the
    doubled batch that have a hard negative. Batches share no pairs, so the interval is Student's t over batches.

    Args:
        pairs: Encoded pairs in random order, at least one batch.
        batch_size: Number of pairs per batch.
        margins: Names of margins to use. Defaults to all margins of the pairs.

    Returns:
        One entry per margin and direction with anchors. Bounds are NaN for a single batch.
    """
    # Compute logits once per batch, because a margin only shifts those of the hard negative, in O(N).
    margins = list(pairs.margins) if margins is None else margins
    number = len(pairs) // batch_size
    sums, anchors = [], np.zeros(2)
    for start in range(0, number * batch_size, batch_size):
        rows = slice(start, start + batch_size)
        logits = negative_logits(
            logit_scale=pairs.scale, **{name: tensor[rows] for name, tensor in pairs.tensors.items()}
        )
        anchors += logits.counted.sum(1).cpu().numpy()
        # An adaptive margin has a value per pair, so a batch uses its own part.
        batch_margins = [
            value[rows] if isinstance(value, Tensor) else value for value in (pairs.margins[name] for name in margins)
        ]
        sums.append(torch.stack([logits.magnitudes(margin).sum(2).cpu().double() for margin in batch_margins]).numpy())
    facts = {"batch_size": batch_size, "batches": number}
    return [
        {**facts, "margin": margin, **estimate}
        for margin, totals in zip(margins, np.stack(sums, 1), strict=True)
        for estimate in _direction_estimates(totals, anchors)
    ]


def _direction_estimates(totals: NDArray[np.float64], anchors: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """Yields estimates for both directions together, and for each direction with anchors, from `[batches, 2, 2]`."""
    for name, columns in zip(DIRECTIONS, ([0, 1], [0], [1]), strict=True):
        if count := anchors[columns].sum():
            hard, easy = totals[:, :, columns].sum(2).T
            mean = {"hard": hard.sum() / count, "easy": easy.sum() / count, "anchors": int(count)}
            yield {"direction": name, **_ratio(hard, hard + easy), **mean}


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> dict[str, float]:
    """Returns the ratio of two sums over batches, with an interval from the deviations between batches."""
    share, number = part.sum() / whole.sum(), len(part)
    half = math.nan
    if number > 1:
        # By the delta method, a ratio of two sums varies like its residuals `part - share * whole`.
        deviation = ((part - share * whole) / whole.mean()).std(ddof=1)
        half = two_sided_quantile(lambda t: students_tail(t, number - 1)) * deviation / math.sqrt(number)
    # Limit to the range of a share. Unlike `max`, `np.maximum` keeps the NaN of a single batch.
    return {"value": share, "low": np.maximum(share - half, 0), "high": np.minimum(share + half, 1)}
