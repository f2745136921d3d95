"""The figures of sets of pairs: the paper's Figure 4 and the panels of its Figure 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.analysis.canvas import new_figure
from hfcomp.reporting.figures import GRID, png, styles_of
from hfcomp.reporting.format import number

PANEL = (4.6, 3.7)  # inches
DOTS = 3000
"""Points of a set in a panel: more would hide each other."""


@dataclass(frozen=True)
class Panel:
    """A panel: axes' names, and what is drawn by set.

    Attributes:
        title: above it.
        axes: names of the axis below and the one beside.
        densities: by set, values whose distribution is drawn.
        dots: by set, `[n]` across and `[n]` up.
        means: by set, classes with `middle`, `value`, `low` and `high`.
        curves: by set and name, `[k]` across and `[k]` up.
        ticks: names of places on the axis below.
    """

    title: str
    axes: tuple[str, str]
    densities: Mapping[str, NDArray[np.float64]] | None = None
    dots: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None
    means: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    curves: Mapping[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.float64]]] | None = None
    ticks: Mapping[int, str] | None = None

    def filled(self) -> bool:
        """Whether there is anything to draw."""
        parts = (self.densities, self.dots, self.means, self.curves)
        return any(len(value) and np.size(value[0]) for part in parts for value in (part or {}).values())


DASHES = ("solid", "dashed", "dotted", "dashdot")


def draw_panels(name: str, panels: Sequence[Panel], sets: Sequence[str]) -> bytes:
    """The PNG of panels side by side; empty where none has anything.

    Args:
        name: of the file, for errors.
        panels: that are drawn where they are filled.
        sets: in the order of their colours.

    Raises:
        ImportError: without matplotlib.
    """
    import matplotlib

    panels = [panel for panel in panels if panel.filled()]
    if not panels:
        return b""
    styles = styles_of(sets)
    with matplotlib.rc_context({"text.parse_math": False}):  # a "$" in a name is no formula
        figure = new_figure(Path(name), (len(panels) * PANEL[0], PANEL[1] + 0.4))
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).ravel(), panels, strict=True):
            _draw(axes, panel, styles)
        _legend(figure, styles, panels)
        return png(figure)


def _draw(axes: Any, panel: Panel, styles: Mapping[str, tuple[str, str]]) -> None:
    _draw_densities(axes, panel.densities or {}, styles)
    generator = np.random.default_rng(0)
    for name, (across, up) in (panel.dots or {}).items():
        chosen = generator.permutation(len(across))[:DOTS]
        size = 9 if len(chosen) < 300 else 4
        axes.scatter(across[chosen], up[chosen], s=size, color=styles[name][0], alpha=0.35, linewidths=0, zorder=2)
    for name, classes in (panel.means or {}).items():
        color, marker = styles[name]
        across, value, low, high = (
            np.array([number(one[key]) for one in classes]) for key in ("middle", "value", "low", "high")
        )
        sides = np.nan_to_num([np.maximum(value - low, 0), np.maximum(high - value, 0)])
        line = "none" if panel.curves else "solid"
        axes.errorbar(across, value, yerr=sides, fmt=marker, color=color, linestyle=line, markersize=4.5, zorder=3)
    for (name, what), (across, up) in (panel.curves or {}).items():
        dash = DASHES[_curve_names(panel).index(what) % len(DASHES)]
        axes.plot(across, up, color=styles[name][0], linestyle=dash, linewidth=1.6, zorder=4)
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set(xlabel=panel.axes[0], ylabel=panel.axes[1])
    if panel.ticks:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_densities(
    axes: Any, densities: Mapping[str, NDArray[np.float64]], styles: Mapping[str, tuple[str, str]]
) -> None:
    """Outlines of histograms over the same classes, dotted at the median."""
    if not densities:
        return
    whole = np.concatenate(list(densities.values()))
    edges = np.linspace(whole.min(), whole.max() + 1e-9, 41)
    for name, values in densities.items():
        color = styles[name][0]
        axes.hist(values, bins=edges, density=True, histtype="step", color=color, linewidth=1.5, zorder=3)
        axes.axvline(np.median(values), color=color, linestyle="dotted", linewidth=1.3, zorder=2)


def _curve_names(panel: Panel) -> list[str]:
    return list(dict.fromkeys(what for _, what in panel.curves or {}))


def _legend(figure: Any, styles: Mapping[str, tuple[str, str]], panels: Sequence[Panel]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, marker=marker) for color, marker in styles.values()]
    names = list(styles)
    for panel in panels:
        for place, what in enumerate(_curve_names(panel)):
            if len(_curve_names(panel)) > 1 and what not in names:
                handles.append(Line2D([], [], color="black", linestyle=DASHES[place % len(DASHES)]))
                names.append(what)
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 4), frameon=False, fontsize=9)
