"""Of two processes one fails: the other one ends too, or both go on (about 20 s)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from tests import processes
from tests.evaluation import small_sugarcrepe

TIMEOUT = 240
SCORES = "nothing_of_callback"
GO_ON = ("disk_fills", "no_folder")
END = {"model": 1, "data": 1, "results": 0}
LEAVE_OUT = ("prompts", "image_file", "image", "tokenizer", "items", "look_up", "score")
RECIPES = {
    "primary_of_run": "primary: 'sandbox: grup' is not scored",
    "primary_of_sweep": "primary: 'sandbox: grup' is not scored",
    "measure_of_search": "sandbx",
}
STOP_RUNS = ("base_of_run", "cost_of_run", "outcomes_of_run", "report_of_run")
STOP_TRAINING = {"data_of_callback": 0, "score_of_callback": 0, "file_of_callback": 1, "items_of_callback": 0}


def run(*words: str) -> None:
    """Two processes that nobody but themselves ends: torchrun would end the second one."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    started = processes.launch(2, ["-m", "tests.evaluation.one_fails", *words], env=environment)
    try:
        said = processes.outputs(started, TIMEOUT)
    except subprocess.TimeoutExpired:
        for process in started:
            process.kill()
        said = processes.outputs(started, TIMEOUT)
        last = [[line for line in text.splitlines() if line.startswith("case ")][-1:] for text in said]
        pytest.fail(f"a process waits for one that has failed; they are in {last}")
    assert [process.returncode for process in started] == [0, 0], "\n".join(text[-3000:] for text in said)


@pytest.fixture(scope="module")
def folder(clip, tmp_path_factory) -> Path:
    """Of each case, `<case>-<process>.json` with the error that it ended with, and its files."""
    folder = tmp_path_factory.mktemp("cases")
    data = small_sugarcrepe.write(folder / "data")
    cases = (*GO_ON, *END, *LEAVE_OUT, *STOP_TRAINING, *RECIPES, *STOP_RUNS)
    run(str(clip), str(data), str(folder), "none", *cases, "again", SCORES)
    return folder


def outcomes(folder: Path, case: str) -> list[str]:
    return [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(2)]


def items(folder: Path, case: str) -> pd.DataFrame:
    return pd.read_parquet(folder / case / "out" / "items.parquet")


def test_without_a_fault_both_end_well_before_and_after_all_others(folder):
    assert outcomes(folder, "none") == outcomes(folder, "again") == outcomes(folder, SCORES) == ["", ""]
    pd.testing.assert_frame_equal(items(folder, "none"), items(folder, "again"))


@pytest.mark.parametrize("case", GO_ON)
def test_without_a_cache_that_can_be_written_the_outcomes_are_the_same(folder, case):
    assert outcomes(folder, case) == ["", ""]
    pd.testing.assert_frame_equal(items(folder, case), items(folder, "none"))
    out = folder / case / "out"
    notes = [note for note in json.loads((out / "results.json").read_text())["notes"] if "embedding cache" in note]
    assert len(notes) == 1 and "is not writable" in notes[0] and "not kept" in notes[0]
    assert notes[0] in " ".join((out / "report.md").read_text().split())


@pytest.mark.parametrize(("case", "process"), END.items())
def test_what_stops_one_process_stops_both(folder, case, process):
    messages = outcomes(folder, case)
    assert all(
        message.startswith("SystemExit: error: ") and "No space left on device" in message for message in messages
    )
    assert f"process {process} failed: " in messages[1 - process]


@pytest.mark.parametrize("case", LEAVE_OUT)
def test_a_benchmark_that_fails_in_one_process_is_left_out_in_both(folder, case):
    assert all(
        message.startswith("SystemExit: error: no benchmark could be scored.") for message in outcomes(folder, case)
    )
    assert not (folder / case / "out").exists()


@pytest.mark.parametrize(("case", "process"), STOP_TRAINING.items())
def test_training_stops_in_both_where_one_cannot_score(folder, case, process):
    messages = outcomes(folder, case)
    assert "of this process alone" in messages[process] or "No space left" in messages[process]
    assert messages[1 - process].startswith(f"OtherProcessFailed: process {process} failed: ")


@pytest.mark.parametrize(("case", "message"), RECIPES.items())
def test_what_is_not_scored_stops_both_before_training(folder, case, message):
    if case == "measure_of_search":
        pytest.importorskip("optuna")
    first, second = outcomes(folder, case)
    assert first.startswith("ValueError: ") and message in first
    assert second.startswith("OtherProcessFailed: process 0 failed: ValueError: ") and message in second


@pytest.mark.parametrize("case", STOP_RUNS)
def test_a_run_ends_in_both_where_the_first_cannot_write(folder, case):
    first, second = outcomes(folder, case)
    assert first.startswith("OSError: ") and "No space left on device" in first
    assert second.startswith("OtherProcessFailed: process 0 failed: OSError: ")
