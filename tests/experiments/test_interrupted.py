"""A run that is killed anywhere: the same command again finishes it, repeats nothing and gives the same numbers."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
import torch
import yaml
from accelerate import PartialState
from filelock import FileLock
from safetensors.torch import load_file, save_file

from hfcomp import run_folders
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.experiments import program, study
from hfcomp.experiments.arm import Scoring
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.study import Study, evaluation_settings
from hfcomp.reporting import saving
from hfcomp.run_folders import CONFIG_FILE, FINISHED_FILE, run_folder
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.stages import HISTORY_FILE, last_checkpoint
from hfcomp.writing import LOCK_FILE
from tests import processes, tiny

pytestmark = pytest.mark.usefixtures("without_figures")

FIELDS = (
    "--batch_size 8 --max_steps 4 --save_steps 2 --logging_steps 3 --evaluation own "
    "--controls plain --disable_tqdm true --page false --seed 42"
)
MODELS = ("base", "plain", "Slipform")


def run_recipe(folder: str | Path, rows: str | Path) -> Path:
    return program.run(read_recipe("slipform", [*FIELDS.split(), "--dataset", str(rows), "--output_dir", str(folder)]))


def run_and_kill(folder: str, rows: str, place: str, log: str) -> None:
    """Runs the recipe in this process, which kills itself with SIGKILL at a place; an empty one lets it finish."""
    torch.set_num_threads(1)
    done = []

    def kill_before(owner: Any, name: str, here: Callable[..., bool]) -> None:
        original = getattr(owner, name)

        def patched(*arguments: Any, **keywords: Any) -> Any:
            if here(*arguments):
                Path(log).write_text(json.dumps(done))
                os.kill(os.getpid(), signal.SIGKILL)
            done.append((name, str(getattr(getattr(arguments[0], "args", None), "output_dir", arguments[-1]))))
            return original(*arguments, **keywords)

        setattr(owner, name, patched)

    stage = {"control": "plain", "method": "method"}.get(place)
    # the whole copy of the base is there, but not yet in its place
    kill_before(os, "rename", lambda source, target: place == "base" and Path(target).name == "base")
    kill_before(
        CompositionalTrainer,
        "training_step",
        lambda self, *_: Path(self.args.output_dir).name == stage and self.state.global_step == 3,
    )
    kill_before(study, "Embedder", lambda model, **_: place == "evaluation" and Path(model).name == "plain")
    kill_before(saving, "save_report", lambda *_: place == "report")
    run_recipe(folder, rows)
    Path(log).write_text(json.dumps(done))


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    datasets.DatasetDict({"train": tiny.pairs(16), "test": tiny.pairs(8)}).save_to_disk(folder)
    return folder


@pytest.fixture(scope="module")
def child(rows):
    """Runs `run_and_kill` in a process of its own; the heavy imports are paid once."""
    context = processes.forkserver()

    def run(folder: Path, place: str) -> tuple[int, list[tuple[str, str]]]:
        log = folder.with_name(f"{folder.name}-{place or 'end'}.json")
        process = context.Process(target=run_and_kill, args=(str(folder), str(rows), place, str(log)))
        process.start()
        process.join(120)
        return process.exitcode, [tuple(entry) for entry in json.loads(log.read_text())]

    return run


@pytest.fixture(scope="module")
def whole(rows, tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return run_recipe(tmp_path_factory.mktemp("runs") / "whole", rows)


def steps(done: list[tuple[str, str]], stage: str) -> int:
    return sum(name == "training_step" and Path(where).name == stage for name, where in done)


@pytest.mark.slow
def test_a_run_killed_in_every_part_is_finished_by_the_same_command(child, whole, tmp_path):
    folder = tmp_path / "killed"
    done = {}
    for place in ("base", "control", "method", "evaluation", "report"):
        code, done[place] = child(folder, place)
        assert code == -signal.SIGKILL, place
        assert not (folder / FINISHED_FILE).exists()
    code, done["end"] = child(folder, "")
    assert code == 0 and (folder / FINISHED_FILE).exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["killed"]
    # killed before the fourth step the control and the method go on from the checkpoint at step 2
    counted = {place: (steps(part, "plain"), steps(part, "method")) for place, part in done.items()}
    assert counted == {
        "base": (0, 0),
        "control": (3, 0),
        "method": (2, 3),
        "evaluation": (0, 2),
        "report": (0, 0),
        "end": (0, 0),
    }
    evaluated = {place: sum(name == "Embedder" for name, _ in part) for place, part in done.items()}
    assert evaluated == {"base": 0, "control": 0, "method": 0, "evaluation": 1, "report": 2, "end": 0}
    assert_same_numbers(folder, whole)
    history = json.loads((folder / "method" / HISTORY_FILE).read_text())
    clock = [line["elapsed_seconds"] for line in history]
    assert clock == sorted(clock) and clock[0] > 0  # a resumed stage's seconds are of all its steps
    assert json.loads((folder / "method" / "stage.json").read_text())["seconds"] == clock[-1]


def assert_same_numbers(folder: Path, other: Path) -> None:
    first, second = (json.loads((path / "results.json").read_text()) for path in (folder, other))
    assert [line["models"] for line in first["results"]] == [line["models"] for line in second["results"]]
    weights = [{name: facts["weights"] for name, facts in each["models"].items()} for each in (first, second)]
    assert weights[0] == weights[1] and list(weights[0]) == list(MODELS)
    assert first["notes"] == second["notes"]
    for key in ("name", "steps", "images", "texts", "loss"):
        assert [stage[key] for stage in first["stages"]] == [stage[key] for stage in second["stages"]], key
    pd.testing.assert_frame_equal(*(pd.read_parquet(path / "items.parquet") for path in (folder, other)))


def test_a_run_leaves_checkpoints_that_can_be_continued(whole):
    assert last_checkpoint(whole / "method") == str(whole / "method" / "checkpoint-4")
    names = {path.name for path in (whole / "method" / "checkpoint-4").iterdir()}
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json"} <= names


GIVEN = {"max_steps": 4, "seed": 1, "logging_steps": 3}


def write_unfinished(folder: Path, **values: object) -> Path:
    folder.mkdir()
    (folder / CONFIG_FILE).write_text(yaml.safe_dump({**GIVEN, "output_dir": str(folder), **values}))
    return folder


def write_finished(folder: Path, **values: object) -> Path:
    (write_unfinished(folder, **values) / FINISHED_FILE).touch()
    return folder


def choose_folder(wanted: Path, **values: object) -> tuple[Path, list[str]]:
    lines, given = [], {**GIVEN, **values}
    how = {"may_change": study.may_change_on_resume, "wants_more": lambda path: False}
    with run_folder(wanted, given, lines.append, **how) as folder:
        assert given["output_dir"] == str(folder)
        assert yaml.safe_load((folder / CONFIG_FILE).read_text()) == given
    return folder, lines


def test_a_new_run_takes_the_folder_it_asks_for(tmp_path):
    assert choose_folder(tmp_path / "deep" / "run") == (tmp_path / "deep" / "run", [])


def test_an_unfinished_run_goes_on_wherever_its_folder_is(tmp_path):
    write_finished(tmp_path / "run")
    second = write_unfinished(tmp_path / "run-2")
    assert choose_folder(tmp_path / "run") == (second, [f"resuming the unfinished run in {second}"])


def test_what_changes_no_weight_may_differ(tmp_path):
    folder = write_unfinished(tmp_path / "run")
    changes = {"logging_steps": 1, "evaluation_items": 9, "mini_batch_size": 2, "dataloader_num_workers": 1}
    assert choose_folder(folder, **changes)[0] == folder


def test_a_finished_run_is_left_alone(tmp_path):
    before = (write_finished(tmp_path / "run") / CONFIG_FILE).stat().st_mtime_ns
    assert choose_folder(tmp_path / "run") == (tmp_path / "run-2", [])
    assert (tmp_path / "run" / CONFIG_FILE).stat().st_mtime_ns == before


def test_a_finished_run_that_wants_more_goes_on_and_is_unfinished_till_its_end(tmp_path):
    lines, folder = [], write_finished(tmp_path / "run")
    how = {"may_change": study.may_change_on_resume, "wants_more": lambda path: path == folder}
    with run_folder(folder, dict(GIVEN), lines.append, **how) as taken:
        assert taken == folder and not (folder / FINISHED_FILE).exists()
    assert lines == [f"resuming the finished run in {folder}"]


@pytest.mark.parametrize("change", ["max_steps: 4 -> 5", "seed: 1 -> 2", "dataloader_drop_last: None -> False"])
def test_an_unfinished_run_of_other_values_is_left_alone_and_logged(tmp_path, change):
    folder = write_unfinished(tmp_path / "run")
    name, _, value = change.partition(": ")
    taken, lines = choose_folder(folder, **{name: yaml.safe_load(value.rpartition(" ")[2].lower())})
    assert taken == tmp_path / "run-2"
    assert lines == [f"{folder} holds an unfinished run with other values ({change}); leaving it untouched"]


def test_a_run_that_is_going_on_is_left_alone_and_logged(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folders, "PATIENCE", 0.1)
    folder = write_unfinished(tmp_path / "run")
    with FileLock(folder / LOCK_FILE):
        taken, lines = choose_folder(folder)
    assert taken == tmp_path / "run-2"
    assert lines[-1] == f"{folder} is in use by another process; leaving it untouched"
    assert choose_folder(folder)[0] == folder


def test_the_folder_is_held_until_the_run_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folders, "PATIENCE", 0.1)
    with run_folder(
        tmp_path / "run", dict(GIVEN), print, may_change=study.may_change_on_resume, wants_more=lambda path: False
    ) as first:
        assert choose_folder(tmp_path / "run")[0] == tmp_path / "run-2" != first


def test_stored_outcomes_are_of_the_same_weights_and_the_same_evaluation(clip, tmp_path):
    shutil.copytree(clip, tmp_path / "model")
    recipe = read_recipe("slipform", ["--evaluation_items", "4"])
    session, evaluated = Session(PartialState(cpu=True)), []

    def evaluate(embedder: Embedder) -> pd.DataFrame:
        evaluated.append(embedder)
        session.log("2 texts were cut")
        return pd.DataFrame({"item": ["a", "b"], "value": [0.0, 1.0]})

    def items() -> pd.DataFrame:
        scoring = Scoring(evaluate, evaluation_settings(recipe.experiment, recipe.column_names))
        return Study(recipe.experiment, session, scoring, tmp_path, {}).score(
            tmp_path / "model", scoring, "some/model"
        )

    first = items()
    session.notes.clear()
    pd.testing.assert_frame_equal(items(), first)
    assert len(evaluated) == 1 and session.notes == ["2 texts were cut"]
    recipe = read_recipe("slipform", ["--evaluation_items", "5"])
    items()
    assert len(evaluated) == 2
    weights = load_file(tmp_path / "model" / "model.safetensors")
    weights["logit_scale"] = weights["logit_scale"] + 1
    save_file(weights, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    items()
    assert len(evaluated) == 3
    assert not list(tmp_path.rglob("*.part"))
