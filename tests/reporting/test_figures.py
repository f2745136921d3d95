"""Figures: what is drawn says what it is, and names and numbers of any kind can be drawn."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Canvas
from PIL import Image

from hfcomp.experiments.experiment_config import STYLES
from hfcomp.reporting import figures
from hfcomp.reporting.figures import Curves, Figure, Paths, Points, Stop, draw, styles_of
from hfcomp.reporting.plots import DOTS, Plot
from hfcomp.reporting.report import figure_title
from hfcomp.reporting.tables import figure_of_lines
from tests.experiments.lines import MODELS, all_lines, without

ODD = "$x_{1$ <b>\n|a model"


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def texts(monkeypatch: pytest.MonkeyPatch, figure: Figure) -> tuple[list[str], Canvas]:
    """All texts of a figure that was drawn."""
    drawn: list[Any] = []
    original = Canvas.savefig
    monkeypatch.setattr(
        Canvas, "savefig", lambda self, *rest, **how: drawn.append(self) or original(self, *rest, **how)
    )
    content = draw(figure)
    with Image.open(io.BytesIO(content)) as picture:
        assert picture.format == "PNG"
    (canvas,) = drawn
    labels = [element.get_text() for element in canvas.findobj(lambda artist: hasattr(artist, "get_text"))]
    return labels, canvas


def test_a_run_s_figure_names_method_data_counts_and_what_is_synthetic(monkeypatch):
    title = figure_title("Slipform: composition", "Synthetic: a drawn world.")
    figure = figure_of_lines("figure.png", title, all_lines(), reference="base", main="Slipform")
    labels, canvas = texts(monkeypatch, figure)
    text = " ".join(" ".join(labels).split())
    assert "Slipform: composition (synthetic)" in text and "400 items from 400 images" in text
    assert "500 items from 500 images" in text and all(name in labels for name in MODELS)
    assert "dotted: chance" in text and "left of 0: forgotten" in text
    assert figure_title("Slipform", "One seed.") == "Slipform"
    dotted = [
        collection
        for axes in canvas.axes
        for collection in axes.collections
        if collection.get_linestyle()[0][1] is not None
    ]
    assert dotted


def test_the_lead_is_as_wide_as_the_figure_and_has_a_note_beside_each_row(monkeypatch):
    rows = [
        ("gain: a minus b", {"Slipform": estimate(0.1)}, None),
        ("cost: b minus base", {"plain": estimate(0)}, None),
    ]
    lead = Points("Gain and cost", "points", rows, ["Slipform", "plain"], differences=True, notes=["+10.0", "none"])
    figure = figure_of_lines("figure.png", "t", all_lines(), reference="base", main="Slipform", lead=lead)
    labels, canvas = texts(monkeypatch, figure)
    assert {"gain: a minus b", "+10.0", "none", "Gain and cost"} <= {*labels}
    first, *others = [axes for axes in canvas.axes if axes.axison]
    assert first.get_title(loc="left") == "Gain and cost" and len(others) == 2
    assert first.get_position().width > 1.2 * max(axes.get_position().width for axes in others)
    # the only point of a row is in its middle
    assert [y for line in first.lines if line.get_marker() != "None" for y in line.get_ydata()] == [0, 1]


def test_over_seeds_the_whiskers_are_the_lowest_and_the_highest(monkeypatch):
    row = ("r", {"a": {"value": 0.5, "lowest": 0.4, "highest": 0.7}}, None)
    _, canvas = texts(monkeypatch, Figure("f.png", "t", [Points("p", "x", [row], ["a"])]))
    (axes,) = [axes for axes in canvas.axes if axes.containers]
    (bar,) = axes.containers[0].lines[2]
    assert bar.get_segments()[0][:, 0] == pytest.approx([40, 70])


def test_lines_at_floor_and_ceiling_are_marked_beside_the_parts_of_the_endpoint():
    figure = figure_of_lines("figure.png", "t", all_lines(), reference="base", main="Slipform")
    labels = [label for label, _, _ in figure.nonempty_panels()[0].rows]
    assert "swap_obj group (floor)" in labels and "swap_att group" in labels


def test_a_figure_of_one_model_has_values_alone():
    figure = figure_of_lines("figure.png", "t", without(all_lines(), *MODELS[1:]))
    assert [panel.differences for panel in figure.nonempty_panels()] == [False, False]


@pytest.mark.parametrize(
    "panel",
    [
        Points(
            ODD, ODD, [(ODD, {ODD: estimate(0.5), "b": None}, None), ("r", {ODD: {"value": 0.1}}, 0.5)], [ODD, "b"]
        ),
        Curves(ODD, (ODD, ODD), {ODD: [(0, estimate(0.5)), (5, estimate(0.6))]}),
        Paths(ODD, (ODD, ODD), {ODD: [Stop(estimate(0.3), estimate(0.4), "1", bars=True)]}, 0.1),
        Plot(
            ODD,
            (ODD, ODD),
            densities={ODD: np.arange(4.0)},
            means={"b": [(1, {"value": 0.5, "low": None, "high": None})]},
            curves={ODD: (np.arange(2.0), np.arange(2.0))},
            reference=[(1, 0.5), (2, None)],
            ticks={1: ODD},
        ),
    ],
    ids=["points", "curves", "paths", "plot"],
)
def test_any_name_is_drawn_as_it_is(monkeypatch, panel):
    labels, _ = texts(monkeypatch, Figure("f.png", ODD, [panel], caption=ODD))
    assert any("$x_{1$ <b> |a model" in text for text in labels)


def test_paths_mark_epochs_and_draw_chance_where_it_is_near(monkeypatch):
    stops = [Stop(estimate(0.3), estimate(0.4)), Stop(estimate(0.5), estimate(0.6), "1", bars=True)]
    for chance, lines in ((0.35, 1), (0.0, 0)):
        panel = Paths("color", ("recall", "accuracy"), {"plain": stops, "base": stops[:1]}, chance)
        labels, canvas = texts(monkeypatch, Figure("f.png", "t", [panel]))
        assert "1" in labels
        dotted = [line for axes in canvas.axes for line in axes.lines if line.get_linestyle() == ":"]
        assert len(dotted) == lines


def test_plots_are_three_in_a_line_and_show_intervals_and_few_dots(monkeypatch):
    many = np.arange(2.0 * DOTS)
    panels = [Plot(name, ("x", "y"), dots={"a": (many, many)}, means={"a": [(1, estimate(0.5))]}) for name in "pqrs"]
    empty = Plot("empty", ("x", "y"), dots={"a": (many[:0], many[:0])})
    _, canvas = texts(monkeypatch, Figure("f.png", "t", [*panels, empty]))
    shown = [axes for axes in canvas.axes[3:] if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [*"pqrs"]
    assert len({round(axes.get_position().y0, 2) for axes in shown}) == 2, "three and one"
    dots, bars = shown[0].collections
    assert len(dots.get_offsets()) == DOTS and bars.get_segments()[0][:, 1] == pytest.approx([0.4, 0.6])


def test_models_look_the_same_in_every_figure_and_never_alike():
    many = [f"model {index}" for index in range(20)]
    styles = styles_of([*MODELS, *many], "Slipform", STYLES)
    assert len(set(styles.values())) == len(styles)
    assert styles_of(["base", "plain"], known=STYLES) == {name: styles[name] for name in ("base", "plain")}
    assert styles["Slipform"][0] == figures.PALETTE[0]


def test_without_matplotlib_the_error_is_one_that_callers_can_tell(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ImportError):
        draw(Figure("f.png", "t", [Points("p", "a", [("r", {"a": estimate(0.5)}, None)], ["a"])]))
