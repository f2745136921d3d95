"""The record of a run: what is filled comes back, and the places of its models."""

from __future__ import annotations

import json

import pytest

from hfcomp.reporting.run_record import RunRecord, guarded_name
from hfcomp.statistics.results import write_results
from tests.experiments.lines import all_lines, facts

GUARD = {"items": "scenes", "models": {guarded_name("Slipform"): {"alpha": 0.5}}}


def test_what_is_filled_comes_back_and_what_is_not_known_is_left_out(tmp_path):
    record = RunRecord(**facts(general_average=None, guard=GUARD, skipped=[]), results=all_lines())
    write_results(tmp_path / "results.json", record.contents())
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["general_average"] is None and written["skipped"] == [] and "command" not in written
    loaded_record = RunRecord.read(tmp_path)
    assert {**loaded_record.contents(), "versions": None} == {**record.contents(), "versions": None}
    assert loaded_record.guarded_points == {"Slipform guarded": {"alpha": 0.5, "on": "scenes"}}
    with pytest.raises(TypeError, match="typo"):
        RunRecord(**facts(), results=[], typo=1)


def test_places_of_models():
    record = RunRecord.of({**facts(), "results": []})
    names = ("Slipform", "plain", "Slipform guarded", "same-batch guarded")
    places = ["method", "controls/plain", "method-guarded", "controls/same-batch-guarded"]
    assert [record.model_folder(name) for name in names] == places
