"""A picture of accuracy against level of abstraction, one line a model: CLEAR GLASS, Figure 4."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hfcomp.analysis.canvas import new_figure, save_figure
from hfcomp.reporting.figures import styles_of

PANEL = (4.4, 3.7)  # inches
MOST_COLUMNS = 3
SPREAD = 0.3  # of a level, between the first and the last model
CAPTIONS = "captions"
_LEVEL = re.compile(r"(?:captions?|level (?P<level>\d+))")


def lines_by_level(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The lines of results that are of a level of abstraction.

    Args:
        lines: of `summarize` or `results.json`. The level precedes the metric's name, as
            `LevelChoice` writes it, or is the subset, as in the sandbox's evaluation.

    Returns:
        By benchmark and metric, where there are two levels or more: the line of each level, the most specific first,
        captions before all.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        before, metric = _split_level(line["metric"])
        level = before or _level(line["subset"])
        if level is not None and not line.get("average"):
            found.setdefault(f"{line['benchmark']}: {metric}", {})[level] = line
    return {title: dict(sorted(parts.items(), key=_order)) for title, parts in found.items() if len(parts) > 1}


def draw_levels(path: str | Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Draws the accuracy of every model on every level with its interval of 95 %, chance dotted.

    Args:
        path: of the PNG, replaced.
        lines: as `lines_by_level` takes them; each benchmark and metric is a panel.

    Returns:
        `path`.

    Raises:
        ImportError: without matplotlib.
        ValueError: when no line is of a level.
    """
    panels = lines_by_level(lines)
    if not panels:
        raise ValueError(
            "lines: none has a level of abstraction, such as the metric 'level 1 image choice of 2' or the subset "
            "'level 1'. Evaluate with `hfcomp levels`, the benchmark magic or a recipe of the sandbox."
        )
    path = Path(path)
    columns = min(MOST_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(path, (columns * PANEL[0], rows * PANEL[1] + 0.5))
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (title, parts) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, title, parts)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    handles: dict[str, Any] = {}
    for axes in places[: len(panels)]:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles["chance"] = handles.pop("chance")  # behind the models
    labels = [label.replace("$", r"\$") for label in handles]
    figure.legend(handles.values(), labels, loc="outside upper center", ncols=min(4, len(labels)), frameon=False)
    return save_figure(figure, path)


def _draw_panel(axes: Any, title: str, parts: Mapping[str, Mapping[str, Any]]) -> None:
    models = list(dict.fromkeys(name for line in parts.values() for name in line["models"]))
    styles = styles_of(models)
    for index, name in enumerate(models):
        color, marker = styles[name]
        there = [(place, line["models"][name]) for place, line in enumerate(parts.values()) if name in line["models"]]
        across = [place + SPREAD * (index / max(1, len(models) - 1) - 0.5) for place, _ in there]
        value, low, high = ([_percent(share[key]) for _, share in there] for key in ("value", "low", "high"))
        sides = [
            [max(0.0, one - bound) for one, bound in zip(value, low, strict=True)],
            [max(0.0, bound - one) for one, bound in zip(value, high, strict=True)],
        ]
        axes.errorbar(across, value, yerr=sides, fmt=marker, color=color, linewidth=1.1, markersize=5, label=name)
        axes.plot(across, value, color=color, linewidth=1.1, alpha=0.6)
    chance = [_percent(line["chance"]) for line in parts.values()]
    axes.plot(range(len(chance)), chance, color="black", linestyle="dotted", linewidth=1.2, label="chance")
    axes.set_title(title, loc="left", fontsize=10, parse_math=False)
    axes.set_xticks(range(len(parts)), list(parts))
    axes.set_xlabel("level of abstraction")
    axes.set_ylabel("accuracy, percent")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _percent(value: float | None) -> float:
    """NaN, which is not drawn, for what is not known."""
    return math.nan if value is None else 100 * value


def _split_level(metric: str) -> tuple[str | None, str]:
    """The level before a metric's name, and the name without it."""
    before = _LEVEL.match(metric)
    if before is None or not metric[before.end() :].startswith(" image "):
        return None, metric
    return _level(before[0]), metric[before.end() + 1 :]


def _level(name: str) -> str | None:
    """`"2"` for level 2, "captions" for captions, `None` for what is neither."""
    whole = _LEVEL.fullmatch(name)
    return None if whole is None else whole["level"] or CAPTIONS


def _order(part: tuple[str, Any]) -> int:
    return 0 if part[0] == CAPTIONS else int(part[0])
