"""Captions from general to specific: precision, recall and order of HierarCaps' four levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVELS = 4
_ROUNDING = 1e-12
"""Scores of unit vectors that differ by less count as tied; see `hfcomp.metrics.retrieval`."""


@dataclass(frozen=True)
class HierarchyOutcome:
    """Outcomes per item, an image with its four captions.

    Attributes:
        precision: `[n]`, share of the retrieved texts that are the image's own.
        recall: `[n]`, share of the image's four levels that are retrieved.
        rank_correlation: `[n]`, Kendall's tau of the levels with the distances of their texts from the root, -1 to 1.
        tie: `[n]` bool, whether the best texts within some radius score the same, or a score is NaN.
        precision_chance: Mean precision of random scores among these texts at these distances.
        recall_chance: Mean recall of the same.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    rank_correlation: NDArray[np.float64]
    tie: NDArray[np.bool_]
    precision_chance: float
    recall_chance: float


@dataclass(frozen=True)
class _Texts:
    """The distinct texts, ordered by their distance from the root."""

    vectors: NDArray[np.float64]
    """`[T, D]`."""
    levels: NDArray[np.intp]
    """`[n, 4]`, index of the text of each image's levels."""
    inside: NDArray[np.intp]
    """Number of texts within each radius; distinct numbers, ascending."""


def hierarchy(
    image: NDArray[np.floating],
    text: NDArray[np.floating],
    root: NDArray[np.floating],
    identity: NDArray[np.integer] | None = None,
    *,
    thresholds: int = 50,
    chunk: int = 1024,
) -> HierarchyOutcome:
    """Retrieves texts at growing distances from the root (HierarCaps, Alper and Averbuch-Elor 2024).

    Radii grow in equal steps from the smallest to the largest distance of any text from the root. At each radius, the
    text within it that scores highest with the image, among those of all images, is retrieved.

    In the authors' script, the first of tied texts wins. Here a tie retrieves a wrong text, because no order of the
    rows may help. Two levels at the same distance count neither way in tau, whereas the script's sorting puts them in
    some order. So everything is 0 for a constant scorer. Each image has one row of four texts, as in the test set.

    Args:
        image: `[n, D]`, L2-normalized.
        text: `[n, 4, D]`, L2-normalized, level 1 the most general.
        root: `[D]`, L2-normalized, embedding of the empty text.
        identity: `[n, 4]`, equal for equal texts. A text that several images share is correct for each of them, and
            does not tie with itself. By default all texts are distinct.
        thresholds: Number of radii.
        chunk: Images scored at a time; memory grows with `chunk * 4 n`.
    """
    rows = len(image)
    if text.shape != (rows, LEVELS, *image.shape[1:]) or root.shape != image.shape[1:] or image.ndim != 2:
        raise ValueError(
            f"image {image.shape}, text {text.shape} and root {root.shape}: expected [n, D], [n, {LEVELS}, D] and [D]."
        )
    identity = np.arange(rows * LEVELS).reshape(rows, LEVELS) if identity is None else identity
    if identity.shape != (rows, LEVELS):
        raise ValueError(f"identity {identity.shape}: expected {(rows, LEVELS)}, one number per text.")
    radius = np.linalg.norm(text.astype(np.float64) - root.astype(np.float64), axis=-1)
    texts = _by_distance(text, radius, identity, thresholds)
    precision, recall, tie = np.zeros(rows), np.zeros(rows), np.zeros(rows, dtype=bool)
    for start in range(0, rows, chunk):
        part = slice(start, start + chunk)
        retrieved = _retrieve(image[part].astype(np.float64), texts)
        precision[part], recall[part] = _shares(retrieved, texts.levels[part])
        tie[part] = (retrieved >= len(texts.vectors)).any(axis=1)
    return HierarchyOutcome(precision, recall, _rank_correlation(radius), tie, *_chance(texts))


def _by_distance(
    text: NDArray[np.floating], radius: NDArray[np.float64], identity: NDArray[np.integer], thresholds: int
) -> _Texts:
    _, first, number = np.unique(identity, return_index=True, return_inverse=True)
    distance = radius.ravel()[first]
    order = np.argsort(distance, kind="stable")
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    # NaN sorts last, so texts of a broken model lie beyond every radius and are never retrieved.
    valid = distance[~np.isnan(distance)]
    radii = np.linspace(valid.min(), valid.max(), thresholds) if len(valid) else np.zeros(0)
    # A radius that adds no text retrieves the same text as the previous one, so each number of texts counts once.
    inside = np.unique(np.searchsorted(np.sort(valid), radii, side="right"))
    vectors = text.reshape(-1, text.shape[-1])[first[order]].astype(np.float64)
    return _Texts(vectors, position[number.reshape(identity.shape)], inside)


