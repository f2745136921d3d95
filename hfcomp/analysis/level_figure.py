"""Draws accuracy by level of abstraction, with one line per model (CLEAR GLASS, Figure 4)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hfcomp.metrics.units import PERCENT
from hfcomp.reporting.figures import Figure, save_figure
from hfcomp.reporting.plots import Plot

CAPTIONS = "captions"
_LEVEL = re.compile(r"(?:captions?|level (?P<level>\d+))")


def lines_by_level(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Selects the result lines that belong to a level of abstraction.

    Args:
        lines: Lines from `summarize` or `results.json`. The level is a prefix of the metric's name, as in
            `LevelChoice`, or the subset, as in the sandbox's evaluation.

    Returns:
        By benchmark and metric with at least two levels: the line of each level, the most specific first and captions
        before all others.
    """
    by_title: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        before, metric = _split_level(line["metric"])
        level = before or _level(line["subset"])
        # An average over subsets has no level of its own.
        if level is not None and not line.get("average"):
            by_title.setdefault(f"{line['benchmark']}: {metric}", {})[level] = line
    return {title: dict(sorted(parts.items(), key=_level_rank)) for title, parts in by_title.items() if len(parts) > 1}


def draw_levels(path: str | Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Draws the accuracy of every model on every level with its 95% interval, and chance as a dotted line."""
    panels = lines_by_level(lines)
    if not panels:
        raise ValueError(
            "lines: none has a level of abstraction, such as the metric 'level 1 image choice of 2' or the subset "
            "'level 1'. Evaluate with `hfcomp levels`, the benchmark magic or a sandbox recipe."
        )
    plots = [_panel(title, parts) for title, parts in panels.items()]
    caption = "Bars: 95% intervals. Dotted: chance."
    return save_figure(Figure(Path(path).name, "Accuracy by level of abstraction", plots, caption), path)


def _panel(title: str, parts: Mapping[str, Mapping[str, Any]]) -> Plot:
    models = list(dict.fromkeys(name for line in parts.values() for name in line["models"]))
    means = {
        name: [(index, line["models"][name]) for index, line in enumerate(parts.values()) if name in line["models"]]
        for name in models
    }
    chance = [(index, line["chance"]) for index, line in enumerate(parts.values())]
    axes = "level of abstraction", "accuracy, percent"
    return Plot(title, axes, means=means, reference=chance, ticks=dict(enumerate(parts)), unit=PERCENT)


def _split_level(metric: str) -> tuple[str | None, str]:
    """Splits a metric's name into its level, if any, and the rest."""
    # Only the metrics of `LevelChoice`, such as 'level 1 image choice of 2', begin with a level.
    before = _LEVEL.match(metric)
    if before is None or not metric[before.end() :].startswith(" image "):
        return None, metric
    return _level(before[0]), metric[before.end() + 1 :]


def _level(name: str) -> str | None:
    """Returns `"2"` for level 2, "captions" for captions, and `None` for any other name."""
    whole = _LEVEL.fullmatch(name)
    return None if whole is None else whole["level"] or CAPTIONS


def _level_rank(part: tuple[str, Any]) -> int:
    return 0 if part[0] == CAPTIONS else int(part[0])
