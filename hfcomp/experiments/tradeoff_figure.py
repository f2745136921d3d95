"""Accuracy against retrieval, one panel a concept and one line a run: the form of Rösch et al. 2024, Fig. 4."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hfcomp.evaluation.statistics.summary import BASE
from hfcomp.experiments.plans import TradeoffPlan
from hfcomp.experiments.tradeoff_results import ConceptResults, curve
from hfcomp.writing import replacing

# Okabe and Ito's palette, told apart with any colour vision; shapes differ too.
STYLES = {"plain": ("#56B4E9", "s"), "HN1": ("#D55E00", "o"), "HN2": ("#009E73", "D"), "HN3": ("#CC79A7", "^")}
OTHER_STYLES = (("#E69F00", "P"), ("#0072B2", "X"), ("#000000", "*"))
PANEL = (5.4, 4.4)  # inches


def draw_tradeoff(path: Path, plan: TradeoffPlan, results: dict[str, ConceptResults]) -> bool:
    """Draws every checkpoint; ends of epochs carry their number, the base and the last ones intervals of both shares.

    Without matplotlib (the extra `plots`) nothing is drawn and a line says so.

    Args:
        path: of the PNG, replaced.
        plan: of the study.
        results: of `summarize_tradeoff`.

    Returns:
        Whether there is a figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        path.unlink(missing_ok=True)
        print(f"{path.name} is not drawn: pip install 'hfcomp[plots]'")
        return False
    columns = min(2, len(results))
    rows = math.ceil(len(results) / columns)
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows + 0.5), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (concept, one) in zip(places, results.items(), strict=False):
        _draw_concept(axes, concept, one, plan)
    for axes in places[len(results) :]:
        axes.set_visible(False)
    labels: dict[str, Any] = {}
    for axes in places[: len(results)]:
        labels |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(labels.values(), labels, loc="outside upper center", ncols=len(labels), frameon=False)
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png")
    return True


def _draw_concept(axes: Any, concept: str, results: ConceptResults, plan: TradeoffPlan) -> None:
    for run in plan.runs(concept):
        color, marker = _style(run)
        points = [point for point, _ in curve(results, "accuracy", run)]
        found = results.shares["retrieval"], results.shares["accuracy"]
        across, up = ([100 * shares[point]["value"] for point in points] for shares in found)
        axes.plot(across, up, color=color, linewidth=0.9, alpha=0.5, zorder=2)
        axes.plot(across[1:], up[1:], marker, color=color, markersize=3, zorder=3, label=run)
        for epoch, step in enumerate(results.epochs(), start=1):
            place = next(index for index, point in enumerate(points) if point.step == step)
            share = [shares[points[place]] for shares in found]
            _mark_epoch(axes, epoch, color, marker, *share)
            if step == results.last:
                _bars(axes, color, *share)
    base = [shares[point] for shares in found for point in shares if point.run == BASE]
    _bars(axes, "black", *base)
    axes.plot(100 * base[0]["value"], 100 * base[1]["value"], "o", color="black", markersize=8, zorder=5, label=BASE)
    chance = 100 * results.lines["accuracy"]["chance"]
    low, high = axes.get_ylim()
    if chance > low - 0.5 * (high - low):  # far below it would press the runs together
        axes.axhline(chance, color="black", linestyle="dotted", linewidth=1.1, zorder=1)
    axes.set_title(f"{concept} (chance {chance:.1f})", loc="left", fontsize=11)
    axes.set_xlabel(f"{plan.retrieval.metric}, percent")
    axes.set_ylabel(f"{plan.accuracy.metric} on the concept, percent")
    axes.grid(color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _mark_epoch(axes: Any, epoch: int, color: str, marker: str, across: Any, up: Any) -> None:
    place = 100 * across["value"], 100 * up["value"]
    axes.plot(*place, marker, color=color, markersize=9, markeredgecolor="white", zorder=4)
    axes.annotate(str(epoch), place, color="white", fontsize=6, ha="center", va="center", zorder=6)


def _bars(axes: Any, color: str, across: Any, up: Any) -> None:
    sides = [
        [[100 * max(0.0, share["value"] - share["low"])], [100 * max(0.0, share["high"] - share["value"])]]
        for share in (across, up)
    ]
    place = 100 * across["value"], 100 * up["value"]
    axes.errorbar(*place, xerr=sides[0], yerr=sides[1], fmt="none", ecolor=color, elinewidth=0.9, alpha=0.7, zorder=3)


def _style(run: str) -> tuple[str, str]:
    if run in STYLES:
        return STYLES[run]
    return OTHER_STYLES[int(run.removeprefix("HN")) % len(OTHER_STYLES)]
