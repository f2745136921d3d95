"""Lines of results: differences either way round, and a model moved to the last column."""

from __future__ import annotations

import pytest

from hfcomp.reporting.line_values import as_last, difference, edge_of, with_edge
from hfcomp.reporting.lines import models_of, parts_of
from tests.experiments.lines import GROUP, MODELS, average_of, line

LINE = line("swap_att", "group", GROUP["swap_att"])


def test_a_difference_is_found_either_way_round():
    known, reverse = difference(LINE, "Slipform", "plain"), difference(LINE, "plain", "Slipform")
    assert reverse["value"] == -known["value"] and (reverse["low"], reverse["high"]) == (-known["high"], -known["low"])
    assert (reverse["p"], reverse["q"]) == (known["p"], known["q"])


def test_a_difference_of_values_alone_has_no_interval():
    change = difference({**LINE, "differences": {}}, "Slipform", "plain")
    assert change == {"value": pytest.approx(0.94 - 0.218)}
    assert difference(LINE, "Slipform", "another") is None


def test_a_model_is_moved_to_the_last_column_and_nothing_else_changes():
    (moved,) = as_last([LINE], "plain")
    assert models_of([moved]) == [name for name in MODELS if name != "plain"] + ["plain"]
    assert {**moved, "models": None} == {**LINE, "models": None} and moved["models"] == LINE["models"]
    assert models_of([LINE]) == list(MODELS)


@pytest.mark.parametrize(
    ("shares", "changes", "edge"),
    [
        ((0.0, 0.01, 0.186, 0.1, 0.0, 0.05), {}, "floor"),  # chance is 1 in 6
        ((0.0, 0.01, 0.19, 0.1, 0.0, 0.05), {}, ""),
        ((0.02,) * 6, {"chance": None}, "floor"),
        ((0.02, 0.02, 0.03, 0.02, 0.02, 0.02), {"chance": None}, ""),
        ((0.98, 1.0, 0.99, 0.98, 1.0, 1.0), {}, "ceiling"),
        ((0.98, 1.0, 0.97, 0.98, 1.0, 1.0), {}, ""),
        ((0.0,) * 6, {"metric": "kendall tau"}, ""),
        ((0.0,) * 6, {"metric": "brittleness"}, ""),
    ],
)
def test_the_floor_is_two_points_above_chance_and_the_ceiling_at_98(shares, changes, edge):
    assert edge_of({**line("swap_att", "group", shares), **changes}) == edge
    assert with_edge("swap_att", line("swap_att", "group", (0.0,) * 6)) == "swap_att (floor)"


def test_the_parts_of_a_mean_are_the_lines_that_it_is_made_of():
    lines = [line(kind, "group", row) for kind, row in GROUP.items()]
    mean = average_of(lines)
    assert parts_of(mean, lines) == [[entry] for entry in lines]
    pooled = {**mean, "groups": [["swap_att"], ["replace_att", "replace_size"]]}
    assert parts_of(pooled, lines) == [[lines[0]], lines[1:3]]
    keys = [[entry["benchmark"], entry["subset"], entry["metric"]] for entry in lines[:2]]
    assert parts_of({**mean, "lines": keys, "average": False}, lines) == [[entry] for entry in lines[:2]]
    assert parts_of(lines[0], lines) == [[lines[0]]]
