"""A dry run counts what the run would take, says what is wrong before it, and leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hfcomp.experiments import command, dry_run
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.program import run
from hfcomp.experiments.recipes import read_recipe
from hfcomp.trainers.cement import CementTrainer

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = {"dataset_rows": 96, "batch_size": 16, "max_steps": 6, "save_steps": 2, "evaluation_items": 3, "page": "false"}
SMALL |= {"seed": 42}


def words(folder: Path, **changes: object) -> list[str]:
    values = {**SMALL, "output_dir": folder, "disable_tqdm": "true", "controls": "plain", **changes}
    return [word for key, value in values.items() for word in (f"--{key}", str(value))]


@pytest.fixture
def studies(monkeypatch) -> list[DryRun]:
    """The dry runs of a test, as they stand when they print."""
    runs: list[DryRun] = []
    monkeypatch.setattr(DryRun, "_print", lambda study, show=DryRun._print: (runs.append(study), show(study)))
    return runs


def test_it_counts_what_the_run_then_takes(studies, tmp_path, capsys):
    torch.set_num_threads(1)
    given = words(tmp_path / "run", controls="equal-images", max_steps=-1, num_train_epochs=1)
    command.main("slipform", [*given, "--dry_run"])
    assert list(tmp_path.iterdir()) == []
    (study,), printed = studies, capsys.readouterr().out
    assert "Slipform: dry run" in printed and "equal-images" in printed and "About" in printed
    assert not study.folder.exists()
    folder = run(read_recipe("slipform", given))
    stages = {stage["name"]: stage for stage in json.loads((folder / "results.json").read_text())["stages"]}
    assert set(stages) == {"equal-images", "Slipform"}
    for name, stage in stages.items():
        cost = study.costs[name]
        assert (cost.steps, cost.images) == (stage["steps"], stage["images"])
        assert abs(cost.texts - stage["texts"]) <= stage["texts"] / 10  # captions of few rows are repeated
    assert study.scored == 3 * [study.scored[0]]
    whole = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    states = sum(path.stat().st_size for path in folder.rglob("optimizer.pt"))
    # the headers of files of a tiny model, a kilobyte for each tensor, are a tenth of them
    assert study.needed == pytest.approx(whole + states, rel=0.15)


def test_half_precision_is_planned_without_a_gpu(studies, tmp_path, capsys):
    given = words(tmp_path / "run", controls="none", max_steps=2, bf16="true")
    command.main("slipform", [*given, "--dry_run"])
    assert "fp32 on the CPU instead of bf16" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="bf16=True.*no GPU"):
        command.main("slipform", given)


def test_it_counts_the_points_of_the_forgetting_guard(studies, tmp_path):
    given = words(tmp_path / "run", controls="same-batch", max_steps=2)
    command.main("slipform", [*given, "--forgetting_guard", "--dry_run"])
    (study,) = studies
    models = 3  # base, same-batch, Slipform
    assert len(study.scored) == models + 2 * 11 and study.guarded == 2
    weights = {timing.weights for timing in study.timings.values()}
    assert len(weights) == 1 and study.needed >= (models + 2) * weights.pop()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "option", "plan", "runs"),
    [("slipform", "--report", "margins", 3 * 3 * 5), ("clear_glass", "--search", "sandbox_search", 20)],
)
def test_plans_time_each_kind_of_run_once(method, option, plan, runs, studies, tmp_path, monkeypatch):
    timed, time = [], DryRun._time
    monkeypatch.setattr(DryRun, "_time", lambda study, arm: (timed.append(arm.name), time(study, arm))[1])
    given = ["--dataset_rows", "96", "--evaluation_items", "5", "--output_dir", str(tmp_path / "run")]
    own = ["--batch_size", "16"] if method == "slipform" else []  # the batch of a search is its plan's
    command.main(method, [*given, *own, "--disable_tqdm", "true", option, plan, "--dry-run"])
    (study,) = studies
    assert len(study.costs) == runs and len(timed) < runs / 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_checkpoints_of_a_study_of_concepts_are_scored_too(studies, tmp_path):
    given = ["--dataset_rows", "800", "--evaluation_items", "5", "--batch_size", "8", "--disable_tqdm", "true"]
    plan = ["--report", "tradeoff", "--dry_run", "--output_dir", str(tmp_path / "run")]
    command.main("hard_negatives", [*given, *plan])
    (study,) = studies
    assert len(study.scored) > 10 * len(study.costs)


def test_a_batch_that_does_not_fit_names_the_way_out(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CementTrainer, "compute_loss", full)
    with pytest.raises(ValueError, match="batch_size=16 .*cpu.*mini_batch_size"):
        run(read_recipe("slipform", words(tmp_path / "run")), DryRun)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_is_an_error_after_the_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dry_run.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="0.00 GiB .*--output_dir"):
        run(read_recipe("slipform", words(tmp_path / "run")), DryRun)
    assert "Slipform: dry run" in capsys.readouterr().out


def test_what_is_wrong_with_the_data_is_said_as_by_the_run(tmp_path):
    with pytest.raises(ValueError, match="one batch of 128"):
        run(read_recipe("slipform", words(tmp_path / "run", batch_size=128)), DryRun)
