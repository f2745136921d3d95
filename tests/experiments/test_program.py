"""The program behind every recipe, at a size of seconds: what a run leaves, how it resumes, what it refuses."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import CLIPModel, CLIPProcessor

from hfcomp.experiments import program, stages
from hfcomp.experiments.recipes import read_recipe
from hfcomp.trainers.cement import CementTrainer

SMALL = {
    "base_steps": 2,
    "base_rows": 128,
    "dataset_rows": 96,
    "batch_size": 16,
    "max_steps": 4,
    "save_steps": 2,
    "logging_steps": 3,
    "evaluation_items": 5,
}


def run(folder: Path, *extra: str, **changes: object) -> Path:
    words = [word for key, value in {**SMALL, **changes}.items() for word in (f"--{key}", str(value))]
    flags = ["--output_dir", str(folder), "--use_cpu", "true", "--disable_tqdm", "true"]
    return program.run(read_recipe("slipform", [*words, *flags, *extra]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return run(tmp_path_factory.mktemp("runs") / "slipform")


def test_a_run_leaves_the_documented_folder(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "base",
        "controls",
        "method",
        "config.yaml",
        "items.parquet",
        "results.json",
        "report.md",
        "figure.png",
        "README.md",
    }
    assert (finished / "method" / "checkpoint-4").is_dir()
    assert yaml.safe_load((finished / "config.yaml").read_text())["batch_size"] == 16
    assert yaml.safe_load((finished / "config.yaml").read_text())["output_dir"] == str(finished)


@pytest.mark.parametrize("place", ["base", "controls/plain", "method"])
def test_every_model_is_a_plain_clip_with_its_processor(finished, place):
    _, report = CLIPModel.from_pretrained(finished / place, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    CLIPProcessor.from_pretrained(finished / place)
    assert not list((finished / place).glob("*.bin"))


def test_results_hold_every_model_on_every_line_with_interval_ties_and_difference(finished):
    results = json.loads((finished / "results.json").read_text())
    assert results["schema_version"] == 1
    assert "Synthetic" in results["caveat"]
    metrics = {(line["metric"], line["subset"]) for line in results["results"]}
    assert ("group", "swap_att") in metrics and ("text-to-image recall@1", "all") in metrics
    for line in results["results"]:
        assert list(line["models"]) == ["base", "plain control", "Slipform"]
        for share in line["models"].values():
            assert 0 <= share["low"] <= share["value"] <= share["high"] <= 1
            assert share["ties"] >= 0
        assert "minus_plain control" in line["models"]["Slipform"]


def test_results_are_the_means_of_the_items(finished):
    items = pd.read_parquet(finished / "items.parquet")
    results = json.loads((finished / "results.json").read_text())
    for line in results["results"]:
        same = (items["subset"] == line["subset"]) & (items["metric"] == line["metric"])
        for name, share in line["models"].items():
            values = items[same & (items["model"] == name)]["value"]
            assert len(values) == line["items"]
            assert share["value"] == pytest.approx(values.mean())


def test_costs_count_negatives_as_encoded(finished):
    costs = {stage["name"]: stage for stage in json.loads((finished / "results.json").read_text())["stages"]}
    assert list(costs) == ["base", "plain control", "Slipform"]
    assert costs["base"]["images"] == 2 * 128
    assert (costs["plain control"]["images"], costs["plain control"]["texts"]) == (4 * 16, 4 * 16)
    assert (costs["Slipform"]["images"], costs["Slipform"]["texts"]) == (2 * 4 * 16, 2 * 4 * 16)
    assert costs["Slipform"]["steps"] == 4 and costs["Slipform"]["seconds"] > 0


def test_the_report_shows_forgetting_and_cost_beside_the_gain(finished):
    report = (finished / "report.md").read_text()
    assert "sandbox retrieval" in report and "## Cost" in report and "Synthetic" in report
    assert "GiB RAM" in report


def test_the_cards_recipe_is_the_one_that_ran(finished):
    """As YAML: a list, a text with a colon or a mapping of names can be read back."""
    text = (finished / "README.md").read_text()
    values = yaml.safe_load(text[text.rindex("```yaml\n") + len("```yaml\n") : text.rindex("```")])
    assert values == yaml.safe_load((finished / "config.yaml").read_text())


@pytest.mark.parametrize("place", ["README.md", "method/README.md"])
def test_the_card_has_valid_metadata_and_the_table(finished, place):
    card = ModelCard.load(finished / place)
    assert card.data.to_dict()["library_name"] == "transformers" and "slipform" in card.data.tags
    assert card.data.base_model is None  # made on the spot
    assert "| sandbox | swap_att | group |" in card.text and "Synthetic" in card.text
    assert "batch_size: 16" in card.text


def test_a_second_run_takes_a_folder_of_its_own(finished, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    second = run(finished, controls="plain", evaluation_items=3, max_steps=1)
    assert second == finished.with_name("slipform-2")
    assert yaml.safe_load((second / "config.yaml").read_text())["output_dir"] == str(second)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()} == before


def test_a_killed_run_resumes_to_the_same_weights_and_keeps_what_was_done(finished, tmp_path, monkeypatch):
    """Stopped inside the method's third step: base and control stay, the method goes on from its checkpoint."""
    folder = tmp_path / "killed"
    original = CementTrainer.training_step

    def stop_at_third_step(self, *args, **kwargs):
        if self.state.global_step == 2:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(CementTrainer, "training_step", stop_at_third_step)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    monkeypatch.setattr(CementTrainer, "training_step", original)
    kept = {place: (folder / place / "model.safetensors").stat().st_mtime_ns for place in ("base", "controls/plain")}
    assert (folder / "method" / "checkpoint-2").is_dir() and not (folder / "method" / stages.SUMMARY_FILE).exists()

    assert run(folder, "--resume") == folder
    assert {place: (folder / place / "model.safetensors").stat().st_mtime_ns for place in kept} == kept
    resumed, whole = (load_file(path / "method" / "model.safetensors") for path in (folder, finished))
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)
    assert (folder / "results.json").exists()


