"""Top-k accuracy as outcomes per item, for any number of images and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.choice import ChoiceOutcome

Scores: TypeAlias = NDArray[np.floating] | Callable[[int, int], NDArray[np.floating]]
"""`[n, C]`, or a function from `start, stop` to the rows of those items, for datasets whose scores should never be
in memory all at once."""


def class_scores(
    image: NDArray[np.floating], classes: NDArray[np.floating]
) -> Callable[[int, int], NDArray[np.float32]]:
    """Scores images against one embedding per class, a few rows at a time, for [`top_k`].

    Args:
        image: `[n, D]`.
        classes: `[C, D]`.

    Returns:
        A function from `start, stop` to `[stop - start, C]` fp32.
    """
    if image.ndim != 2 or classes.ndim != 2 or image.shape[1] != classes.shape[1]:
        raise ValueError(f"image {image.shape} and classes {classes.shape}: expected [n, D] and [C, D].")
    columns = classes.astype(np.float64).T

    def rows(start: int, stop: int) -> NDArray[np.float32]:
        # Summed in float64 and rounded to fp32, so the order in which a matrix product sums does not separate equal
        # embeddings (except for about one score in 10^8, next to a rounding boundary).
        return (image[start:stop].astype(np.float64) @ columns).astype(np.float32)

    return rows


def top_k(scores: Scores, labels: NDArray[np.integer], k: int = 1, *, chunk: int = 1024) -> ChoiceOutcome:
    """Decides whether an item's own class is among the `k` best. Ties and NaN count against the model.

    The rank of the item's class is 1 + the number of other classes that score at least as high, so a constant scorer
    is never right. Chance is k/C.

    Args:
        scores: `[n, C]`, or a function that returns its rows `start` to `stop`.
        labels: `[n]`, 0 to C - 1.
        k: 1 to C - 1, because the C best are all classes.
        chunk: Items compared at a time; memory grows with `chunk * C`.

    Returns:
        `correct`, the items with a rank of at most `k`; `tie`, those that would be correct only if a tie were a win.

    Raises:
        ValueError: For scores with a wrong shape, a label outside 0 to C - 1, or a `k` outside 1 to C - 1.
    """
    labels = _validate(labels)
    if not callable(scores) and len(scores) != len(labels):
        raise ValueError(f"scores have shape {scores.shape}, labels {labels.shape}: expected [n, C] and [n].")
    correct, wins = np.zeros(len(labels), dtype=bool), np.zeros(len(labels), dtype=bool)
    for start in range(0, len(labels), chunk):
        label = labels[start : start + chunk]
        stop = start + len(label)
        part = scores(start, stop) if callable(scores) else scores[start:stop]
        _check_rows(part, label, start, k)
        score = np.take_along_axis(part, label[:, None], axis=1)
        other = np.arange(part.shape[1]) != label[:, None]
        # Not ">=" and ">", because every comparison with NaN is false and NaN must not come first.
        correct[start:stop] = (~(part < score) & other).sum(axis=1) < k
        wins[start:stop] = (~(part <= score) & other).sum(axis=1) < k
    return ChoiceOutcome(correct=correct, tie=wins & ~correct)


def _validate(labels: NDArray[np.integer]) -> NDArray[np.integer]:
    labels = np.asarray(labels)
    if labels.ndim != 1 or (len(labels) and not np.issubdtype(labels.dtype, np.integer)):
        raise ValueError(f"labels: found {labels.dtype} of shape {labels.shape}, expected integers of shape [n].")
    if len(labels) and labels.min() < 0:
        row = int(labels.argmin())
        raise ValueError(f"labels, item {row}: found {labels[row]}, expected 0 or more. Remove unlabeled items.")
    return labels.astype(np.int64)


def _check_rows(part: NDArray[np.floating], label: NDArray[np.integer], start: int, k: int) -> None:
    if part.ndim != 2 or len(part) != len(label):
        raise ValueError(
            f"scores have shape {part.shape} for the items {start} to {start + len(label)}, expected {len(label)} "
            "rows: one row per item, one column per class."
        )
    classes = part.shape[1]
    if not 1 <= k < classes:
        raise ValueError(
            f"k: found {k} for {classes} classes, expected 1 to {classes - 1}: the top {classes} are all classes."
        )
    if label.max() >= classes:
        row = int(label.argmax())
        raise ValueError(f"labels, item {start + row}: found {label[row]}, expected 0 to {classes - 1}.")
