"""A picture of groups in the space of joint embeddings, one panel a model: CLEAR GLASS, Figure 3."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.canvas import new_figure, save_figure
from hfcomp.analysis.joint_embeddings import nearest_own_centroid, principal_plane
from hfcomp.reporting.figures import styles_of

PANEL = (4.6, 4.2)  # inches
LEGEND_LETTERS = 26
CAPTION_LETTERS = 15  # an inch


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
    path = Path(path)
    names = list(dict.fromkeys(group))
    figure = new_figure(path, (PANEL[0] * len(found) + 1.8, PANEL[1] + 0.6))
    places = figure.subplots(1, len(found), squeeze=False).ravel()
    for axes, (name, vectors) in zip(places, found.items(), strict=True):
        _draw_model(axes, name, vectors, group, names)
    handles, labels = places[0].get_legend_handles_labels()
    labels = [textwrap.fill(label, LEGEND_LETTERS).replace("$", r"\$") for label in labels]
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    caption = (
        f"Element-wise products of image and caption, {len(group):,} pairs of {len(names)} groups, each model in its "
        "own principal plane (percent: variance explained by an axis). Nearest: fraction of pairs nearer to the mean "
        f"of their group's others than to another group's, in all dimensions; chance {100 / len(names):.1f} %."
    )
    text = "\n".join(textwrap.wrap(caption, int(CAPTION_LETTERS * figure.get_figwidth())))
    figure.supxlabel(text, fontsize=8, color="#444444", x=0.01, ha="left")
    return save_figure(figure, path)


def _draw_model(
    axes: Any, name: str, vectors: NDArray[np.floating], group: Sequence[str], names: Sequence[str]
) -> None:
    points, shares = principal_plane(vectors)
    own = np.array([names.index(one) for one in group])
    styles = styles_of(names)
    for number, one in enumerate(names):
        color, marker = styles[one]
        axes.scatter(*points[own == number].T, s=16, color=color, marker=marker, alpha=0.75, label=one)
    nearest = 100 * nearest_own_centroid(vectors, group).mean()
    axes.set_title(f"{name}\nnearest to own group: {nearest:.1f} %", loc="left", fontsize=10, parse_math=False)
    for set_label, share in zip((axes.set_xlabel, axes.set_ylabel), shares, strict=True):
        set_label(f"{100 * share:.0f} %", fontsize=8)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["top", "right"]].set_visible(False)
