"""One picture of a run: composition with its intervals, and beside it what became of general abilities."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.experiments.comparison import (
    BASE,
    Line,
    Share,
    by_benchmark,
    difference,
    headline,
    is_average,
    models_of,
    number,
    of_aspect,
    subsets_of,
)
from hfcomp.writing import replacing

# Okabe and Ito's palette, told apart with any colour vision; shapes differ too. The two InfoNCE controls are blue.
STYLES = {
    BASE: ("#7F7F7F", "o"),
    "plain": ("#56B4E9", "s"),
    "same-batch": ("#0072B2", "D"),
    "shuffled": ("#CC79A7", "^"),
    "random-spans": ("#E69F00", "<"),
    "equal-images": ("#009E73", "v"),
}
METHOD_STYLE = ("#D55E00", "o")
OTHER_STYLES = (("#E69F00", "P"), ("#000000", "X"))
# Of more lines than that, later benchmarks are drawn as their averages; so is any benchmark with more.
MOST_ROWS = 10
WIDTH = 11.5  # inches
LABEL_WIDTH = 24  # letters
LETTER = 0.085  # inches of a letter in the legend

SHARES = "percent right, 95 % intervals (dotted: chance)"
CHANGES = "points against base (left of 0: forgotten)"

Row = tuple[str, dict[str, Share | None], float]  # label, share of each model, chance


@dataclass(frozen=True)
class Panel:
    """One part of the figure.

    Attributes:
        title: above it.
        unit: below its axis.
        rows: from top to bottom.
        names: the models drawn.
        differences: whether shares are differences to base.
        main: the model that is drawn larger.
    """

    title: str
    unit: str
    rows: list[Row]
    names: list[str]
    differences: bool = False
    main: str | None = None


Styles = Mapping[str, tuple[str, str]]  # colour and marker of each model


def draw_figure(path: Path, lines: Sequence[Line]) -> None:
    """Points with 95 % intervals, a row per headline line of composition and per general line.

    Without matplotlib (the extra `plots`) nothing is drawn and a line says so.

    Args:
        path: of the PNG, replaced.
        lines: as `hfcomp.evaluation.results` makes them.
    """
    models = models_of(lines)
    main = models[-1] if models else None
    composition, general = _with_averages(headline(lines), lines), of_aspect(lines, "general")
    panels = [Panel(f"Composition{_what(composition)}", SHARES, _rows(composition, models, None), models, main=main)]
    if models[:1] == [BASE] and len(models) > 1:
        changes = _rows(general, models[1:], BASE)
        panels.append(Panel("General abilities", CHANGES, changes, models[1:], differences=True, main=main))
    draw_panels(path, panels, {name: style_of(name, models) for name in models})


def draw_panels(path: Path, panels: Sequence[Panel], styles: Styles) -> bool:
    """Draws panels side by side, with one legend.

    Without rows nothing is drawn; without matplotlib (the extra `plots`) neither, and a line says so.

    Args:
        path: of the PNG, replaced, or removed when nothing is drawn.
        panels: those without rows are left out.
        styles: of the models.

    Returns:
        Whether there is a figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        path.unlink(missing_ok=True)
        print(f"{path.name} is not drawn: pip install 'hfcomp[plots]'")
        return False
    panels = [panel for panel in panels if panel.rows]
    if not panels:
        path.unlink(missing_ok=True)
        return False
    width = WIDTH if len(panels) > 1 else 0.6 * WIDTH
    names = panels[0].names
    columns = max(1, min(len(names), int(width / (LETTER * max(map(len, names)) + 0.6))))
    height = max(_height(panel) for panel in panels) + 1 + 0.2 * math.ceil(len(names) / columns)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, panel in zip(axes, panels, strict=True):
        _draw_points(place, panel, styles)
        _draw_frame(place, panel)
        rows = max(len(panel.rows), 0.5 * max(len(other.rows) for other in panels))  # a short panel is not blown up
        place.set_ylim(rows - 0.5, -0.5)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, columnspacing=1.4)
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png")
    return True


def _height(panel: Panel) -> float:
    """Inches, with room for points one below another in each row, and for its label."""
    lines = max(len(textwrap.wrap(label, LABEL_WIDTH)) for label, _, _ in panel.rows)
    return len(panel.rows) * max(0.32, 0.07 * len(panel.names) + 0.07, 0.17 * lines)


