"""From the general to the specific: precision, recall and order of HierarCaps' four levels of captions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVELS = 4
_ROUNDING = 1e-12
"""Scores of unit vectors that differ by less count as tied; see `hfcomp.metrics.retrieval`."""


@dataclass(frozen=True)
class HierarchyOutcome:
    """What came of each item, an image with its four captions.

    Attributes:
        precision: `[n]`, share of the retrieved texts that are the image's own.
        recall: `[n]`, share of the image's four levels that are retrieved.
        rank_correlation: `[n]`, Kendall's tau of the levels with the distances of their texts from the root, -1 to 1.
        tie: `[n]` bool, within some radius the best texts score the same, or a score is NaN.
        precision_chance: mean precision of random scores among these texts at these distances.
        recall_chance: mean recall of the same.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    rank_correlation: NDArray[np.float64]
    tie: NDArray[np.bool_]
    precision_chance: float
    recall_chance: float


@dataclass(frozen=True)
class _Texts:
    """The different texts in the order of their distance from the root."""

    vectors: NDArray[np.float64]
    """`[T, D]`."""
    own: NDArray[np.intp]
    """`[n, 4]`, which of them each image's levels are."""
    inside: NDArray[np.intp]
    """How many of them lie within each radius; different numbers, ascending."""


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

    Radii grow in equal steps from the smallest to the largest distance of any text from the root. At each of them, the
    text within that scores highest with the image, among those of all images, is retrieved.

    The authors' script gives a tie to the text that comes first. Here a tie retrieves one wrong text, as no order of
    the rows may help; and two levels at one distance count neither way in tau, which sorting there puts in some order.
    So everything is 0 for a constant scorer. One image has one row of four texts, as in the test set.

    Args:
        image: `[n, D]`, L2-normalized.
        text: `[n, 4, D]`, L2-normalized, level 1 the most general.
        root: `[D]`, L2-normalized, the embedding of the empty text.
        identity: `[n, 4]`, equal where the texts are: a text that several images share is right for each of them, and
            does not tie with itself. By default all are different.
        thresholds: number of radii.
        chunk: images scored at a time; memory grows with `chunk * 4 n`.
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
        found = _retrieve(image[part].astype(np.float64), texts)
        precision[part], recall[part] = _shares(found, texts.own[part])
        tie[part] = (found >= len(texts.vectors)).any(axis=1)
    return HierarchyOutcome(precision, recall, _order(radius), tie, *_chance(texts))


def _by_distance(
    text: NDArray[np.floating], radius: NDArray[np.float64], identity: NDArray[np.integer], thresholds: int
) -> _Texts:
    _, first, number = np.unique(identity, return_index=True, return_inverse=True)
    distance = radius.ravel()[first]
    order = np.argsort(distance, kind="stable")
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    # NaN sorts last, so texts of a broken model lie behind every radius and are never retrieved.
    known = distance[~np.isnan(distance)]
    radii = np.linspace(known.min(), known.max(), thresholds) if len(known) else np.zeros(0)
    # Radii that add no text retrieve what the one before did, so each number of texts counts once.
    inside = np.unique(np.searchsorted(np.sort(known), radii, side="right"))
    vectors = text.reshape(-1, text.shape[-1])[first[order]].astype(np.float64)
    return _Texts(vectors, place[number.reshape(identity.shape)], inside)


def _retrieve(image: NDArray[np.float64], texts: _Texts) -> NDArray[np.intp]:
    """The best text within each radius, `[c, radii]`; for a tie T plus one of the best."""
    scores = image @ texts.vectors.T
    longest = np.fmax.reduce(np.linalg.norm(texts.vectors, axis=1), initial=0.0)
    margin = _ROUNDING * longest * np.linalg.norm(image, axis=1)
    found = np.empty((len(image), len(texts.inside)), dtype=np.intp)
    rows = np.arange(len(image))
    best, second = np.full((2, len(image)), -np.inf)
    which, start = np.zeros(len(image), dtype=np.intp), 0
    for column, stop in enumerate(texts.inside):
        # Only the texts between two radii are new: the best and the second best so far are carried along, and each
        # score is compared once whatever the number of radii.
        added = scores[:, start:stop]
        candidate = added.argmax(axis=1)
        top = added[rows, candidate]
        added[rows, candidate] = -np.inf
        # The second best of old and new: the new second best, the old one, or the loser of the two best.
        second = np.maximum(np.maximum(second, added.max(axis=1)), np.minimum(best, top))
        which = np.where(top > best + margin, start + candidate, which)
        best, start = np.maximum(best, top), stop
        # Every comparison with NaN is false, so NaN is never retrieved.
        found[:, column] = np.where(second < best - margin, which, which + len(texts.vectors))
    return found


def _shares(found: NDArray[np.intp], own: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Precision and recall of each image, of the different texts found."""
    if not found.shape[1]:
        return np.zeros(len(found)), np.zeros(len(found))
    found = np.sort(found, axis=1)
    # A text that is retrieved at several radii counts once.
    new = np.concatenate([np.ones((len(found), 1), dtype=bool), found[:, 1:] != found[:, :-1]], axis=1)
    hits = found[:, :, None] == own[:, None, :]
    precision = (hits.any(axis=2) & new).sum(axis=1) / new.sum(axis=1)
    return precision, hits.any(axis=1).mean(axis=1)


def _order(radius: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kendall's tau of `[n, 4]` distances with 1, 2, 3, 4: pairs in order minus pairs in disorder, of all pairs."""
    lower, higher = np.triu_indices(LEVELS, k=1)
    near, far = radius[:, lower], radius[:, higher]
    return ((near < far).astype(float) - (near > far)).mean(axis=1)


def _chance(texts: _Texts) -> tuple[float, float]:
    """Mean precision and recall of scores in random order.

    The best text within a radius is new with probability (texts added) / (texts within), whatever came before, and is
    any of those added. So a text is found with probability 1 / (texts within the first radius that holds it), and the
    number of texts found is a sum of independent draws.
    """
    total, inside = len(texts.vectors), texts.inside
    if not len(inside):
        return 0.0, 0.0
    added = np.diff(inside, prepend=0)
    likely = added / inside
    chance = np.zeros(total)
    chance[: inside[-1]] = np.repeat(1 / inside, added)
    levels = np.sort(texts.own, axis=1)
    new = np.concatenate([np.ones((len(levels), 1), dtype=bool), levels[:, 1:] != levels[:, :-1]], axis=1)
    owners = np.bincount(levels[new], minlength=total)
    share = 0.0
    for step, stop in enumerate(inside):
        # Precision divides by the number of texts found. Given that this step finds a text, the others found are a sum
        # of independent draws, and the mean of 1 / (1 + others) needs their whole distribution, not their mean.
        others = _count_of_others(np.delete(likely, step))
        one_of = owners[stop - added[step] : stop].mean() / len(texts.own)
        share += likely[step] * one_of * float((others / np.arange(1, len(others) + 1)).sum())
    return float(share), float(chance[texts.own].mean())


def _count_of_others(likely: NDArray[np.float64]) -> NDArray[np.float64]:
    # The distribution of the number of successes, one draw folded in at a time.
    counts = np.ones(1)
    for one in likely:
        counts = np.convolve(counts, [1 - one, one])
    return counts
