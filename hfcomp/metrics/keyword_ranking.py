"""Rank of the true caption among copies with another keyword, as outcomes per item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome, choose


@dataclass(frozen=True)
class KeywordRanking:
    """Outcomes per item.

    Attributes:
        first: Whether the true caption scores strictly higher than every alternative, and ties.
        rank: `[n]` int, 1 + the number of alternatives that score at least as high. Ties and NaN count against it.
        reciprocal_rank: `[n]`, 1 / rank; 0 if no alternative scores lower or higher, because that ranks nothing.
        chance: `[n]`, chance of being first: 1 / candidates.
        reciprocal_rank_chance: `[n]`, mean of 1 / rank over the orders of the candidates.
    """

    first: ChoiceOutcome
    rank: NDArray[np.int64]
    reciprocal_rank: NDArray[np.float64]
    chance: NDArray[np.float64]
    reciprocal_rank_chance: NDArray[np.float64]


def keyword_ranking(
    true_score: NDArray[np.floating], other_scores: NDArray[np.floating], mask: NDArray[np.bool_] | None = None
) -> KeywordRanking:
    """Ranks the true caption among an image's candidates: the concept test of Rösch et al. 2024, extended by ranks.

    Args:
        true_score: `[n]`.
        other_scores: `[n, K]`, scores of the captions with another keyword in its place.
        mask: `[n, K]`, which of the alternatives exist. An item without any raises an error.
    """
    first = choose(true_score, other_scores, mask)
    exists = np.ones(other_scores.shape, dtype=bool) if mask is None else mask
    true = true_score[:, None]
    # Not ">=", because every comparison with NaN is false and NaN must not help.
    rank = 1 + (~(other_scores < true) & exists).sum(axis=1)
    candidates = 1 + exists.sum(axis=1)
    has_ranking = (((other_scores < true) | (other_scores > true)) & exists).any(axis=1)
    # In a random order, each rank from 1 to the number of candidates is equally likely, so the mean of 1 / rank is a
    # harmonic number divided by that number.
    harmonic = np.cumsum(1 / np.arange(1, candidates.max(initial=1) + 1))
    return KeywordRanking(
        first=first,
        rank=rank,
        reciprocal_rank=has_ranking / rank,
        chance=1 / candidates,
        reciprocal_rank_chance=harmonic[candidates - 1] / candidates,
    )
