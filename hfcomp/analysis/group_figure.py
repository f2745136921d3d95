"""Joint embeddings of image-caption pairs: how well groups separate, and a picture of them (CLEAR GLASS, Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hfcomp.reporting.figures import Figure, save_figure
from hfcomp.reporting.plots import Plot

_ROUNDING = 1e-12
"""Cosines that differ by less count as tied; see `hfcomp.metrics.retrieval`."""


def joint_embeddings(image: NDArray[np.floating], text: NDArray[np.floating]) -> NDArray[np.float64]:
    """The element-wise products of images and their captions (CLEAR GLASS, Eq. 1), L2-normalized.

    They are normalized because the method compares joint embeddings by cosine (Eq. 3).

    Args:
        image: `[n, D]`.
        text: `[n, D]`, the caption of each image.

    Returns:
        `[n, D]`; zeros where a product is zero.
    """
    if image.ndim != 2 or image.shape != text.shape:
        raise ValueError(f"image {image.shape} and text {text.shape}: expected [n, D] for both.")
    return _unit(image.astype(np.float64) * text.astype(np.float64))


def principal_plane(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The plane that keeps most of the variance of vectors, by principal components.

    Args:
        vectors: `[n, D]`, n and D at least 2.

    Returns:
        `[n, 2]` coordinates around their mean, each axis oriented so that its largest weight is positive; and `[2]`,
        the fraction of the variance that each axis explains, 0 to 1.
    """
    if vectors.ndim != 2 or min(vectors.shape) < 2:
        raise ValueError(f"vectors {vectors.shape}: expected [n, D] with n and D of at least 2.")
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, size, axes = np.linalg.svd(centered, full_matrices=False)
    axes = axes[:2]
    # The sign of a principal axis is arbitrary: without a rule pictures would flip from machine to machine.
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])[:, None]
    total = float((size**2).sum())
    # Equal vectors have no variance to explain.
    return centered @ axes.T, size[:2] ** 2 / total if total else np.zeros(2)


def nearest_own_centroid(vectors: NDArray[np.floating], group: Sequence[str]) -> NDArray[np.bool_]:
    """Whether a vector is nearer to the mean of the others of its group than to the mean of any other group.

    It uses all dimensions, where a picture has two. Chance is 1 / number of groups.

    Args:
        vectors: `[n, D]`.
        group: `[n]`.

    Returns:
        `[n]`, by cosine and strictly: of equal vectors, none is.
    """
    names, number, size = np.unique(np.asarray(group, dtype=object), return_inverse=True, return_counts=True)
    if len(names) < 2 or min(size) < 2:
        raise ValueError(
            f"group: found {len(names)} groups, the smallest of {min(size, default=0)}; expected at least two of two."
        )
    vectors = vectors.astype(np.float64)
    # Sums stand for means, which have the same direction. Cosines depend only on the direction.
    total = np.zeros((len(names), vectors.shape[1]))
    np.add.at(total, number, vectors)
    unit, rows = _unit(vectors), np.arange(len(vectors))
    cosine = unit @ _unit(total).T
    # The vector itself is left out, because it would pull its group's mean towards it.
    own = (unit * _unit(total[number] - vectors)).sum(axis=1)
    cosine[rows, number] = -np.inf
    return own > cosine.max(axis=1) + _ROUNDING


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1)


def draw_groups(path: str | Path, found: Mapping[str, NDArray[np.floating]], group: Sequence[str]) -> Path:
    """Draws each model's joint embeddings in their principal plane, colored by group.

    Each model has its own plane: compare positions within a panel, not between panels. Above
    a panel is the fraction of pairs that are nearest to their own group's mean, in all dimensions.

    Args:
        found: by model, `[n, D]` of `joint_embeddings`, of the same pairs.
    """
    lengths = {name: len(vectors) for name, vectors in found.items()}
    if not lengths or set(lengths.values()) != {len(group)}:
        raise ValueError(
            f"found {lengths} for {len(group)} pairs, expected at least one model with as many pairs each."
        )
    names = list(dict.fromkeys(group))
    caption = (
        f"Element-wise products of image and caption, {len(group):,} pairs of {len(names)} groups, each model in its "
        "own principal plane (percent: variance explained by an axis). Nearest: fraction of pairs nearer to the mean "
        f"of their group's others than to another group's, in all dimensions; chance {100 / len(names):.1f} %."
    )
    panels = [_panel(name, vectors, group, names) for name, vectors in found.items()]
    return save_figure(Figure(Path(path).name, "Groups of joint embeddings", panels, caption), path)


def _panel(name: str, vectors: NDArray[np.floating], group: Sequence[str], names: Sequence[str]) -> Plot:
    points, shares = principal_plane(vectors)
    own = np.asarray(group, dtype=object)
    nearest = 100 * nearest_own_centroid(vectors, group).mean()
    across, up = (f"{100 * share:.0f} %" for share in shares)
    dots = {one: tuple(points[own == one].T) for one in names}
    return Plot(f"{name}: nearest to own group {nearest:.1f} %", (across, up), dots=dots, equal=True)
