"""Figures as data, and the only module that draws them: panels of points, curves over steps, paths and plots."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hfcomp.metrics.units import PERCENT, Unit
from hfcomp.reporting.format import Estimate, number
from hfcomp.reporting.plots import Plot, draw_plot
from hfcomp.statistics.summary import BASE
from hfcomp.writing import write_bytes

# Okabe and Ito's palette, distinct with any color vision; shapes differ too.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES = ("solid", "solid", "dashed", "dotted", "dashed", "dashdot")
WIDTH = 11.5  # inches
PANEL = (5.4, 4.3)  # width and height of a panel of curves or paths, in inches
ABOUT = 0.9  # height of a panel's title and axis, in inches
LABEL = 24  # letters per line in a row's label
LETTER = 0.085  # width of a letter in the legend, in inches
GRID = "#DDDDDD"

Style = tuple[str, str]  # color and marker
BASE_STYLE: Style = ("#7F7F7F", "o")


@dataclass(frozen=True)
class Points:
    """A panel of rows from top to bottom; each row has a point with an interval for every model.

    A row consists of a label, the estimate of each model (`None` is not drawn) and chance. Differences are compared
    with 0 instead of chance. `notes` are written next to the rows.
    """

    title: str
    axis: str
    rows: Sequence[tuple[str, Mapping[str, Estimate | None], float | None]]
    names: Sequence[str]
    differences: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Curves:
    """A panel of values over steps by name, with intervals as bands. `axes` are the horizontal and vertical labels.

    On a logarithmic axis, every step has a tick.
    """

    title: str
    axes: tuple[str, str]
    curves: Mapping[str, Sequence[tuple[float, Estimate]]]
    unit: Unit = PERCENT
    logarithmic: bool = False

    @property
    def names(self) -> Sequence[str]:
        return list(self.curves)


class Stop(NamedTuple):
    """A point on a path: values on both axes, text inside the point (without text it is small), interval bars."""

    across: Estimate
    up: Estimate
    mark: str = ""
    bars: bool = False


@dataclass(frozen=True)
class Paths:
    """A panel of paths through two values, one path per model; a path with one stop is a point. Chance is for `up`."""

    title: str
    axes: tuple[str, str]
    paths: Mapping[str, Sequence[Stop]]
    chance: float

    @property
    def names(self) -> Sequence[str]:
        return list(self.paths)


@dataclass(frozen=True)
class Figure:
    """A PNG of panels of one kind, with a caption below; the main model is drawn larger.

    `lead`, a panel of points, is above the others and as wide as the figure.
    """

    name: str
    title: str
    panels: Sequence[Points] | Sequence[Curves] | Sequence[Paths] | Sequence[Plot]
    caption: str = ""
    main: str | None = None
    lead: Points | None = None
    styles: Mapping[str, Style] = field(default_factory=dict)  # styles of models that look the same in all figures

    def nonempty_panels(self) -> list[Any]:
        return [
            panel
            for panel in self.panels
            if (panel.rows if isinstance(panel, Points) else not isinstance(panel, Plot) or panel.has_data())
        ]


def styles_of(
    names: Sequence[str], main: str | None = None, known: Mapping[str, Style] | None = None
) -> dict[str, Style]:
    """Picks each model's color and marker: known styles, then the first free color for the main model, then others."""
    known = {BASE: BASE_STYLE, **(known or {})}
    styles = {name: known[name] for name in names if name in known}
    # Sorting is stable, so only the main model moves, and the others keep their colors from figure to figure.
    others = sorted((name for name in names if name not in known), key=lambda name: name != main)
    taken = {color for color, _ in styles.values()}
    free = [color for color in PALETTE if color not in taken] or list(PALETTE)
    # The marker shifts by one with every round through the colors, so no two names share both.
    for index, name in enumerate(others):
        styles[name] = free[index % len(free)], MARKERS[(index % len(free) + index // len(free)) % len(MARKERS)]
    return styles


def draw(figure: Figure) -> bytes:
    """Draws a figure as a PNG. Raises ImportError without matplotlib (the extra `plots`)."""
    import matplotlib

    panels = figure.nonempty_panels()
    lead = [figure.lead] if figure.lead is not None and figure.lead.rows else []
    names = list(dict.fromkeys(name for panel in [*panels, *lead] for name in panel.names))
    styles = styles_of(names, figure.main, figure.styles)
    points = isinstance(panels[0], Points)
    most = 3 if len(panels) > 4 or isinstance(panels[0], Plot) else 2
    columns = len(panels) if points else min(len(panels), most)
    lines = math.ceil(len(panels) / columns)
    size = PANEL[0] * max(columns, 1.5), PANEL[1] * lines
    if points:
        size = (WIDTH if columns > 1 else 0.7 * WIDTH), max(map(_height, panels)) + ABOUT
    # Names come from users, so a "$" does not start a formula.
    with matplotlib.rc_context({"text.parse_math": False}):
        heights = [*(_height(panel) + ABOUT for panel in lead), size[1]]
        canvas, places = _layout(figure, (size[0], heights), (lines, columns), {name: styles[name] for name in names})
        for number, (axes, panel) in enumerate(zip(places, [*lead, *panels], strict=False)):
            if isinstance(panel, Points):
                _draw_points(axes, panel, styles, figure.main)
                # Panels next to each other have the same height. A panel with few rows keeps free space below them
                # instead of spreading them out.
                neighbors = lead if number < len(lead) else panels
                rows = max(len(panel.rows), 0.5 * max(len(neighbor.rows) for neighbor in neighbors))
                axes.set_ylim(rows - 0.5, -0.5)
            else:
                drawers: dict[type, Any] = {Curves: _draw_curves, Paths: _draw_paths, Plot: draw_plot}
                drawers[type(panel)](axes, panel, styles)
                axes.set(xlabel=panel.axes[0], ylabel=panel.axes[1])
                axes.grid(color=GRID, linewidth=0.8)
            width = size[0] if number < len(lead) else size[0] / columns
            axes.set_title(textwrap.fill(_line(panel.title), int(11 * width)), loc="left", fontsize=10)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        # The last row of the grid may have more cells than panels.
        for axes in places[len(lead) + len(panels) :]:
            axes.set_visible(False)
        return png(canvas)


def png(canvas: Any, **settings: Any) -> bytes:
    """Encodes a matplotlib figure as a PNG; passes further settings to its `savefig`."""
    content = io.BytesIO()
    canvas.savefig(content, dpi=150, format="png", **settings)
    return content.getvalue()


def check_matplotlib(path: str | Path) -> None:
    """Raises ImportError, naming the file that needs matplotlib, if it is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{path} needs matplotlib: pip install 'hfcomp[plots]'") from error


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Draws a figure into a file, atomically. Raises ImportError as in `check_matplotlib`."""
    check_matplotlib(path)
    write_bytes(Path(path), draw(figure))
    return Path(path)


def _layout(
    figure: Figure, size: tuple[float, Sequence[float]], grid: tuple[int, int], styles: Mapping[str, Style]
) -> Any:
    """Creates an empty figure with strips for title, legend and caption, and axes for the lead, if any, and panels.

    `size` has the width of the figure and the heights of lead and panels.
    """
    # Does not use pyplot, which keeps every figure until it is closed and may look for a display.
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    width = size[0]
    title = textwrap.wrap(_line(figure.title), int(9 * width))
    caption = textwrap.wrap(_line(figure.caption), int(14 * width))
    names = [textwrap.shorten(_line(name), int(width / LETTER) - 6, placeholder="...") for name in styles]
    columns = max(1, min(len(names), int(width / (LETTER * max(map(len, names)) + 0.5))))
    # Long titles and legends of matplotlib would cover the panels. Strips whose heights depend on the number of lines
    # make the figure as high as necessary.
    heights = [0.22 * len(title) + 0.08, 0.22 * math.ceil(len(names) / columns) + 0.1, *size[1], 0.16 * len(caption)]
    canvas = Canvas(figsize=(width, sum(heights)), layout="constrained")
    strips = canvas.add_gridspec(len(heights), 1, height_ratios=[max(height, 0.01) for height in heights])
    above, legend, below = (canvas.add_subplot(strips[row]) for row in (0, 1, -1))
    for strip in (above, legend, below):
        strip.axis("off")
    above.text(0, 0.5, "\n".join(title), va="center", transform=above.transAxes, fontsize=12, weight="bold")
    below.text(0, 0.5, "\n".join(caption), va="center", transform=below.transAxes, fontsize=9)
    # One legend for all panels, because a name has the same style in all of them.
    handles = [Line2D([], [], color=color, marker=marker, linestyle="none") for color, marker in styles.values()]
    legend.legend(handles, names, loc="center", ncols=columns, frameon=False, columnspacing=1.4, borderpad=0)
    # Readers compare curves in several panels by height.
    same_height = isinstance(figure.panels[0], Curves)
    lead = [canvas.add_subplot(strips[row]) for row in range(2, len(heights) - 2)]
    return canvas, [*lead, *strips[-2].subgridspec(*grid).subplots(squeeze=False, sharey=same_height).ravel()]


def _line(text: str) -> str:
    return " ".join(text.split())


def _height(panel: Points) -> float:
    """Returns the height in inches, with room in each row for its label and for points one below another."""
    lines = max(len(textwrap.wrap(label, _label_width(panel))) for label, _, _ in panel.rows)
    points = max(sum(value is not None for value in estimates.values()) for _, estimates, _ in panel.rows)
    return len(panel.rows) * max(0.32, 0.07 * points + 0.07, 0.17 * lines)


def _label_width(panel: Points) -> int:
    """Letters per line of a row's label; a panel with notes is as wide as the figure."""
    return (2 if panel.notes else 1) * LABEL


def _draw_points(axes: Any, panel: Points, styles: Mapping[str, Style], main: str | None) -> None:
    # Draws the models of a row one below another, in the order of the legend, so no interval hides another.
    rows = [
        {name: estimate for name in panel.names if (estimate := row.get(name)) is not None} for _, row, _ in panel.rows
    ]
    for name in panel.names:
        color, marker = styles[name]
        known = [
            (place + (list(row).index(name) - (len(row) - 1) / 2) * 0.8 / len(row), row[name])
            for place, row in enumerate(rows)
            if name in row
        ]
        axes.errorbar(
            [100 * number(estimate["value"]) for _, estimate in known],
            [place for place, _ in known],
            xerr=[[_side(estimate, bound) for _, estimate in known] for bound in ("low", "high")],
            fmt=marker,
            color=color,
            markersize=7 if name == main else 5.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=1.6,
            zorder=3,
        )
    # A gray band behind every other row leads the eye from the label to its points.
    for place in range(0, len(panel.rows), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F3F3F3", zorder=0)
    if panel.differences:
        axes.axvline(0, color="black", linewidth=1, zorder=1)
    else:
        for place, (_, _, chance) in enumerate(panel.rows):
            axes.vlines(100 * number(chance), place - 0.45, place + 0.45, "black", linestyles="dotted", linewidth=1.2)
    # Values use the whole scale from 0 to 100, and differences at least a point on both sides of 0, so a tiny effect
    # does not fill the panel.
    low, high = axes.get_xlim()
    axes.set_xlim(*((min(low, -1), max(high, 1)) if panel.differences else (min(low, -2), max(high, 102))))
    size = 11 if panel.notes else 10
    labels = [textwrap.fill(label, _label_width(panel)) for label, _, _ in panel.rows]
    axes.set_yticks(range(len(panel.rows)), labels, fontsize=size)
    for place, note in enumerate(panel.notes):
        axes.text(1.01, place, note, va="center", fontsize=size, transform=axes.get_yaxis_transform())
    axes.set_xlabel(panel.axis)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.spines["left"].set_visible(False)


def _draw_curves(axes: Any, panel: Curves, styles: Mapping[str, Style]) -> None:
    for index, (name, curve) in enumerate(panel.curves.items()):
        color, marker = styles[name]
        steps = [step for step, _ in curve]
        value, low, high = (
            [panel.unit.factor * number(estimate[key]) for _, estimate in curve] for key in ("value", "low", "high")
        )
        axes.fill_between(steps, low, high, color=color, alpha=0.13, linewidth=0, zorder=1)
        dash = DASHES[index % len(DASHES)]
        axes.plot(steps, value, marker, linestyle=dash, color=color, markersize=4.5, linewidth=1.5, zorder=2)
    if panel.logarithmic:
        ticks = sorted({step for curve in panel.curves.values() for step, _ in curve})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
        axes.minorticks_off()
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(bottom=0)


def _draw_paths(axes: Any, panel: Paths, styles: Mapping[str, Style]) -> None:
    for name, stops in panel.paths.items():
        color, marker = styles[name]
        places = [(100 * stop.across["value"], 100 * stop.up["value"]) for stop in stops]
        axes.plot(*zip(*places, strict=True), color=color, linewidth=0.9, alpha=0.5, zorder=2)
        for place, stop in zip(places, stops, strict=True):
            is_single = len(stops) == 1
            size, order = (9, 4) if stop.mark else (8, 5) if is_single else (3, 3)
            edge = {"markeredgecolor": "white"} if size > 3 else {}
            axes.plot(*place, marker, color=color, markersize=size, zorder=order, **edge)
            axes.annotate(stop.mark, place, color="white", fontsize=6, ha="center", va="center", zorder=6)
            if stop.bars:
                sides = [[[_side(value, "low")], [_side(value, "high")]] for value in (stop.across, stop.up)]
                axes.errorbar(*place, *reversed(sides), fmt="none", ecolor=color, elinewidth=0.9, alpha=0.7, zorder=3)
    # A line far below the paths would squeeze them.
    low, high = axes.get_ylim()
    if 100 * panel.chance > low - 0.5 * (high - low):
        axes.axhline(100 * panel.chance, color="black", linestyle="dotted", linewidth=1.1, zorder=1)


def _side(estimate: Estimate, bound: str) -> float:
    """Returns the length of one side of an interval, or of the range over seeds, in percent; 0 if there is none."""
    end = estimate.get(bound, estimate.get({"low": "lowest", "high": "highest"}[bound]))
    # matplotlib raises for a negative length, which rounding could produce for an empty side.
    length = 100 * abs(number(end) - number(estimate["value"]))
    return 0.0 if math.isnan(length) else length
