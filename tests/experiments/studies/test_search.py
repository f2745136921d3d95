"""Searches: what the file may say, what is judged, and whole ones that fail, are stopped and go on (about 11 s)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
import yaml

from hfcomp.experiments.arm import Arm
from hfcomp.experiments.command import main
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipe_files import find_plan, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies import search as search_module
from hfcomp.experiments.studies import search_report
from hfcomp.experiments.studies.plan_files import Search, read_plan
from hfcomp.experiments.studies.plans import Choices, Interval, Range
from hfcomp.experiments.studies.search import MAX_FIRST_FAILURES, run_search
from hfcomp.experiments.studies.search_report import Trial
from hfcomp.schemas import parse
from hfcomp.trainers.cement import CementTrainer
from tests import tiny

pytest.importorskip("optuna", reason="searches need Optuna: pip install 'hfcomp[search]'")

VALUES = {
    "maximize": "own: *recall@1",
    "trials": 3,
    "ranges": {
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "margin": {"choices": ["none", "static"]},
        "warmup_steps": {"low": 1, "high": 3, "int": True},
    },
}
SHIPPED = [path for path in sorted(recipes_folder().glob("*/*.yaml")) if "ranges" in yaml.safe_load(path.read_text())]


def write_search(folder: Path, **changes: Any) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**VALUES, **changes}, sort_keys=False))
    return str(path)


# The file


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        ({"low": "1e-10", "high": 1e-4, "log": True}, [1e-10, 1e-4]),  # YAML reads 1e-10 as text
        ({"low": 2, "high": 10, "int": True}, [2, 10]),
        ({"choices": ["a", 1, None]}, ["a", 1, None]),
    ],
)
def test_a_range(value, ends):
    space = parse(Range, value, "here")
    assert repr(space.ends()) == repr(ends)
    assert ("log" in str(space), "whole" in str(space)) == ("log" in value, "int" in value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "here: found 3, expected a mapping"),
        ({"low": 1}, "here: high is missing. Expected a number, as in {low: 1e-5, high: 1e-2}"),
        ({}, "here: low is missing. Expected a number, as in {low: 1e-5, high: 1e-2}"),
        ({"low": 1, "high": 2, "logg": True}, "here: unknown key 'logg'. Did you mean 'log'?"),
        ({"low": 1, "high": "x"}, "here: high: found 'x', expected a number"),
        ({"low": 1, "high": math.inf}, "here: high: found inf, expected a finite number"),
        ({"low": 2, "high": 2}, "here: low 2 is not below high 2"),
        ({"low": 0, "high": 2, "log": True}, "here: low 0: a logarithmic range"),
        ({"low": 1, "high": 2, "log": 1}, "here: log: found 1, expected true or false"),
        ({"low": 1.5, "high": 2, "int": True}, "here: found 1.5 to 2, expected whole numbers"),
        ({"choices": ["a"]}, "here: choices: found ['a'], expected at least 2 of them"),
        ({"choices": ["a", "b"], "low": 1}, "here: unknown key 'low'. Known: choices."),
        ({"choices": [["a"], ["b"]]}, "here: choices: entry 1: found ['a'], expected a name"),
        ({"choices": ["a", "a"]}, "here: choices: 'a' is listed twice"),
    ],
)
def test_a_wrong_range_is_refused(value, message):
    with pytest.raises(ValueError) as caught:
        parse(Range, value, "here")
    assert message in str(caught.value)


def test_what_a_range_holds():
    whole, numbers, choices = Interval(low=2, high=4, whole=True), Interval(low=2, high=4), Choices(choices=[1, "a"])
    assert 3.0 in whole and 3.5 not in whole
    assert 2 in numbers and 4.1 not in numbers and "3" not in numbers and None not in numbers
    assert 1 in choices and True not in choices


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trails": 3}, "unknown key 'trails'. Did you mean 'trials'?"),
        ({"minimize": "mean"}, "exactly one of maximize: MEASURE and minimize: MEASURE"),
        ({"maximize": ["mean"]}, "mine.yaml: maximize: found ['mean'], expected a string"),
        ({"trials": 0}, "mine.yaml: trials: found 0, expected more than 0"),
        ({"seed": "x"}, "mine.yaml: seed: found 'x', expected a whole number"),
        ({"ranges": {}}, "ranges: found {}, expected at least 1 of them"),
        ({"ranges": ["learning_rate"]}, "ranges: found ['learning_rate'], expected a mapping"),
        (
            {"ranges": {"learning_rat": {"low": 1, "high": 2}}},
            "ranges: unknown field 'learning_rat'. Did you mean 'learning_rate'?",
        ),
        ({"ranges": {"seed": {"low": 1, "high": 2, "int": True}}}, "the best of several seeds is luck"),
        ({"ranges": {"edit_noise": {"low": 0, "high": 1}}}, "edit_noise must be the same for all trials"),
        ({"products": {"batch_size": ["warmup_step"]}}, "unknown field 'warmup_step'. Did you mean 'warmup_steps'?"),
        ({"products": {"batch_size": ["warmup_steps", "hub_model_id"]}}, "hub_model_id is None, expected a number"),
        ({"products": {"batch_size": []}}, "products: batch_size: found [], expected at least 1 of them"),
        ({"products": {"margin": ["warmup_steps"]}}, "products: margin also has a range"),
        ({"only_in_search": {"margin": "none"}}, "only_in_search: margin is also searched"),
        ({"only_in_search": {"output_dir": "x"}}, "only_in_search: output_dir belongs to the recipe"),
        ({"only_in_search": {"max_step": 3}}, "only_in_search: unknown field 'max_step'. Did you mean 'max_steps'?"),
    ],
)
def test_a_wrong_search_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError) as caught:
        read_plan("slipform", ["--search", write_search(tmp_path, **changes)])
    assert message in str(caught.value)


def test_an_end_that_the_trainer_refuses_takes_no_folder(tmp_path):
    search = read_plan(
        "slipform", ["--search", write_search(tmp_path, ranges={"margin": {"choices": ["none", "odd"]}})]
    )
    search.recipe.trainer_arguments["output_dir"] = str(tmp_path / "run")
    with pytest.raises(ValueError, match="mine.yaml: ranges: .*margin='odd'"):
        run_search(search)
    assert not (tmp_path / "run").exists()


def test_the_command_line_does_not_set_what_is_searched(tmp_path):
    with pytest.raises(ValueError, match="command line: --margin .*mine.yaml"):
        read_plan("slipform", ["--search", write_search(tmp_path), "--margin", "none"])
    with pytest.raises(SystemExit, match="--report and --search"):
        main("slipform", ["--search", write_search(tmp_path), "--report", "margins"])


def test_an_unknown_search_is_told_and_one_is_no_recipe(tmp_path):
    with pytest.raises(FileNotFoundError, match="search: slipform "):
        read_plan("slipform", ["--search"])
    with pytest.raises(ValueError, match="mine.yaml: 'objective' .*--search"):
        read_recipe(write_search(tmp_path))


def test_products_follow_the_values_and_what_is_only_in_the_search_ends_with_it(tmp_path):
    path = write_search(
        tmp_path, products={"batch_size": ["warmup_steps", "logging_steps"]}, only_in_search={"max_steps": 5}
    )
    search = read_plan("slipform", ["--search", path, "--logging_steps", "4"])
    values = {"learning_rate": 1e-3, "margin": "none", "warmup_steps": 3}
    trial, result = search.trial(values), search.result(values)
    assert repr(trial.experiment.batch_size) == repr(result.experiment.batch_size) == "12"
    assert trial.trainer_arguments["max_steps"] == 5 and result.trainer_arguments["max_steps"] == 250
    assert search.own_values() == {"learning_rate": 5e-4, "margin": "adaptive", "warmup_steps": 20}
    assert search.recipe.trainer_arguments["output_dir"] == "runs/slipform-mine"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_search_that_ships_fits_its_recipe(path):
    assert find_plan(path.parent.name, path.stem, "search") == path
    search = read_plan(path.parent.name, ["--search", path.stem])
    own = search.own_values()
    assert set(own) == set(search.plan.ranges) and None not in own.values()


# Whole searches


@pytest.fixture(scope="module")
def words(clip, tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("search")
    rows = tiny.pairs(16).map(lambda row, index: {"image_id": f"{index}"}, with_indices=True)
    datasets.DatasetDict({"train": rows, "test": rows.select(range(12))}).save_to_disk(folder / "rows")
    fields = f"--config slipform/vit_b32_coco --model {clip} --dataset {folder / 'rows'} --batch_size 8 --max_steps 2"
    machine = "--evaluation own --evaluation_split test --bf16 false --disable_tqdm true --dataloader_num_workers 0"
    machine += " --overlap allow"  # the few rows of the test are those of training
    saved = "--save_strategy steps --save_steps 1 --mini_batch_size 8 --logging_steps 1"
    return f"{fields} {machine} {saved} --search {write_search(folder)}".split()


Outcome = tuple[Path, list[str]]


@pytest.fixture(scope="module")
def start_search(words, tmp_path_factory) -> Callable[[str], Outcome]:
    """A search: its folder and the folder and step of every training step; with `stop` stopped in trial 1's second.

    In trial 2 the loss is no longer finite.
    """

    def run(stop: bool) -> Outcome:
        folder = tmp_path_factory.mktemp("runs") / "run"
        step, steps, stopped = CementTrainer.training_step, [], []

        def count_step(self, *arguments: Any, **keywords: Any) -> Any:
            place = f"{Path(self.args.output_dir).name}/{self.state.global_step}"
            if stop and not stopped and place == "0001/1":
                stopped.append(place)
                raise KeyboardInterrupt
            if place == "0002/0":
                raise FloatingPointError("the loss is nan")
            steps.append(place)
            return step(self, *arguments, **keywords)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CementTrainer, "training_step", count_step)
            search = read_plan("slipform", [*words, "--output_dir", str(folder)])
            if stop:
                with pytest.raises(KeyboardInterrupt):
                    run_search(search)
                search = read_plan("slipform", [*words, "--output_dir", str(folder)])
            assert run_search(search) == folder
        return folder, steps

    return run


@pytest.fixture(scope="module")
def whole(start_search) -> Outcome:
    return start_search(False)


@pytest.fixture(scope="module")
def stopped_search(start_search) -> Outcome:
    return start_search(True)


def test_a_stopped_search_repeats_no_step_and_ends_in_the_same_trials(whole, stopped_search):
    assert whole[1] == stopped_search[1] == ["0000/0", "0000/1", "0001/0", "0001/1"]
    tables = [pd.read_csv(folder / "trials.csv").drop(columns="seconds") for folder, _ in (whole, stopped_search)]
    pd.testing.assert_frame_equal(*tables)
    assert len(tables[0]["learning_rate"].unique()) == 3


def test_a_trial_that_fails_is_told_and_counted(whole):
    """The report says too that what chose the best is what a run of it would report."""
    folder, _ = whole
    table = pd.read_csv(folder / "trials.csv")
    assert list(table["trial"]) == [0, 1, 2] and list(table["value"].isna()) == [False, False, True]
    assert table["failure"][2] == "FloatingPointError: the loss is nan"
    report = (folder / "report.md").read_text()
    assert (
        "3 of 3 trials, 1 failed; base, untrained: 0." in report
        and "failed: FloatingPointError: the loss is nan" in report
    )
    assert re.search(r"rows \(test\); .*best.yaml .*rows \(test\) too", report)


def test_the_best_is_a_recipe_and_keeps_its_model(whole, words):
    folder, _ = whole
    report = json.loads((folder / "search.json").read_text())
    ended = [trial for trial in report["trials"] if trial["value"] is not None]
    best = max(ended, key=lambda trial: (trial["value"], -trial["number"]))
    assert report["best"] == best["number"] and best["facts"]["steps"] == 2
    recipe = read_recipe("slipform", ["--config", str(folder / "best.yaml")])
    assert {name: recipe.given[name] for name in VALUES["ranges"]} == best["values"]
    assert "search" not in recipe.given and "output_dir" not in recipe.given and recipe.given["max_steps"] == 2
    kept = {path.relative_to(folder / "trials").parts[0] for path in folder.glob("trials/**/model.safetensors")}
    assert kept == {f"{best['number']:04}"}
    assert (folder / "finished").is_file()


def test_it_begins_with_the_recipes_own_values_and_goes_on_when_more_are_asked_for(words, tmp_path, monkeypatch):
    tried: list[dict[str, Any]] = []

    def value(search: Search, study: Any, rows: Any, number: int, values: dict[str, Any]) -> Trial:
        tried.append(values)
        facts = {"low": 0.0, "high": 1.0, "steps": 1, "seconds": 1.0}
        return Trial(number, values, values["learning_rate"], facts, None)

    monkeypatch.setattr(search_module, "try_values", value)
    ranges = {"learning_rate": {"low": 1e-10, "high": 1, "log": True}, "margin_threshold": {"low": 0.5, "high": 10}}

    def search(trials: int) -> tuple[Search, Path]:
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({"minimize": VALUES["maximize"], "trials": trials, "ranges": ranges}))
        plan = read_plan("slipform", [*words, "--search", str(path), "--output_dir", str(tmp_path / "run")])
        return plan, run_search(plan)

    plan, folder = search(1)
    assert tried == [plan.own_values()] and (folder / "finished").is_file()
    assert search(3)[1] == folder and (folder / "finished").is_file()
    rates = [values["learning_rate"] for values in tried]
    results = json.loads((folder / "search.json").read_text())
    assert len(set(rates)) == 3 == len(results["trials"]) and rates[results["best"]] == min(rates)
    # no more than there are: a search of its own
    assert search(3)[1] == tmp_path / "run-2"


def test_a_search_whose_first_trials_all_fail_ends(words, tmp_path, monkeypatch):
    started = []

    def fail(self: Arm, start: Path, folder: Path, *_: Any) -> None:
        started.append(folder)
        raise ValueError("no batch")

    monkeypatch.setattr(Arm, "train", fail)
    path = write_search(tmp_path, trials=9)
    words = [*words, "--search", path, "--output_dir", str(tmp_path / "run")]
    with pytest.raises(ValueError, match="first 3 trials .*: ValueError: no batch"):
        run_search(read_plan("slipform", words))
    assert len(started) == MAX_FIRST_FAILURES
    assert not (tmp_path / "run" / "best.yaml").exists()


def test_a_measure_that_does_not_exist_costs_no_training(words, tmp_path, monkeypatch):
    monkeypatch.setattr(CementTrainer, "train", lambda *_, **__: pytest.fail("trained"))
    path = write_search(tmp_path, maximize="own: recall@5")
    with pytest.raises(ValueError, match="'own: recall@5'"):
        run_search(read_plan("slipform", [*words, "--search", path, "--output_dir", str(tmp_path / "run")]))


def test_rows_without_the_negative_images_that_trials_need_cost_no_training(words, tmp_path, monkeypatch):
    monkeypatch.setattr(CementTrainer, "train", lambda *_, **__: pytest.fail("trained"))
    words = [
        *words,
        "--keyword_negatives",
        "color",
        "--search",
        write_search(tmp_path),
        "--output_dir",
        str(tmp_path / "r"),
    ]
    with pytest.raises(ValueError, match="CementTrainer: none of the 16 rows .*negative_image"):
        run_search(read_plan("slipform", words))
    assert not (tmp_path / "r").exists()


def test_only_a_benchmark_that_judged_is_named_as_what_chose():
    settings = {"objective": "x:y", "method": "m", "dataset": "sandbox", "batch_size": 2}
    levels = ["sandbox_levels"]
    beside = ExperimentConfig(**settings, evaluation="sandbox+benchmarks", evaluation_benchmarks=levels)
    assert search_report._evaluation_sets(beside, ["sandbox levels"]) == []
    assert search_report._evaluation_sets(beside, ["sandbox levels", "sandbox levels, hard"]) == ["sandbox_levels"]
    unused = ExperimentConfig(**settings, evaluation="sandbox", evaluation_benchmarks=levels)
    assert search_report._evaluation_sets(unused, ["sandbox levels, hard"]) == []
