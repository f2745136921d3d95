"""Accuracy against level: which lines are drawn, in which order, and what the picture says (2 s)."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from hfcomp.analysis.level_figure import draw_levels, lines_by_level
from tests.analysis.figures import texts_of


def line(
    metric: str, subset: str = "all", benchmark: str = "MAGIC levels", chance: float | None = 0.5, **models
) -> dict:
    shares = {name: {"value": share, "low": share - 0.1, "high": share + 0.05} for name, share in models.items()}
    return {"benchmark": benchmark, "subset": subset, "metric": metric, "chance": chance, "models": shares}


LINES = [
    line("level 2 image choice of 2", before=0.6, after=0.7),
    line("level 10 image choice of 2", before=0.5, after=0.5),
    line("caption image choice of 2", before=0.9, after=0.8),
    line("level 1 image choice of 2", before=0.7, after=0.8),
    line("level 1 image retrieval", chance=0.1, before=0.2, after=0.3),
    line("image choice", "level 1", "sandbox levels", before=0.6),
    line("image choice", "level 2", "sandbox levels", before=0.6),
    line("image choice", "levels", "sandbox levels", before=0.6) | {"average": True},
    line("caption choice", "swap_att", "sandbox", before=0.6),
    line("accuracy", before=0.6),
]


def test_levels_are_read_from_metrics_and_subsets_in_order():
    panels = lines_by_level(LINES)
    assert list(panels) == ["MAGIC levels: image choice of 2", "sandbox levels: image choice"]
    assert list(panels["MAGIC levels: image choice of 2"]) == ["captions", "1", "2", "10"]
    assert panels["MAGIC levels: image choice of 2"]["10"] is LINES[1]
    assert list(panels["sandbox levels: image choice"]) == ["1", "2"]


def test_points_intervals_and_chance_are_drawn_in_percent(tmp_path, monkeypatch):
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (drawn.append(figure), save(figure, *a, **k))[1])
    lines = [*LINES[:4], line("level 3 image choice of 2", chance=None, after=0.4)]
    lines[1] = lines[1] | {"models": {"before": {"value": 0.5, "low": None, "high": None}}}
    with Image.open(draw_levels(tmp_path / "new" / "l.png", lines)) as picture:
        assert picture.format == "PNG"
    axes = drawn[0].axes[-1]
    heights = {tuple(np.round(np.float64(curve.get_ydata()), 6)) for curve in axes.lines}
    assert (90, 70, 60, 50) in heights and (80, 80, 70, 40) in heights  # 'after' has no level 10
    bars = [segment for part in axes.collections for segment in part.get_segments()]
    assert [bar[:, 1].round(6).tolist() for bar in bars][:2] == [[80, 95], [60, 75]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["captions", "1", "2", "3", "10"]


def test_each_benchmark_and_metric_is_a_panel_and_every_model_named_once(tmp_path, monkeypatch):
    written = texts_of(monkeypatch)
    draw_levels(tmp_path / "l.png", LINES)
    assert {"MAGIC levels: image choice of 2", "sandbox levels: image choice"} <= set(written)
    for name in ("before", "after"):
        assert written.count(name) == 1
    assert "Bars: 95% intervals. Dotted: chance." in written


def test_without_levels_or_matplotlib_it_says_so(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="lines: .*level"):
        draw_levels(tmp_path / "l.png", LINES[-2:])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="l.png.*matplotlib.*pip install"):
        draw_levels(tmp_path / "l.png", LINES)
