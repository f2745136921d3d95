"""A panel with the distribution of items over two quantities: densities, dots, means and curves for each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.metrics.units import Unit
from hfcomp.reporting.format import Estimate, number

DOTS = 3000
"""Maximum number of dots per name in a panel; more would hide each other."""
BINS = 40
SPREAD = 0.3
"""Distance between the means of the first and last name, in tick distances; keeps their intervals from overlapping."""

Places = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Horizontal and vertical coordinates, `[n]` each."""


@dataclass(frozen=True)
class Plot:
    """A panel whose layers have an entry for each name, such as a model.

    Attributes:
        axes: Names of the horizontal and the vertical axis.
        densities: Values whose distribution is drawn as an outline, with a dotted line at the median.
        dots: Points; at most `DOTS` of them, chosen at random, are shown.
        means: Horizontal positions and estimates, with intervals as bars. Joined by lines unless there are curves.
        reference: Points of a dotted black line, such as chance.
        ticks: Labels of horizontal positions.
        unit: Unit of means and reference.
        equal: Whether both axes share one scale and have no ticks.
    """

    title: str
    axes: tuple[str, str]
    densities: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    dots: Mapping[str, Places] = field(default_factory=dict)
    means: Mapping[str, Sequence[tuple[float, Estimate]]] = field(default_factory=dict)
    curves: Mapping[str, Places] = field(default_factory=dict)
    reference: Sequence[tuple[float, float | None]] = ()
    ticks: Mapping[float, str] = field(default_factory=dict)
    unit: Unit = Unit(1, 2)
    equal: bool = False

    @property
    def names(self) -> Sequence[str]:
        return list(dict.fromkeys([*self.densities, *self.dots, *self.means, *self.curves]))

    def has_data(self) -> bool:
        places = [*self.dots.values(), *self.curves.values()]
        values = [*self.densities.values(), *self.means.values(), *(across for across, _ in places)]
        return any(len(layer) for layer in values)


def draw_plot(axes: Any, panel: Plot, styles: Mapping[str, tuple[str, str]]) -> None:
    """Draws the layers of a panel into matplotlib axes; `styles` has color and marker by name."""
    _draw_densities(axes, panel.densities, styles)
    # Choose the same dots in every run, so a figure changes only when its data changes.
    generator = np.random.default_rng(0)
    for name, (across, up) in panel.dots.items():
        color, marker = styles[name]
        shown = generator.permutation(len(across))[:DOTS]
        size = 16 if panel.equal else 9 if len(shown) < 300 else 4
        look = {"marker": marker, "alpha": 0.75} if panel.equal else {"alpha": 0.35, "linewidths": 0}
        axes.scatter(across[shown], up[shown], s=size, color=color, zorder=2, **look)
    # Named positions leave room for a shift. On a numeric scale, a shifted position would be another number.
    spread = SPREAD if panel.ticks else 0.0
    for place, name in enumerate(panel.means):
        shift = spread * (place / max(1, len(panel.means) - 1) - 0.5)
        _draw_means(axes, panel, name, shift, styles[name])
    for name, (across, up) in panel.curves.items():
        axes.plot(across, up, color=styles[name][0], linewidth=1.6, zorder=4)
    if panel.reference:
        line = [(across, panel.unit.factor * number(up)) for across, up in panel.reference]
        axes.plot(*zip(*line, strict=True), color="black", linestyle="dotted", linewidth=1.2)
    if panel.ticks:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    # A projection of embeddings has no meaningful axes, only distances.
    if panel.equal:
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xticks=[], yticks=[])


def _draw_densities(
    axes: Any, densities: Mapping[str, NDArray[np.float64]], styles: Mapping[str, tuple[str, str]]
) -> None:
    if not densities:
        return
    whole = np.concatenate(list(densities.values()))
    # Use the same bins for all names to make outlines comparable. They have a width even if all values are equal.
    edges = np.linspace(whole.min(), whole.max() + 1e-9, BINS + 1)
    for name, values in densities.items():
        color = styles[name][0]
        axes.hist(values, bins=edges, density=True, histtype="step", color=color, linewidth=1.5, zorder=3)
        axes.axvline(np.median(values), color=color, linestyle="dotted", linewidth=1.3, zorder=2)


def _draw_means(axes: Any, panel: Plot, name: str, shift: float, style: tuple[str, str]) -> None:
    color, marker = style
    value, low, high = (
        panel.unit.factor * np.array([number(estimate[key]) for _, estimate in panel.means[name]])
        for key in ("value", "low", "high")
    )
    across = [place + shift for place, _ in panel.means[name]]
    sides = np.nan_to_num([np.maximum(value - low, 0), np.maximum(high - value, 0)])
    axes.errorbar(across, value, yerr=sides, fmt=marker, color=color, linewidth=1.1, markersize=4.5, zorder=3)
    if not panel.curves:
        axes.plot(across, value, color=color, linewidth=1.1, alpha=0.6)
