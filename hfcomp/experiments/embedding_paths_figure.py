"""Distances between embeddings over the steps of training, one panel a variant and one line a pair."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

from hfcomp.experiments.embedding_distances import PAIRS
from hfcomp.writing import replacing

# Okabe and Ito's palette, told apart with any colour vision; shapes and dashes differ too.
COLOURS = ("#000000", "#D55E00", "#0072B2", "#CC79A7", "#E69F00", "#009E73")
MARKERS = "osD^vP"
DASHES = ("solid", "solid", "dashed", "dotted", "dashed", "dashdot")
PANEL = (5.0, 4.0)  # inches
MOST_COLUMNS = 3
CAPTION_LETTERS = 15  # an inch


def draw_paths(path: Path, variants: dict[str, Any], caption: str) -> bool:
    """Draws the mean distances at the base, step 0, and at each checkpoint, with their intervals as bands.

    Without matplotlib (the extra `plots`) nothing is drawn and a line says so.

    Args:
        path: of the PNG, replaced.
        variants: of `summarize_paths`.
        caption: lines below the panels.

    Returns:
        Whether there is a figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        path.unlink(missing_ok=True)
        print(f"{path.name} is not drawn: pip install 'hfcomp[plots]'")
        return False
    columns = min(MOST_COLUMNS, len(variants))
    rows = math.ceil(len(variants) / columns)
    size = max(2, columns) * PANEL[0], rows * PANEL[1] + 1.2  # the legend needs the width of two
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, (variant, found) in zip(places, variants.items(), strict=False):
        _draw_variant(axes, variant, found["points"])
    for axes in places[::columns]:
        axes.set_ylabel("mean distance, 1 - cosine")
    for axes in places[len(variants) :]:
        axes.set_visible(False)
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    wrapped = [part for line in caption.splitlines() for part in textwrap.wrap(line, int(CAPTION_LETTERS * size[0]))]
    text = "\n".join(wrapped).replace("$", r"\$")  # no formula
    figure.supxlabel(text, fontsize=9, color="#444444", x=0.01, ha="left")
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png")
    return True


def _draw_variant(axes: Any, variant: str, points: list[dict[str, Any]]) -> None:
    steps = [point["step"] for point in points]
    for name, color, marker, dash in zip(PAIRS, COLOURS, MARKERS, DASHES, strict=True):
        low, value, high = ([point[name][key] for point in points] for key in ("low", "value", "high"))
        axes.fill_between(steps, low, high, color=color, alpha=0.13, linewidth=0, zorder=1)
        axes.plot(
            steps, value, marker, linestyle=dash, color=color, label=name, markersize=4.5, linewidth=1.5, zorder=2
        )
    axes.set_title(variant, loc="left", fontsize=11)
    axes.set_xlabel("training step (0: base)")
    axes.set_ylim(bottom=0)
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