def test_resuming_with_other_values_is_refused_naming_them(finished):
    with pytest.raises(SystemExit, match=r"max_steps: \d -> 5"):
        run(finished, "--resume", max_steps=5)


def test_a_run_resumes_with_another_evaluation_and_what_changes_no_weight(finished, tmp_path):
    folder = tmp_path / "moved"
    shutil.copytree(finished, folder)
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    changes = {"evaluation_items": 3, "logging_steps": 1, "save_steps": 3}
    assert run(folder, "--resume", "--mini_batch_size", "8", "--dataloader_num_workers", "1", **changes) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")} == kept
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (config["evaluation_items"], config["mini_batch_size"], config["output_dir"]) == (3, 8, str(folder))
    lines = json.loads((folder / "results.json").read_text())["results"]
    assert {line["items"] for line in lines if line["metric"] == "group"} == {3}


@pytest.mark.parametrize("field", ["dataloader_drop_last=false", "seed=1", "margin=static", "dataset_rows=97"])
def test_what_changes_the_training_must_be_the_same(tmp_path, field):
    started(tmp_path / "s")
    with pytest.raises(SystemExit, match=f"started with other values .{field.split('=')[0]}: "):
        folder_of(tmp_path / "s", "--resume", f"--{field}")


def started(*folders: Path) -> None:
    """Folders of runs, the later ones newer."""
    for second, folder in enumerate(folders):
        folder.mkdir()
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump({**read_recipe("slipform").given, "output_dir": str(folder)}))
        os.utime(path, (second, second))


def folder_of(output: Path, *words: str, on_command_line: bool = True) -> Path:
    recipe = read_recipe("slipform", [*(("--output_dir", str(output)) if on_command_line else ()), *words])
    recipe.trainer_arguments["output_dir"] = str(output)
    return program._folder(recipe, SimpleNamespace(num_processes=1))


def test_resume_takes_the_folder_that_is_named_and_otherwise_the_newest(tmp_path):
    first, second, third = (tmp_path / name for name in ("s", "s-2", "s-3"))
    started(second, third, first)
    assert folder_of(second, "--resume") == second
    assert folder_of(first, "--resume") == first
    os.utime(third / "config.yaml", (9, 9))
    assert folder_of(first, "--resume") == first
    assert folder_of(first, "--resume", on_command_line=False) == third
    shutil.rmtree(first)
    assert folder_of(first, "--resume") == third  # it holds no run
    assert folder_of(third) == tmp_path / "s-3-2"


@pytest.mark.parametrize(
    "words",
    [
        ["--evaluation", "own", "--evaluation_dataset", "ROWS"],
        ["--evaluation", "sugarcrepe", "--sugarcrepe_folder", "nowhere", "--coco_images", "nowhere"],
        ["--dataset", "ROWS"],
        ["--fresh_model", "vit_b32", "--clip_vocabulary", "nowhere"],
    ],
)
def test_a_mistyped_path_leaves_no_folder(tmp_path, words):
    rows = tmp_path / "rows.txt"  # a file, so that nobody asks the Hub
    rows.touch()
    with pytest.raises((ValueError, OSError), match="rows.txt|nowhere"):
        run(tmp_path / "run", *(str(rows) if word == "ROWS" else word for word in words))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "seconds"), [([], 1800), (["--ddp_timeout", "7200"], 7200)])
def test_the_others_wait_as_long_as_the_recipe_says(monkeypatch, words, seconds):
    """The main process evaluates alone, which may take longer than the default of a process group."""
    seen = []

    class Stop(Exception):
        pass

    def state(**keywords):
        seen.append(keywords)
        raise Stop

    monkeypatch.setattr(program, "PartialState", state)
    with pytest.raises(Stop):
        program.run(read_recipe("slipform", words))
    assert seen == [{"cpu": False, "timeout": timedelta(seconds=seconds)}]


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="there is no run in"):
        run(tmp_path / "nothing", "--resume")


def test_a_misspelt_field_ends_the_command_with_one_line():
    with pytest.raises(SystemExit, match="error: command line: unknown field 'margn'. Did you mean 'margin'"):
        program.main("slipform", ["--margn", "static"])
