"""A picture of groups in the space of joint embeddings, one panel a model: CLEAR GLASS, Figure 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.joint_embeddings import nearest_own_centroid, principal_plane
from hfcomp.reporting.figures import Figure, save_figure
from hfcomp.reporting.plots import Plot


def draw_groups(path: str | Path, found: Mapping[str, NDArray[np.floating]], group: Sequence[str]) -> Path:
    """Draws each model's joint embeddings in their principal plane, coloured by group.

    Each model has its own plane: compare positions within a panel, not between panels. Above
    a panel is the fraction of pairs that are nearest to their own group's mean, in all dimensions.

    Args:
        path: of the PNG, replaced.
        found: by model, `[n, D]` of `joint_embeddings`, of the same pairs.
        group: `[n]`, of each pair.

    Returns:
        `path`.

    Raises:
        ImportError: without matplotlib.
        ValueError: for no model, lengths that differ, or as `nearest_own_centroid` does.
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
