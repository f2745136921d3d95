"""Lines of results: differences either way round, and a model moved to the last column."""

from __future__ import annotations

import pytest

from hfcomp.reporting.lines import as_last, difference, models_of
from tests.experiments.lines import GROUP, MODELS, line

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
