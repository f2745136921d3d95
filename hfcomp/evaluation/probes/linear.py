"""Shared parts of all probes: the probe itself, the check of its training set, and the held-out part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.average_precision import average_precision
from hfcomp.metrics.classification import top_k

Labels: TypeAlias = NDArray[np.integer] | NDArray[np.bool_]
"""`[n]` integers: each image's class, for a softmax. `[n, C]` bool: each image's labels, for C independent
sigmoids."""

HELD_OUT = 5
"""One in this many training images is held out if a probe has something to choose."""

VTAB_IMAGES = 1000
"""Training images of VTAB-1k; a fifth of them, 200, is held out."""

_ROWS = 4096
"""Number of images checked or scored at a time."""


@dataclass(frozen=True)
class LinearProbe:
    """A linear classifier of features at unit length.

    Attributes:
        weight: `[C, D]` fp32.
        bias: `[C]` fp32; -inf for a class that training was allowed to lack, and inf for a label that all training
            images have. These score equal on every image, so no image is right because of them.
        chosen: Strength of the regularization: `C` of `lbfgs`, weight decay of `adamw10`.
        held_out: Score on the held-out part for each tried strength: accuracy, or mAP for labels `[n, C]`. Empty if
            there was nothing to choose.
        solver_runs: Number of solver runs, including trials; 0 for a protocol without a stopping rule.
        unconverged: Number of runs that stopped before they converged.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    chosen: float
    held_out: Mapping[float, float] = field(default_factory=dict)
    solver_runs: int = 0
    unconverged: int = 0

    def scores(self, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Computes scores (logits) of images; higher is more likely.

        Sums are in float64 and rounded to fp32, so equal features get equal scores in any position (except for about
        one score in 10^8, next to a rounding edge), because an average precision compares scores of images.

        Args:
            features: `[n, D]`, vectors of any length. They are scaled to unit length, as in training.

        Returns:
            `[n, C]` fp32.
        """
        if features.ndim != 2 or features.shape[1] != self.weight.shape[1]:
            raise ValueError(f"features {features.shape}: expected [n, {self.weight.shape[1]}], as in training.")
        columns, bias = self.weight.astype(np.float64).T, self.bias.astype(np.float64)
        scores = np.empty((len(features), len(self.weight)), dtype=np.float32)
        for start in range(0, len(features), _ROWS):
            part = slice(start, start + _ROWS)
            scores[part] = unit_rows(features[part], start) @ columns + bias
        return scores


def unit_rows(features: NDArray[np.floating], first: int = 0) -> NDArray[np.float64]:
    """Scales features `[n, D]` to unit length in float64; `first` is the number of the first row, for the error."""
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
    """Raises ValueError if no probe can be fitted to a dataset; with `allow_missing`, a class may lack examples."""
    if features.ndim != 2 or labels.ndim not in (1, 2) or len(features) != len(labels):
        raise ValueError(
            f"features {features.shape} and labels {labels.shape}: expected [n, D] and [n], or [n, C] for several "
            "labels per image."
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
    """Returns weights `[C, D]` and biases `[C]` in fp32, with missing classes set as [`LinearProbe`] describes."""
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
        raise ValueError(f"labels: found only the class {present[0]}, expected at least two classes.")
    if len(present) < classes and not allow_missing:
        _raise_missing(np.flatnonzero(counts == 0), classes, "example")


def _check_many(labels: Labels, classes: int, allow_missing: bool) -> None:
    if labels.dtype != np.bool_ or labels.shape[1] != classes:
        raise ValueError(f"labels: found {labels.dtype} {labels.shape}, expected bool [n, {classes}].")
    # A sigmoid needs both examples and counterexamples.
    usable = labels.any(axis=0) & ~labels.all(axis=0)
    if not usable.any():
        raise ValueError(f"labels: none of the {classes} classes has both positives and negatives.")
    if not (usable.all() or allow_missing):
        _raise_missing(np.flatnonzero(~usable), classes, "example or no counterexample")


def _raise_missing(missing: NDArray[np.intp], classes: int, what: str) -> None:
    shown = missing[:5].tolist()
    more = "" if len(missing) <= 5 else f" and {len(missing) - 5} more"
    raise ValueError(
        f"labels: {len(missing)} of {classes} classes have no {what} in training: {shown}{more}. Number the classes "
        "without gaps, or pass allow_missing=True: such a class is then never predicted."
    )


def vtab_1k(count: int, *, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Samples a training set for VTAB-1k: 1,000 images, 200 of them held out to choose on; then fit on all 1,000.

    VTAB takes the first 800 images of its training part and the first 200 of its validation part, in the order of its
    own files (Zhai et al. 2020, "A Large-scale Study of Representation Learning with the Visual Task Adaptation
    Benchmark"). Other copies of the data have other orders, some sorted by class, so here the 1,000 are a seeded
    sample: numbers are comparable with VTAB's, but not equal. As in VTAB, classes are not balanced and may be missing,
    see `allow_missing`. The full training set does not need this function: pass all of it.

    Args:
        count: Number of training images, at least 1,000.
        seed: Random seed of the sample.

    Returns:
        `[1000]`, rows of the training set; `[1000]` bool, which of them are held out.
    """
    if count < VTAB_IMAGES:
        raise ValueError(f"count: found {count} training images, expected at least {VTAB_IMAGES:,} for VTAB-1k.")
    # In random order, so the last fifth is also a random sample.
    rows = np.random.default_rng(seed).permutation(count)[:VTAB_IMAGES]
    return rows, np.arange(VTAB_IMAGES) >= VTAB_IMAGES - VTAB_IMAGES // HELD_OUT


def hold_out(labels: Labels, seed: int, given: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """Selects the training images that are held out to choose a strength on.

    A seeded sample of one in five images. If images have one class, it is one in five per class, rounded, so no class
    is left without an example.

    Args:
        labels: Labels of the training images.
        seed: Random seed of the sample.
        given: `[n]`, used as it is.
    """
    if given is None:
        generator = np.random.default_rng(seed)
        # Images with several labels have no single class to draw within.
        group = labels if labels.ndim == 1 else np.zeros(len(labels), dtype=np.intp)
        given = np.zeros(len(labels), dtype=bool)
        for value in np.unique(group):
            rows = generator.permutation(np.flatnonzero(group == value))
            # Rounded, so a class of two images keeps both for training.
            given[rows[: round(len(rows) / HELD_OUT)]] = True
    if given.shape != (len(labels),) or given.dtype != np.bool_:
        raise ValueError(f"held_out: found {given.dtype} {given.shape}, expected bool [{len(labels)}].")
    if not given.any() or given.all():
        raise ValueError(
            f"held_out: found {given.sum()} of {len(labels)} images held out; choosing a strength needs images on "
            "both sides. Pass a single strength, or a different held_out."
        )
    if labels.ndim == 1 and len(np.unique(labels[~given])) < 2:
        raise ValueError("held_out: the remaining images have only one class. Pass a different held_out.")
    return given


def held_out_score(scores: NDArray[np.float32], labels: Labels) -> float:
    """Returns the score by which a strength is chosen: accuracy by strict comparison, or mAP for labels `[n, C]`."""
    if labels.ndim == 1:
        return top_k(scores, labels).accuracy
    precision = average_precision(scores, labels)
    if np.isnan(precision.mean):
        raise ValueError("held_out: no class has both positives and negatives there. Pass held_out yourself.")
    return precision.mean


def best(held_out: Mapping[float, float]) -> float:
    """Returns the strength with the highest score; the first of equal ones."""
    return max(held_out, key=held_out.__getitem__)


def check_strengths(strengths: float | Sequence[float], name: str, lowest: float, highest: float) -> list[float]:
    values = [float(value) for value in np.atleast_1d(strengths)]
    if not values or len(set(values)) < len(values) or not all(lowest <= value <= highest for value in values):
        raise ValueError(
            f"{name}: found {values}, expected one or several, each once, from {lowest:g} to {highest:g}."
        )
    return values
