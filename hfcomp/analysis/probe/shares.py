"""The share of the gradient on the hard negative in random batches of encoded pairs."""

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
"""The margin of Eq. 4 with the paper's parameters, set by each pair's concreteness."""
BOTH = "both"
DIRECTIONS = (BOTH, "image to text", "text to image")
Share = Mapping[str, Any]
"""`batch_size`, `batches`, `margin`, `direction`; `value` with `low` and `high`; `hard` and `easy`, the mean
magnitudes over `anchors`."""


@dataclass(frozen=True)
class EncodedPairs:
    """Embeddings of n pairs and their negatives, L2-normalized, in the order in which batches take them."""

    tensors: Mapping[str, Tensor]  # arguments of `negative_logits` by name, each of n rows
    scale: Tensor  # logit scale of the model
    margins: Mapping[float | str, Tensor | float]  # by name, a number or `[n]` logits

    def __len__(self) -> int:
        return len(self.tensors["image"])


def gradient_shares(pairs: EncodedPairs, batch_size: int, margins: Sequence[float | str] | None = None) -> list[Share]:
    """Computes the share of the gradient on the hard negative in all whole batches of a size.

    The share is that of Concrete Jungle's Figure 6: the sum of p_ii' over the anchors of a batch, divided by that of
    1 - p_ii, the magnitude of the gradient on their own pairs (Eq. 3). Anchors are those of the doubled batch that
    have a hard negative. No two batches have a pair in common, so the interval is Student's t over batches.

    Args:
        pairs: encoded pairs in random order, at least one batch.
        batch_size: number of pairs in a batch.
        margins: some of the pairs' margins; by default all.

    Returns:
        An entry for each margin and direction with anchors; bounds are NaN with a single batch.
    """
    # Logits are computed once per batch: a margin only shifts those of the hard negative, in O(N).
    margins = list(pairs.margins) if margins is None else margins
    number = len(pairs) // batch_size
    sums, anchors = [], np.zeros(2)
    for start in range(0, number * batch_size, batch_size):
        rows = slice(start, start + batch_size)
        logits = negative_logits(logit_scale=pairs.scale, **{name: one[rows] for name, one in pairs.tensors.items()})
        anchors += logits.counted.sum(1).cpu().numpy()
        # An adaptive margin has a value for each pair, of which a batch takes its own.
        own = [one[rows] if isinstance(one, Tensor) else one for one in (pairs.margins[name] for name in margins)]
        sums.append(torch.stack([logits.magnitudes(margin).sum(2).cpu().double() for margin in own]).numpy())
    facts = {"batch_size": batch_size, "batches": number}
    return [
        {**facts, "margin": margin, **estimate}
        for margin, totals in zip(margins, np.stack(sums, 1), strict=True)
        for estimate in _by_direction(totals, anchors)
    ]


def _by_direction(totals: NDArray[np.float64], anchors: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """The estimates of both directions together and of each that has anchors, from sums `[batches, 2, 2]`."""
    for name, ways in zip(DIRECTIONS, ([0, 1], [0], [1]), strict=True):
        if count := anchors[ways].sum():
            hard, easy = totals[:, :, ways].sum(2).T
            mean = {"hard": hard.sum() / count, "easy": easy.sum() / count, "anchors": int(count)}
            yield {"direction": name, **_ratio(hard, hard + easy), **mean}


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> dict[str, float]:
    """The ratio of two sums over batches, with an interval from the deviations of batches."""
    share, number = part.sum() / whole.sum(), len(part)
    half = math.nan
    if number > 1:
        # The delta method: a ratio of two sums varies as their residuals `part - share * whole` do.
        deviation = ((part - share * whole) / whole.mean()).std(ddof=1)
        half = two_sided_quantile(lambda t: students_tail(t, number - 1)) * deviation / math.sqrt(number)
    # Limited to the range of a share. Unlike `max`, `np.maximum` keeps the NaN of a single batch.
    return {"value": share, "low": np.maximum(share - half, 0), "high": np.minimum(share + half, 1)}
