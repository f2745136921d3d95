"""Several seeds in one run: every arm with each seed, means over them, and what a run with one seed has too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from hfcomp.evaluation.compare import compare
from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.experiments import program, workers
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.statistics import summarize
from hfcomp.trainers.stages import read_history
from tests import processes
from tests.figures import no_figures

SMALL = (
    "--dataset_rows 64 --batch_size 8 --max_steps 2 --save_strategy no --logging_steps 1 --evaluation_items 5 "
    "--disable_tqdm true --controls same-batch"
)
SEEDS = [42, 43, 44]
ARMS = ["same-batch", "Slipform"]


def run(folder: Path, *extra: str) -> Path:
    return program.run(read_recipe("slipform", [*SMALL.split(), "--output_dir", str(folder), *extra]))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    with no_figures():
        return run(tmp_path_factory.mktemp("runs") / "slipform", "--seeds", *map(str, SEEDS))


def test_every_arm_is_trained_with_each_seed_on_rows_of_its_own(finished_run):
    for place in ("", "seeds/43/", "seeds/44/"):
        assert {path.name for path in (finished_run / place / "controls").iterdir()} == {*ARMS[:-1]}
        assert (finished_run / place / "method" / "model.safetensors").is_file()
    losses = {
        place: read_history(finished_run / place)[0]["loss"]
        for place in ("method", "seeds/43/method", "seeds/44/method")
    }
    assert len(set(losses.values())) == 3
    with no_figures():
        alone = run(finished_run.with_name("alone"), "--seed", "43", "--page", "false", "--controls", "none")
    assert read_history(alone / "method")[0]["loss"] == losses["seeds/43/method"]
    items = [pd.read_parquet(folder / "items.parquet") for folder in (alone, finished_run)]
    mine = items[1][(items[1]["seed"] == 43) & (items[1]["arm"] == "Slipform")]
    assert (mine["value"].to_numpy() == items[0][items[0]["arm"] == "Slipform"]["value"].to_numpy()).all()


def test_values_are_means_over_seeds_and_differences_are_over_seeds_and_images(finished_run):
    results, items = (
        json.loads((finished_run / "results.json").read_text()),
        pd.read_parquet(finished_run / "items.parquet"),
    )
    (primary,) = [line for line in results["results"] if line.get("primary")]
    assert list(primary["models"]) == ["base", *ARMS]
    cell = primary["models"]["Slipform"]
    assert len(cell["seeds"]) == 3 and cell["value"] == pytest.approx(sum(cell["seeds"]) / 3)
    assert (cell["lowest"], cell["highest"]) == (min(cell["seeds"]), max(cell["seeds"]))
    assert "low" in primary["models"]["base"] and "seeds" not in primary["models"]["base"]
    change = primary["differences"]["Slipform"]["same-batch"]
    own = items[(items["benchmark"] == "sandbox") & (items["metric"] == "group") & (items["subset"] == "swap_att")]
    line = next(entry for entry in results["results"] if (entry["subset"], entry["metric"]) == ("swap_att", "group"))
    (again,) = summarize(own, references=["same-batch"])
    assert again["models"]["Slipform"]["seeds"] == line["models"]["Slipform"]["seeds"]
    assert change["seeds"] == 3 and change["p_holm"] == change["p"]


def test_the_report_has_the_range_the_caveat_and_a_row_for_each_run(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    for name in ("report.md", "README.md"):
        text = (finished_run / name).read_text()
        assert "3 seeds: the lowest and the highest" in text, name
        assert "Intervals (95%) and p cover other images and other seeds" in text, name
        assert text.count("| same-batch | 2 |") == 1, name
    assert "from seed 42" in " ".join(results["notes"])
    assert list(results["models"]) == ["base", *ARMS]
    assert set(results["further_models"]) == {f"{seed}/{name}" for seed in (43, 44) for name in ARMS}
    card = (finished_run / "README.md").read_text()
    assert "One training run" not in card and "42, 43, 44" in card
    assert (finished_run / "report.html").is_file() and (finished_run / "method/README.md").is_file()


def test_what_reads_the_folder_of_a_run_reads_one_with_several_seeds(finished_run):
    read = EvaluationResults.load(finished_run)
    assert list(read.models) == ["base", *ARMS]
    assert "means over seeds" in " ".join(str(read).split())


def test_seeds_are_compared_with_stored_models(finished_run):
    compared = compare([f"{finished_run}:same-batch", f"{finished_run}:Slipform", f"{finished_run}:base"])
    line = next(entry for entry in compared.lines if entry["subset"] == "average" and entry["metric"] == "group")
    results = json.loads((finished_run / "results.json").read_text())
    (primary,) = [entry for entry in results["results"] if entry.get("primary")]
    known = primary["differences"]["Slipform"]["same-batch"]
    assert line["differences"]["Slipform"]["same-batch"]["value"] == pytest.approx(known["value"])
    assert line["differences"]["Slipform"]["same-batch"]["seeds"] == 3


def test_a_run_with_several_seeds_resumes(finished_run):
    before = {path: path.stat().st_mtime_ns for path in finished_run.rglob("model.safetensors")}
    kept = (finished_run / "results.json").read_text()
    (finished_run / "finished").unlink()
    (finished_run / "results.json").unlink()
    with no_figures():
        assert run(finished_run, "--seeds", *map(str, SEEDS)) == finished_run
    assert {path: path.stat().st_mtime_ns for path in finished_run.rglob("model.safetensors")} == before
    first, second = (json.loads(text) for text in (kept, (finished_run / "results.json").read_text()))
    assert first["results"] == second["results"]


def test_one_seed_in_a_list_is_a_run_with_one_seed():
    recipe = read_recipe("slipform", ["--seeds", "7"])
    assert (recipe.seed, recipe.seeds) == (7, [7])
    assert recipe.with_seed(7).trainer_arguments == recipe.trainer_arguments


@pytest.fixture
def three(tmp_path) -> str:
    """A recipe with seeds of its own."""
    path = tmp_path / "three.yaml"
    values = yaml.safe_load((Path(program.__file__).parents[2] / "recipes/slipform/sandbox.yaml").read_text())
    path.write_text(yaml.safe_dump({**values, "seeds": SEEDS}))
    return str(path)


def test_a_seed_on_the_command_line_replaces_the_seeds_of_the_recipe(three):
    assert read_recipe("slipform", ["--config", three]).seeds == SEEDS
    recipe = read_recipe("slipform", ["--config", three, "--seed", "7"])
    assert recipe.seeds == [7] and "seeds" not in recipe.given


@pytest.mark.parametrize(
    ("words", "fault"),
    [(["--seeds", "42", "43"], "seeds, 42 and 43"), (["--seeds", "1", "2", "1"], "1 is listed twice")],
)
def test_seeds_that_make_no_report_are_a_mistake(words, fault):
    with pytest.raises(ValueError, match=fault):
        read_recipe("slipform", words)


@pytest.fixture
def quick_workers(monkeypatch) -> None:
    """Has arms trained by processes that begin with the libraries loaded."""
    processes.forkserver()
    monkeypatch.setattr(workers, "START_METHOD", "forkserver")


@pytest.mark.slow
def test_arms_that_train_at_the_same_time_are_the_same_models(finished_run, tmp_path, quick_workers):
    """Equal-images of a seed waits for what its method cost."""
    words = ["--seeds", *map(str, SEEDS), "--arms_at_once", "2", "--page", "false"]
    with no_figures():
        folder = run(tmp_path / "run", *words, "--controls", "same-batch", "equal-images")
    # Means of one arm are summed in another order beside a further arm: equal to the last bits of float64.
    texts = ((place / "results.json").read_text() for place in (finished_run, folder))
    first, second = (json.loads(text, parse_float=lambda digits: round(float(digits), 12)) for text in texts)
    assert list(second["models"]) == ["base", "same-batch", "equal-images", "Slipform"]
    assert [stage["name"] for stage in second["stages"][:3]] == ["same-batch", "43/same-batch", "44/same-batch"]
    assert len(second["stages"]) == 9
    for line, other_line in zip(first["results"], second["results"], strict=True):
        assert line["models"] == {name: cell for name, cell in other_line["models"].items() if name != "equal-images"}


@pytest.mark.follows("hfcomp/experiments/recipes.py", "Leave one of the two out.")
def test_seed_and_seeds_are_one_field_too_many():
    with pytest.raises(ValueError, match=r"seed=7 and seeds=\[1, 2, 3\]"):
        read_recipe("slipform", ["--seeds", "1", "2", "3", "--seed", "7"])
    assert read_recipe("slipform", ["--seeds", "1", "2", "3"]).seeds == [1, 2, 3]
    assert read_recipe("slipform", ["--seed", "7"]).seeds == [7]


@pytest.mark.follows("hfcomp/experiments/experiment_config.py", "Pass --seed {self.seeds[0]}.")
def test_the_forgetting_guard_is_for_one_seed(three):
    words = ["--config", three, "--forgetting_guard"]
    with pytest.raises(ValueError, match=r"one seed, .*seeds=\[42, 43, 44\].*--seed 42"):
        read_recipe("slipform", words)
    assert read_recipe("slipform", [*words, "--seed", "42"]).experiment.forgetting_guard


@pytest.mark.follows("hfcomp/experiments/studies/plan_files.py", "which has one seed. Leave --seeds out.")
def test_a_sweep_has_seeds_of_its_own_which_only_the_command_line_replaces(three):
    words = ["--config", three, "--report", "margins"]
    assert {key[1] for key in read_plan("slipform", [*words, "--seeds", "7"]).parts} == {7}
    with pytest.raises(ValueError, match="seeds: found two seeds, 1 and 2"):
        read_plan("slipform", [*words, "--seeds", "1", "2"])
    with pytest.raises(ValueError, match="command line: --seeds has no effect on .*tradeoff.yaml"):
        read_plan("hard_negatives", ["--report", "tradeoff", "--seeds", "7"])
    assert read_plan("hard_negatives", ["--report", "tradeoff"])
    sweep = read_plan("slipform", words)
    assert "seeds" not in sweep.recipe.given
    assert {(part.seed, part.experiment.seeds) for part in sweep.parts.values()} == {
        (42, None),
        (43, None),
        (44, None),
    }


@pytest.mark.slow
@pytest.mark.follows("hfcomp/experiments/workers.py", "Pass --arms_at_once 1 to train the others one after the other.")
def test_a_worker_that_dies_ends_the_run_which_resumes(tmp_path, quick_workers, monkeypatch):
    monkeypatch.setattr(workers, "_train", _die)
    with no_figures(), pytest.raises(ChildProcessError, match="ended unexpectedly"):
        run(tmp_path / "run", "--arms_at_once", "2", "--page", "false")
    monkeypatch.undo()
    with no_figures():
        assert run(tmp_path / "run", "--arms_at_once", "1", "--page", "false") == tmp_path / "run"


@pytest.mark.slow
def test_what_a_worker_raises_is_raised_and_ends_the_others(tmp_path, quick_workers, monkeypatch):
    monkeypatch.setattr(workers, "_train", _fail)
    with no_figures(), pytest.raises(ValueError, match="of plain|of same-batch"):
        run(tmp_path / "run", "--arms_at_once", "2")


def _die(*arguments: Any) -> None:
    os._exit(9)


def _fail(folder: Path, arm: Any, *rest: Any) -> None:
    raise ValueError(f"a mistake of {arm.name}")