def _what(lines: Sequence[Line]) -> str:
    """Benchmark and metric, as far as there is one of each."""
    names = [{line[key] for line in lines} for key in ("benchmark", "metric")]
    single = [name for values in names if len(values) == 1 for name in values]
    return f" ({', '.join(single)})" if single else ""


def _rows(lines: Sequence[Line], models: Sequence[str], reference: str | None) -> list[Row]:
    """The averages of each benchmark, and its lines; of many lines those of the first benchmark."""
    found: list[Row] = []
    parts = by_benchmark(lines)
    first = next(iter(parts), None)
    for benchmark, part in parts.items():
        prefix = f"{benchmark}: " if len(parts) > 1 else ""
        own, averages = subsets_of(part), [line for line in part if is_average(line)]
        many = len(own) > MOST_ROWS or (benchmark != first and len(subsets_of(lines)) > MOST_ROWS)
        for line in averages if averages and many else [*averages, *own]:
            shares = {
                name: difference(line, name, reference) if reference else line["models"].get(name) for name in models
            }
            label = _label(line, part)
            named = prefix + label if is_average(line) or len(part) == 1 else label
            found.append((named, shares, number(line["chance"])))
    return found


def _with_averages(chosen: Sequence[Line], lines: Sequence[Line]) -> list[Line]:
    """Lines, the averages of their benchmarks and metrics before them."""
    kinds = {(line["benchmark"], line["metric"]) for line in chosen}
    return [*(line for line in lines if is_average(line) and (line["benchmark"], line["metric"]) in kinds), *chosen]


def _label(line: Line, others: Sequence[Line]) -> str:
    """The subset, with the metric where the subset does not tell lines apart."""
    if len({other["metric"] for other in others}) == 1 and line["subset"] != "all":
        return line["subset"]
    return line["metric"] if line["subset"] == "all" else f"{line['subset']}, {line['metric']}"


def style_of(name: str, models: Sequence[str]) -> tuple[str, str]:
    """Colour and marker of a model, the same in every figure; the last one is the method."""
    if name in STYLES:
        return STYLES[name]
    if name == models[-1]:
        return METHOD_STYLE
    unknown = [model for model in models[:-1] if model not in STYLES]
    return OTHER_STYLES[unknown.index(name) % len(OTHER_STYLES)]


def _draw_points(axes: Any, panel: Panel, styles: Styles) -> None:
    for index, name in enumerate(panel.names):
        color, marker = styles[name]
        offset = (index - (len(panel.names) - 1) / 2) * 0.8 / len(panel.names)
        drawn = [(place, shares[name]) for place, (_, shares, _) in enumerate(panel.rows) if shares[name] is not None]
        axes.errorbar(
            [100 * number(share["value"]) for _, share in drawn],
            [place + offset for place, _ in drawn],
            xerr=[[_side(share, bound) for _, share in drawn] for bound in ("low", "high")],
            fmt=marker,
            color=color,
            markersize=7 if name == panel.main else 5.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            elinewidth=1.6,
            label=name,
            zorder=3,
        )


def _draw_frame(axes: Any, panel: Panel) -> None:
    """Stripes, labels, and what the points are read against: chance, or no change."""
    count = len(panel.rows)
    for place in range(0, count, 2):
        axes.axhspan(place - 0.5, place + 0.5, color="#F3F3F3", zorder=0)
    if panel.differences:
        axes.axvline(0, color="black", linewidth=1, zorder=1)
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -1), max(high, 1))
    else:
        for place, (_, _, chance) in enumerate(panel.rows):
            axes.vlines(100 * chance, place - 0.45, place + 0.45, colors="black", linestyles="dotted", linewidth=1.2)
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -2), max(high, 102))
    axes.set_yticks(range(count), [textwrap.fill(label, LABEL_WIDTH) for label, _, _ in panel.rows])
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_xlabel(panel.unit)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _side(share: Share, bound: str) -> float:
    """Length of one side of the interval in percent, 0 where there is none."""
    length = 100 * abs(number(share[bound]) - number(share["value"]))
    return 0.0 if math.isnan(length) else length