def _retrieve(image: NDArray[np.float64], texts: _Texts) -> NDArray[np.intp]:
    """Returns the best text within each radius, `[c, radii]`; for a tie, T plus one of the best texts."""
    scores = image @ texts.vectors.T
    longest = np.fmax.reduce(np.linalg.norm(texts.vectors, axis=1), initial=0.0)
    margin = _ROUNDING * longest * np.linalg.norm(image, axis=1)
    retrieved = np.empty((len(image), len(texts.inside)), dtype=np.intp)
    rows = np.arange(len(image))
    best, second = np.full((2, len(image)), -np.inf)
    leader, start = np.zeros(len(image), dtype=np.intp), 0
    for column, stop in enumerate(texts.inside):
        # Only the texts between two radii are new. Keep the best and second best so far, so each score is compared
        # once, whatever the number of radii.
        added = scores[:, start:stop]
        candidate = added.argmax(axis=1)
        top = added[rows, candidate]
        added[rows, candidate] = -np.inf
        # The second best overall: the new second best, the old one, or the loser of the two best.
        second = np.maximum(np.maximum(second, added.max(axis=1)), np.minimum(best, top))
        leader = np.where(top > best + margin, start + candidate, leader)
        best, start = np.maximum(best, top), stop
        # Every comparison with NaN is false, so NaN is never retrieved.
        retrieved[:, column] = np.where(second < best - margin, leader, leader + len(texts.vectors))
    return retrieved


def _shares(retrieved: NDArray[np.intp], levels: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns each image's precision and recall over the distinct retrieved texts."""
    if not retrieved.shape[1]:
        return np.zeros(len(retrieved)), np.zeros(len(retrieved))
    retrieved = np.sort(retrieved, axis=1)
    # A text that is retrieved at several radii counts once.
    is_new = retrieved[:, 1:] != retrieved[:, :-1]
    new = np.concatenate([np.ones((len(retrieved), 1), dtype=bool), is_new], axis=1)
    hits = retrieved[:, :, None] == levels[:, None, :]
    precision = (hits.any(axis=2) & new).sum(axis=1) / new.sum(axis=1)
    return precision, hits.any(axis=1).mean(axis=1)


def _rank_correlation(radius: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns Kendall's tau of `[n, 4]` distances with the levels: share of ordered minus disordered pairs."""
    lower, higher = np.triu_indices(LEVELS, k=1)
    near, far = radius[:, lower], radius[:, higher]
    return ((near < far).astype(float) - (near > far)).mean(axis=1)


def _chance(texts: _Texts) -> tuple[float, float]:
    """Returns the mean precision and recall of scores in random order.

    The best text within a radius is new with probability (texts added) / (texts within), whatever came before, and it
    is equally likely to be any of those added. So a text is retrieved with probability 1 / (texts within the first
    radius that includes it), and the number of retrieved texts is a sum of independent draws.
    """
    total, inside = len(texts.vectors), texts.inside
    if not len(inside):
        return 0.0, 0.0
    added = np.diff(inside, prepend=0)
    new_probability = added / inside
    chance = np.zeros(total)
    chance[: inside[-1]] = np.repeat(1 / inside, added)
    levels = np.sort(texts.levels, axis=1)
    new = np.concatenate([np.ones((len(levels), 1), dtype=bool), levels[:, 1:] != levels[:, :-1]], axis=1)
    owners = np.bincount(levels[new], minlength=total)
    share = 0.0
    for step, stop in enumerate(inside):
        # Precision divides by the number of retrieved texts. Given that this step retrieves one, the number of others
        # is a sum of independent draws, and the mean of 1 / (1 + others) needs their distribution, not their mean.
        others = _other_counts(np.delete(new_probability, step))
        hit_share = owners[stop - added[step] : stop].mean() / len(texts.levels)
        share += new_probability[step] * hit_share * float((others / np.arange(1, len(others) + 1)).sum())
    return float(share), float(chance[texts.levels].mean())


def _other_counts(new_probability: NDArray[np.float64]) -> NDArray[np.float64]:
    # The distribution of the number of successes, adding one draw at a time
    counts = np.ones(1)
    for probability in new_probability:
        counts = np.convolve(counts, [1 - probability, probability])
    return counts
