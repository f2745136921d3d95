"""The picture of an evaluation: every benchmark with its interval, models side by side, chance marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hfcomp.experiments.comparison import Line, models_of, name_of, number, of_aspect, unit_of
from hfcomp.experiments.evaluation_tables import ASPECTS, foremost, standing
from hfcomp.experiments.figure import SHARES, Panel, Row, draw_panels

# Okabe and Ito's palette, told apart with any colour vision; shapes differ too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX*"
MOST_ROWS = 40


def draw_evaluation(path: Path, lines: Sequence[Line]) -> bool:
    """Points with 95 % intervals, one panel a suite and a row per line that stands for a benchmark.

    Args:
        path: of the PNG, replaced.
        lines: as `hfcomp.evaluation.results` makes them.

    Returns:
        Whether there is a figure; without matplotlib (the extra `plots`) there is none, and a line says so.
    """
    models = models_of(lines)
    styles = {
        name: (COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]) for index, name in enumerate(models)
    }
    panels = []
    for aspect, title in ASPECTS.items():
        chosen = standing(of_aspect(lines, aspect))
        if len(chosen) > MOST_ROWS:
            chosen = foremost(of_aspect(lines, aspect))
        title = title.capitalize() + (
            f" (first {MOST_ROWS} of {len(chosen)} lines)" if len(chosen) > MOST_ROWS else ""
        )
        panels.append(Panel(title, SHARES, [_row(line) for line in chosen[:MOST_ROWS]], models))
    return draw_panels(path, panels, styles)


def _row(line: Line) -> Row:
    """A metric that is no percentage is drawn on the same axis, in hundredths, and says so."""
    hundredths = " (x 100, no share)" if unit_of(line["metric"]).note else ""
    return f"{name_of(line)}{hundredths}", dict(line["models"]), number(line["chance"])
