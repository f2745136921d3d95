"""What all probes share: the probe itself, the check of its training set, and the part that is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.average_precision import average_precision
from hfcomp.metrics.classification import top_k

Labels: TypeAlias = NDArray[np.integer] | NDArray[np.bool_]
"""`[n]` whole numbers: each image's class, for a softmax. `[n, C]` bool: each image's labels, C
independent sigmoids."""

HELD_OUT = 5
"""One training image of this many is held out where a probe has something to choose."""

VTAB_IMAGES = 1000
"""Training images of VTAB-1k; a fifth of them, 200, is held out."""

_ROWS = 4096
"""Images checked or scored at a time."""


@dataclass(frozen=True)
class LinearProbe:
    """A linear classifier of features at unit length.

    Attributes:
        weight: `[C, D]` fp32.
        bias: `[C]` fp32; for a class that training lacked and was allowed to lack, -inf, and inf for a label that all
            training images have: they score equal on every image, so no image is right by them.
        chosen: strength of the regularization: `C` of `lbfgs`, weight decay of `adamw10`.
        held_out: score on the held-out part for each strength that was tried: accuracy, or mAP for labels `[n, C]`.
            Empty when there was nothing to choose.
        solver_runs: runs of the solver, trials included; 0 for a protocol without a stopping rule.
        unconverged: how many of them stopped before they had converged.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    chosen: float
    held_out: Mapping[float, float] = field(default_factory=dict)
    solver_runs: int = 0
    unconverged: int = 0

    def scores(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Scores (logits) of images, higher is more likely.

        Added up in float64 and rounded to fp32, so that equal features get equal scores wherever they lie (but for
        about one score in 10^8, next to a rounding edge): scores of images are compared in an average precision.

        Args:
            features: `[n, D]`, of any length; they are brought to unit length, as in training.

        Returns:
            `[n, C]` fp32.
        """
        if features.ndim != 2 or features.shape[1] != self.weight.shape[1]:
            raise ValueError(f"features {features.shape}: expected [n, {self.weight.shape[1]}], as in training.")
        columns, bias = self.weight.astype(np.float64).T, self.bias.astype(np.float64)
        found = np.empty((len(features), len(self.weight)), dtype=np.float32)
        for start in range(0, len(features), _ROWS):
            part = slice(start, start + _ROWS)
            found[part] = unit_rows(features[part], start) @ columns + bias
        return found


def unit_rows(features: NDArray[np.floating], first: int = 0) -> NDArray[np.float64]:
    """Features `[n, D]` at unit length, in float64; `first` is the number of the first row, for the message."""
    # Half precision would overflow in the square of a length.
    wide = features.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(length[:, 0]) & (length[:, 0] > 0)))
    if len(bad):
        raise ValueError(
            f"features, row {first + bad[0]}: found length {length[bad[0], 0]:g}, expected a finite number above 0. "
            "Features with NaN, infinity or nothing but zeros mean that encoding failed, for example by overflow in "
            "half precision."
        )
    return wide / length


def check_training(features: NDArray[np.floating], labels: Labels, classes: int, allow_missing: bool) -> None:
    """Raises ValueError for a set that no probe can be fitted to; with `allow_missing` a class may lack examples."""
    if features.ndim != 2 or labels.ndim not in (1, 2) or len(features) != len(labels):
        raise ValueError(
            f"features {features.shape} and labels {labels.shape}: expected [n, D] and [n], or [n, C] for many labels "
            "an image."
        )
    for start in range(0, len(features), _ROWS):
        unit_rows(features[start : start + _ROWS], start)
    if labels.ndim == 1:
        _check_single(labels, classes, allow_missing)
    else:
        _check_many(labels, classes, allow_missing)


def without_missing(
    weight: NDArray[np.floating], bias: NDArray[np.floating], labels: Labels
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`[C, D]` and `[C]`, fp32, with the weights and biases of classes that `labels` lack as [`LinearProbe`] says."""
    counts = np.bincount(labels, minlength=len(bias)) if labels.ndim == 1 else labels.sum(axis=0)
    # Zero weights and an infinite bias score all images alike, so no image is right because of such a class.
    missing, everywhere = counts == 0, counts == len(labels)
    bias = np.where(missing, -np.inf, np.where(everywhere, np.inf, bias))
    return np.where((missing | everywhere)[:, None], 0.0, weight).astype(np.float32), bias.astype(np.float32)


def _check_single(labels: Labels, classes: int, allow_missing: bool) -> None:
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels: found {labels.dtype} of shape [n], expected whole numbers, 0 to {classes - 1}.")
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        raise ValueError(f"labels, row {outside[0]}: found {labels[outside[0]]}, expected 0 to {classes - 1}.")
    counts = np.bincount(labels, minlength=classes)
    present = np.flatnonzero(counts)
    if len(present) < 2:
        raise ValueError(f"labels: found the class {present.tolist()} only, expected at least two.")
    if len(present) < classes and not allow_missing:
        _refuse_missing(np.flatnonzero(counts == 0), classes, "example")


def _check_many(labels: Labels, classes: int, allow_missing: bool) -> None:
    if labels.dtype != np.bool_ or labels.shape[1] != classes:
        raise ValueError(f"labels: found {labels.dtype} {labels.shape}, expected bool [n, {classes}].")
    # A sigmoid needs both examples and counterexamples.
    usable = labels.any(axis=0) & ~labels.all(axis=0)
    if not usable.any():
        raise ValueError(f"labels: none of the {classes} classes has both positives and negatives.")
    if not (usable.all() or allow_missing):
        _refuse_missing(np.flatnonzero(~usable), classes, "example or no counterexample")


def _refuse_missing(missing: NDArray[np.intp], classes: int, what: str) -> None:
    shown = missing[:5].tolist()
    more = "" if len(missing) <= 5 else f" and {len(missing) - 5} more"
    raise ValueError(
        f"labels: {len(missing)} of {classes} classes have no {what} in training: {shown}{more}. Number the classes "
        "without gaps, or pass allow_missing=True: such a class is then never predicted."
    )


def vtab_1k(count: int, *, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Rows of a training set for VTAB-1k: 1,000 images, 200 of them held out to choose on; then fit on all 1,000.

    VTAB takes the first 800 images of its training part and the first 200 of its validation part, in the order of its
    own files (Zhai et al. 2020, "A Large-scale Study of Representation Learning with the Visual Task Adaptation
    Benchmark"). Other copies of the data have other orders, sorted by class as well, so here the 1,000 are a seeded
    sample: numbers are comparable with VTAB's, not equal. Classes are not balanced and may be missing, as in VTAB: see
    `allow_missing`. The full training set needs no such helper: pass all of it.

    Args:
        count: images of the training set, at least 1,000.

    Returns:
        `[1000]`, rows of the training set; `[1000]` bool, which of them are held out.
    """
    if count < VTAB_IMAGES:
        raise ValueError(f"count: found {count} training images, expected at least {VTAB_IMAGES:,} for VTAB-1k.")
    # In drawn order, so the last fifth is a random sample as well.
    rows = np.random.default_rng(seed).permutation(count)[:VTAB_IMAGES]
    return rows, np.arange(VTAB_IMAGES) >= VTAB_IMAGES - VTAB_IMAGES // HELD_OUT


def hold_out(labels: Labels, seed: int, given: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Which training images are held out to choose a strength on.

    One in five, drawn with a seed; of each class one in five, rounded, where an image has one class, so that none is
    left without an example.

    Args:
        given: `[n]`, taken as it is.
    """
    if given is None:
        generator = np.random.default_rng(seed)
        # Images with several labels have no single class to draw within.
        group = labels if labels.ndim == 1 else np.zeros(len(labels), dtype=np.intp)
        given = np.zeros(len(labels), dtype=bool)
        for one in np.unique(group):
            rows = generator.permutation(np.flatnonzero(group == one))
            # Rounded, so a class of two images keeps both for training.
            given[rows[: round(len(rows) / HELD_OUT)]] = True
    if given.shape != (len(labels),) or given.dtype != np.bool_:
        raise ValueError(f"held_out: found {given.dtype} {given.shape}, expected bool [{len(labels)}].")
    if not given.any() or given.all():
        raise ValueError(
            f"held_out: found {given.sum()} of {len(labels)} images held out; choosing a strength needs images on "
            "both sides. Pass a single strength, or held_out=[n]."
        )
    if labels.ndim == 1 and len(np.unique(labels[~given])) < 2:
        raise ValueError("held_out: the remaining images have only one class. Pass another held_out=[n].")
    return given


def held_out_score(scores: NDArray[np.float32], labels: Labels) -> float:
    """Accuracy by strict comparison, or mAP for labels `[n, C]`: what a strength is chosen by."""
    if labels.ndim == 1:
        return top_k(scores, labels).accuracy
    found = average_precision(scores, labels)
    if np.isnan(found.mean):
        raise ValueError("held_out: no class has both positives and negatives there. Pass held_out=[n].")
    return found.mean


def best(held_out: Mapping[float, float]) -> float:
    """The strength with the highest score; of equal ones the first."""
    return max(held_out, key=held_out.__getitem__)


def check_strengths(strengths: float | Sequence[float], name: str, lowest: float, highest: float) -> list[float]:
    found = [float(value) for value in np.atleast_1d(strengths)]
    if not found or len(set(found)) < len(found) or not all(lowest <= value <= highest for value in found):
        raise ValueError(f"{name}: found {found}, expected one or several, each once, from {lowest:g} to {highest:g}.")
    return found
