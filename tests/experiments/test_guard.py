"""`--forgetting_guard` of a recipe, at a size of seconds."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
import torch
from accelerate import PartialState
from huggingface_hub import ModelCard
from transformers import CLIPModel, CLIPProcessor

from hfcomp.checksums import read_checked
from hfcomp.evaluation import points
from hfcomp.experiments import program
from hfcomp.experiments.guard import without
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.merging.merge import RECORD_FILE
from hfcomp.reporting.lines import primary_of
from hfcomp.statistics import Outcomes
from tests.evaluation import small_sugarcrepe
from tests.evaluation.evaluations import outcomes
from tests.experiments.test_program import SMALL

MODELS = ["base", "same-batch", "same-batch guarded", "Slipform guarded", "Slipform"]
SIZE = {**SMALL, "controls": "same-batch", "max_steps": 2, "evaluation_items": 3, "page": "false"}

pytestmark = pytest.mark.usefixtures("without_figures")


def run(folder, *extra: str, guarded: bool = True, **changes: object):
    words = [word for key, value in {**SIZE, **changes}.items() for word in (f"--{key}", *str(value).split())]
    flags = ["--output_dir", str(folder), "--disable_tqdm", *(["--forgetting_guard"] if guarded else [])]
    return program.run(read_recipe("slipform", [*words, *flags, *extra]))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    torch.set_num_threads(1)
    return run(tmp_path_factory.mktemp("runs") / "slipform")


def test_the_chosen_points_of_method_and_same_batch_are_plain_models_with_their_record(finished_run):
    for name in ("method-guarded", "controls/same-batch-guarded"):
        _, info = CLIPModel.from_pretrained(finished_run / name, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        CLIPProcessor.from_pretrained(finished_run / name)
        record = read_checked(finished_run / name / RECORD_FILE, "")
        assert record["chosen"]["on"] == "scenes with another seed (1000) than the report's"
        assert len(record["chosen"]["points"]) == 11
        chosen = {point["alpha"]: point for point in record["chosen"]["points"]}[record["alpha"]]
        assert not chosen["dominated"]


def test_they_are_lines_of_the_report_with_intervals_and_differences(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    for line in results["results"]:
        assert list(line["models"]) == MODELS
        assert list(line["differences"]["Slipform guarded"]) == MODELS[:-2]
    assert set(primary_of(results["results"])["models"]["Slipform guarded"]) >= {"low", "high"}
    assert list(results["guard"]["models"]) == ["same-batch guarded", "Slipform guarded"]
    report = (finished_run / "report.md").read_text()
    alpha = results["guard"]["models"]["Slipform guarded"]["alpha"]
    guarded = next(sentence for sentence in results["verdict"] if sentence.startswith("Guarded"))
    assert guarded.startswith(f"Guarded (alpha {alpha:g}) on this seed: sandbox: macro of 5 subsets group ")
    assert guarded.count("against same-batch guarded") == guarded.count("against base") == 2
    assert f"**{guarded}**" in report and "(guard.png)" in report
    assert "Slipform guarded minus same-batch guarded" in report
    assert "chosen" in report.partition("## Forgetting guard")[2]


def test_each_chosen_model_has_a_card_with_its_own_numbers(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    names = {"method-guarded": "Slipform guarded", "controls/same-batch-guarded": "same-batch guarded"}
    for folder, name in names.items():
        card = ModelCard.load(finished_run / folder / "README.md")
        record, eval_results = read_checked(finished_run / folder / RECORD_FILE, ""), card.data.eval_results
        scored = {
            (result.dataset_name, result.dataset_config, result.metric_name): result.metric_value
            for result in eval_results
        }
        for line in results["results"]:
            key = (f"{line['benchmark']} (synthetic)", line["subset"], line["metric"])
            assert scored[key] == round(line["models"][name]["value"], 4)
        assert f"# {name}" in card.text and f"Alpha is {record['alpha']:g}" in card.text
        assert results["models"][name]["weights"] in card.text
        assert "scenes with another seed (1000)" in card.text and "wortsman2022robust" in card.text
    assert "CementTrainer" in (finished_run / "method-guarded/README.md").read_text()
    control = (finished_run / "controls/same-batch-guarded/README.md").read_text()
    assert "`InfoNCETrainer`" in control and "im2026concretejungle" not in control.partition("## Citation")[2]
    assert "# Slipform\n" in (finished_run / "method/README.md").read_text()


def test_no_item_that_chose_is_reported(finished_run):
    items, chose = (
        pd.read_parquet(finished_run / name) for name in ("items.parquet", "evaluation/guard/Slipform.parquet")
    )
    assert not set(items["image_id"]) & set(chose["image_id"])
    assert set(chose["arm"]) == {f"alpha {index / 10:g}" for index in range(11)}


@pytest.mark.slow
def test_a_finished_run_is_guarded_later_and_nothing_is_trained_again(finished_run, tmp_path):
    folder = run(tmp_path / "slipform", guarded=False)
    trained = (folder / "method/model.safetensors").stat().st_mtime_ns
    assert run(tmp_path / "slipform") == folder
    assert (folder / "method/model.safetensors").stat().st_mtime_ns == trained
    same = [json.loads((path / "results.json").read_text())["guard"] for path in (folder, finished_run)]
    assert same[0] == same[1]


@pytest.mark.slow
def test_points_that_are_scored_are_not_scored_again(finished_run, monkeypatch):
    (finished_run / "finished").unlink()
    before = json.loads((finished_run / "results.json").read_text())["results"]
    monkeypatch.setattr(points.PointsEmbedder, "score", None)
    run(finished_run)
    assert json.loads((finished_run / "results.json").read_text())["results"] == before


@pytest.mark.slow
def test_of_benchmarks_half_of_the_images_choose_and_the_others_are_reported(tmp_path):
    root = small_sugarcrepe.write(tmp_path / "data", images=40, per_subset=20)
    data = {"evaluation_data": f"sugarcrepe={root}/sugarcrepe val2017={root}/val2017", "controls": "none"}
    folder = run(
        tmp_path / "run",
        evaluation="sandbox+benchmarks",
        evaluation_benchmarks="sugarcrepe",
        **{**data, "evaluation_items": 16},
    )
    items, chose = (pd.read_parquet(folder / name) for name in ("items.parquet", "evaluation/guard/Slipform.parquet"))
    whole = pd.read_parquet(folder / "evaluation/base.parquet")
    reported = set(items["image_id"])
    assert 0 < len(reported) < len(set(whole["image_id"])) and set(chose["image_id"]) == set(whole["image_id"])
    guard = json.loads((folder / "results.json").read_text())["guard"]
    assert guard["items"] == "half of the evaluation images; the report covers the other half"
    assert guard["models"]["Slipform guarded"]["images"][0] <= len(set(whole["image_id"]) - reported)


def test_benchmarks_that_choose_are_loaded_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match="guard_benchmarks .*forgetting_guard"):
        run(tmp_path / "run", "--guard_benchmarks", "sandbox_novel", guarded=False)
    with pytest.raises(ValueError, match="general ability .*coco2017_retrieval"):
        run(tmp_path / "run", "--guard_benchmarks", "sandbox_novel")
    with pytest.raises(ValueError, match="'sandbox_novl'"):
        run(tmp_path / "run", "--guard_benchmarks", "sandbox_novl")
    assert not (tmp_path / "run").exists()


def test_images_of_the_report_choose_nothing(finished_run):
    scored = pd.read_parquet(finished_run / "evaluation/base.parquet").assign(arm="base")
    session = Session(PartialState(cpu=True))
    rest = scored["image_id"] != scored["image_id"].iloc[0]
    known = set(scored["image_id"][rest])
    assert set(without(Outcomes(scored), known, session).table["image_id"]) == {scored["image_id"].iloc[0]}
    assert session.notes == [
        f"forgetting guard: {len(known):,} images are also in the report and are not used to choose points"
    ]
    with pytest.raises(ValueError, match="guard_benchmarks: all images"):
        without(Outcomes(scored), set(scored["image_id"]), session)


def test_a_photograph_of_the_report_chooses_nothing_under_another_name():
    names = ["000000000285.jpg", "000000000786.jpg"]
    table = pd.concat([outcomes("alpha 0", [1.0, 0.0]).assign(image_id=names)])
    kept = without(Outcomes(table), {"COCO_val2014_000000000285.jpg"}, Session(PartialState(cpu=True)))
    assert kept.table["image_id"].tolist() == names[1:]


def test_a_plan_has_no_guard(tmp_path):
    with pytest.raises(ValueError, match=re.escape("forgetting_guard works only for a single run")):
        read_plan("slipform", ["--report", "margins", "--forgetting_guard"])
