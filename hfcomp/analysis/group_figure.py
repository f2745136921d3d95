"""Joint embeddings of image-caption pairs: separation of groups, and a figure of them (CLEAR GLASS, Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hfcomp.reporting.figures import Figure, save_figure
from hfcomp.reporting.plots import Plot

_ROUNDING = 1e-12
"""Cosines with a smaller difference count as tied; see `hfcomp.metrics.retrieval`."""


def joint_embeddings(image: NDArray[np.floating], text: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns the L2-normalized element-wise products of images and their captions (CLEAR GLASS, Eq. 1).

    They are normalized because the method compares joint embeddings by cosine (Eq. 3).

    Args:
        image: Image embeddings `[n, D]`.
        text: Caption embeddings `[n, D]`, one per image.

    Returns:
        Joint embeddings `[n, D]`; zeros for a product of zero.
    """
    if image.ndim != 2 or image.shape != text.shape:
        raise ValueError(f"image {image.shape} and text {text.shape}: expected [n, D] for both.")
    return _unit(image.astype(np.float64) * text.astype(np.float64))


def principal_plane(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Projects vectors on the plane of their first two principal components.

    Args:
        vectors: Vectors `[n, D]`, with n and D of at least 2.

    Returns:
        Coordinates `[n, 2]` around the mean, with each axis oriented so that its largest weight is positive; and the
        fraction `[2]` of the variance that each axis explains, 0 to 1.
    """
    if vectors.ndim != 2 or min(vectors.shape) < 2:
        raise ValueError(f"vectors {vectors.shape}: expected [n, D] with n and D of at least 2.")
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, size, axes = np.linalg.svd(centered, full_matrices=False)
    axes = axes[:2]
    # The sign of a principal axis is arbitrary. Without this rule, figures would flip from machine to machine.
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])[:, None]
    total = float((size**2).sum())
    # Equal vectors have no variance to explain.
    return centered @ axes.T, size[:2] ** 2 / total if total else np.zeros(2)


def nearest_own_centroid(vectors: NDArray[np.floating], group: Sequence[str]) -> NDArray[np.bool_]:
    """Tells whether each vector is nearer to the mean of the rest of its group than to the mean of any other group.

    All dimensions count, not just the two of the figure. Chance is 1 / number of groups.

    Args:
        vectors: Vectors `[n, D]`.
        group: Group `[n]` of each vector.

    Returns:
        Flags `[n]`, by strict comparison of cosines: False for all vectors if they are equal.
    """
    names, number, size = np.unique(np.asarray(group, dtype=object), return_inverse=True, return_counts=True)
    if len(names) < 2 or min(size) < 2:
        raise ValueError(
            f"group: found {len(names)} groups, the smallest with {min(size, default=0)} vectors; expected two groups "
            "with two vectors each."
        )
    vectors = vectors.astype(np.float64)
    # Use sums instead of means: cosines depend only on the direction, which is the same.
    total = np.zeros((len(names), vectors.shape[1]))
    np.add.at(total, number, vectors)
    unit, rows = _unit(vectors), np.arange(len(vectors))
    cosine = unit @ _unit(total).T
    # Leave out the vector itself, because it would pull its group's mean toward it.
    own = (unit * _unit(total[number] - vectors)).sum(axis=1)
    cosine[rows, number] = -np.inf
    return own > cosine.max(axis=1) + _ROUNDING


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length > 0, length, 1)


def draw_groups(path: str | Path, joint: Mapping[str, NDArray[np.floating]], group: Sequence[str]) -> Path:
    """Draws each model's joint embeddings in their principal plane, colored by group.

    Each model has its own plane, so compare positions within a panel, not between panels. The title of a panel shows
    the fraction of pairs that are nearest to the mean of their own group, in all dimensions.

    Args:
        path: Figure to write.
        joint: Results `[n, D]` of `joint_embeddings` by model, for the same pairs.
        group: Group `[n]` of each pair.
    """
    lengths = {name: len(vectors) for name, vectors in joint.items()}
    if not lengths or set(lengths.values()) != {len(group)}:
        raise ValueError(
            f"found {lengths} for {len(group)} pairs, expected at least one model, and this number of pairs per model."
        )
    names = list(dict.fromkeys(group))
    caption = (
        f"Element-wise products of image and caption, {len(group):,} pairs in {len(names)} groups, each model in its "
        "own principal plane (percent: variance explained by an axis). Nearest: fraction of pairs nearer to the "
        "mean of the rest of their group than to that of another group, in all dimensions; "
        f"chance {100 / len(names):.1f}%."
    )
    panels = [_panel(name, vectors, group, names) for name, vectors in joint.items()]
    return save_figure(Figure(Path(path).name, "Groups of joint embeddings", panels, caption), path)


def _panel(name: str, vectors: NDArray[np.floating], group: Sequence[str], names: Sequence[str]) -> Plot:
    points, shares = principal_plane(vectors)
    own = np.asarray(group, dtype=object)
    nearest = 100 * nearest_own_centroid(vectors, group).mean()
    across, up = (f"{100 * share:.0f}%" for share in shares)
    dots = {label: tuple(points[own == label].T) for label in names}
    return Plot(f"{name}: nearest to own group {nearest:.1f}%", (across, up), dots=dots, equal=True)
