"""The program behind every recipe, at a size of seconds: what a run leaves, what it compares, what it refuses."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import datasets
import pandas as pd
import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from transformers import CLIPModel, CLIPProcessor, SiglipModel

from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.experiments import command, program, session
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.study import CAVEATS, ONE_SEED
from hfcomp.reporting.format import p_value
from hfcomp.statistics import ImageBootstrap, items_hash
from tests import tiny
from tests.figures import no_figures

MODELS = ["base", "plain", "same-batch", "static-margin", "shuffled", "equal-images", "Slipform"]
NINE_KINDS = "sandbox: macro of 9 kinds group"
SMALL = {
    "dataset_rows": 96,
    "batch_size": 16,
    "max_steps": 4,
    "save_steps": 2,
    "logging_steps": 3,
    "evaluation_items": 5,
    "seed": 42,
}


def run(folder: Path, *extra: str, **changes: object) -> Path:
    words = [word for key, value in {**SMALL, **changes}.items() for word in (f"--{key}", str(value))]
    flags = ["--output_dir", str(folder), "--disable_tqdm", "true"]
    return program.run(read_recipe("slipform", [*words, *flags, *extra]))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return run(tmp_path_factory.mktemp("runs") / "slipform", "--primary", NINE_KINDS, "--controls", *MODELS[1:-1])


def test_a_run_leaves_the_documented_folder(finished_run):
    names = {path.name for path in finished_run.iterdir()}
    assert names == {
        ".lock",
        "base",
        "controls",
        "method",
        "evaluation",
        "config.yaml",
        "items.parquet",
        "blind.parquet",
        "overlap.json",
        "results.json",
        "report.md",
        "report.html",
        "figure.png",
        "README.md",
        "finished",
    }
    stored = {path.stem for path in (finished_run / "evaluation").iterdir()}
    assert stored == {f"{name}{kind}" for name in MODELS for kind in ("", ".prior", ".scores")}
    assert (finished_run / "method" / "checkpoint-4").is_dir()
    assert yaml.safe_load((finished_run / "config.yaml").read_text())["batch_size"] == 16
    assert yaml.safe_load((finished_run / "config.yaml").read_text())["output_dir"] == str(finished_run)


@pytest.mark.parametrize("place", ["base", "controls/plain", "controls/shuffled", "method"])
def test_every_model_is_a_plain_clip_with_its_processor(finished_run, place):
    _, report = CLIPModel.from_pretrained(finished_run / place, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    CLIPProcessor.from_pretrained(finished_run / place)
    assert not list((finished_run / place).glob("*.bin"))


def test_results_hold_every_model_with_its_weights_and_the_differences_to_base_and_controls(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    assert results["caveat"] == f"{CAVEATS['sandbox']} {ONE_SEED}"
    for name in ("report.md", "report.html", "README.md"):
        assert all(sentence in (finished_run / name).read_text() for sentence in (CAVEATS["sandbox"], ONE_SEED)), name
    assert list(results["models"]) == MODELS
    ratings = (
        "concreteness of the sandbox's keywords: our bands, in the order of human norms (concrete 4.6, middle 4.0,"
    )
    assert any(note.startswith(ratings) for note in results["notes"])
    assert any("--concreteness_ratings FILE" in note for note in results["notes"])
    assert results["data"]["training"] | {"captions": ""} == {"dataset": "sandbox", "rows": 96, "captions": ""}
    assert results["data"]["items"] == items_hash(pd.read_parquet(finished_run / "items.parquet"))
    assert len({facts["weights"] for facts in results["models"].values()}) == len(MODELS)
    for line in results["results"]:
        assert list(line["models"]) == MODELS
        assert list(line["differences"]["Slipform"]) == MODELS[:-1]


def test_the_report_has_blind_rules_the_prior_of_every_model_and_what_is_left(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    blind = results["blind"]
    assert list(blind["rules"]) == ["constant", "shorter", "full stop", *(f"prior of {name}" for name in MODELS)]
    rules = pd.read_parquet(finished_run / "blind.parquet")
    assert blind["items"] == items_hash(rules)
    items = pd.read_parquet(finished_run / "items.parquet")
    keys = ["benchmark", "subset", "metric", "item"]
    texts = rules[rules["arm"].isin(["constant", "shorter", "full stop"])]
    solved = set(texts[texts["value"] == 1][keys].itertuples(index=False, name=None))
    of_rules = set(texts[keys].itertuples(index=False, name=None))
    for line in blind["unsolved"]:
        lines = items[(items["benchmark"] == line["benchmark"]) & (items["metric"] == line["metric"])]
        own = lines[lines["arm"] == "Slipform"]
        names = list(own[keys].itertuples(index=False, name=None))
        assert of_rules >= set(names) and line["of"] == len(names)
        left = own[[name not in solved for name in names]]
        assert line["items"] == len(left) > 0 and list(line["models"]) == MODELS
        assert line["models"]["Slipform"]["value"] == pytest.approx(left["value"].mean())
    for file in ("report.md", "report.html"):
        text = (finished_run / file).read_text()
        assert "prior of same-batch" in text and "--blind_captions" in text
    again = EvaluationResults.load(finished_run)
    assert again._blind_facts == blind


def test_results_are_the_means_of_the_items(finished_run):
    items = pd.read_parquet(finished_run / "items.parquet")
    results = json.loads((finished_run / "results.json").read_text())
    for line in (line for line in results["results"] if not line["average"]):
        same = items[["benchmark", "subset", "metric"]] == [line["benchmark"], line["subset"], line["metric"]]
        same = same.all(axis=1)
        for name, share in line["models"].items():
            values = items[same & (items["arm"] == name)]["value"]
            assert len(values) == line["items"]
            assert share["value"] == pytest.approx(values.mean())


def test_averages_and_the_verdict_are_in_the_results_and_draw_all_lines_at_once(finished_run):
    results = json.loads((finished_run / "results.json").read_text())
    items = pd.read_parquet(finished_run / "items.parquet")
    (primary,) = [line for line in results["results"] if line.get("primary")]
    assert (primary["benchmark"], primary["subset"], primary["metric"]) == ("sandbox", "macro of 9 kinds", "group")
    mine = items[(items["benchmark"] == "sandbox") & (items["arm"] == "Slipform")]
    parts = [
        (part["value"].to_numpy(), part["image_id"].to_numpy())
        for _, part in mine[mine["metric"] == "group"].groupby("subset", sort=False)
    ]
    expected = ImageBootstrap(mine["image_id"].to_numpy()).macro_interval(parts)
    share = primary["models"]["Slipform"]
    assert (share["low"], share["high"]) == pytest.approx(expected, abs=1e-12)
    gain = primary["differences"]["Slipform"]["same-batch"]
    assert gain["p_holm"] == gain["p"] and "q" not in gain
    assert "q" in primary["differences"]["Slipform"]["base"]
    assert f"endpoint is {primary['primary']} (" in (finished_run / "report.md").read_text()
    sentence = f"points (p {p_value(gain['p'])})."
    assert (
        sentence in (finished_run / "report.md").read_text() and sentence in (finished_run / "README.md").read_text()
    )
    assert len(results["general_average"]["lines"]) > 2
    assert results["general_average"]["models"]["base"]["low"] < results["general_average"]["models"]["base"]["high"]


def test_a_primary_endpoint_that_is_not_scored_costs_no_training(tmp_path, monkeypatch):
    monkeypatch.setattr(program.Arm, "train", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match=r"primary: 'sandbox: grup'.*'sandbox: group'"):
        run(tmp_path / "run", "--primary", "sandbox: grup")


def test_costs_count_what_was_encoded_and_equal_images_has_as_many_as_the_method(finished_run):
    costs = {stage["name"]: stage for stage in json.loads((finished_run / "results.json").read_text())["stages"]}
    assert list(costs) == MODELS[1:]
    counted = {name: (costs[name]["steps"], costs[name]["images"], costs[name]["texts"]) for name in MODELS[1:]}
    assert counted == {"plain": (4, 64, 64)} | dict.fromkeys(MODELS[2:], (4, 128, 128))
    assert all(stage["seconds"] > 0 for stage in costs.values())


def test_same_batch_had_no_margin_and_shuffled_the_methods_own(finished_run):
    margins = {
        name: [
            line["margin"]
            for line in json.loads((finished_run / name / "history.json").read_text())
            if "margin" in line
        ]
        for name in ("controls/same-batch", "controls/shuffled", "method")
    }
    assert set(margins["controls/same-batch"]) == {0.0}
    assert all(margins["method"]) and all(margins["controls/shuffled"])


def test_the_report_shows_forgetting_and_cost_beside_the_gain(finished_run):
    report = (finished_run / "report.md").read_text()
    assert "sandbox retrieval" in report and "Cost" in report and "Synthetic" in report
    assert all(name in report for name in MODELS)


def test_the_cards_recipe_is_the_one_that_ran(finished_run):
    """As YAML: a list, a text with a colon or a mapping of names can be read back."""
    text = (finished_run / "README.md").read_text()
    values = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    ran = yaml.safe_load((finished_run / "config.yaml").read_text())
    assert values == ran | {"output_dir": values["output_dir"]}  # whose folders are nobody else's business


@pytest.mark.parametrize("place", ["README.md", "method/README.md"])
def test_the_card_has_valid_metadata_and_the_recipe(finished_run, place):
    card = ModelCard.load(finished_run / place)
    assert card.data.to_dict()["library_name"] == "transformers" and "slipform" in card.data.tags
    assert card.data.base_model is None  # made on the spot
    assert "batch_size: 16" in card.text and "Synthetic" in card.text
    assert "| batch_size | 16 | user's | on the command line |" in card.text
    assert "| margin_threshold | 4.0 | default |" in card.text
    assert "hfcomp train slipform --dataset_rows 96" in card.text and str(finished_run.parent) not in card.text


def test_the_same_command_after_a_finished_run_takes_a_folder_of_its_own(finished_run):
    before = {path: path.stat().st_mtime_ns for path in finished_run.rglob("*") if path.is_file()}
    with no_figures():
        second = run(finished_run, controls="none", max_steps=1, page="false")
    assert second == finished_run.with_name("slipform-2")
    assert yaml.safe_load((second / "config.yaml").read_text())["output_dir"] == str(second)
    assert not (second / "controls").exists()
    assert {path: path.stat().st_mtime_ns for path in finished_run.rglob("*") if path.is_file()} == before


def test_a_skipped_control_is_told_and_missing_from_the_results(clip, tmp_path):
    """Negative images are all missing: the method encodes as many images as plain."""
    rows = {name: tiny.pairs(8).map(lambda row: {"negative_image": None}) for name in ("train", "test")}
    datasets.DatasetDict(rows).save_to_disk(tmp_path / "rows")
    words = f"--config slipform/vit_b32_coco --model {clip} --dataset {tmp_path / 'rows'} --max_steps 1 --batch_size 4"
    machine = "--mini_batch_size 4 --bf16 false --disable_tqdm true --dataloader_num_workers 0"
    output = ["--output_dir", str(tmp_path / "run"), "--save_strategy", "no"]
    output += ["--evaluation", "own", "--evaluation_split", "test", "--allow_missing_negative_images", "true"]
    output += ["--overlap", "allow"]  # the few rows of the test are those of training
    with no_figures():
        folder = program.run(read_recipe("slipform", [*words.split(), *machine.split(), *output]))
    results = json.loads((folder / "results.json").read_text())
    assert list(results["models"]) == ["base", "plain", "same-batch", "static-margin", "shuffled", "Slipform"]
    assert [stage["name"] for stage in results["stages"]] == [
        "plain",
        "same-batch",
        "static-margin",
        "shuffled",
        "Slipform",
    ]
    assert "control equal-images is skipped: Slipform encodes no more images than plain." in results["notes"]


def test_a_wrong_value_of_the_objective_costs_no_training(tmp_path):
    with pytest.raises(ValueError, match="margin: found 'adaptiv'.* adaptive"):
        run(tmp_path / "run", margin="adaptiv")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["--evaluation", "own", "--evaluation_dataset", "ROWS"],
        [
            "--evaluation",
            "benchmarks",
            "--evaluation_benchmarks",
            "sugarcrepe",
            "--evaluation_data",
            "sugarcrepe=nowhere",
        ],
        ["--dataset", "ROWS"],
        ["--fresh_model", "vit_b32", "--clip_vocabulary", "nowhere"],
        ["--config", "clear_glass/aligned_sandbox", "--model", "runs/nowhere/method"],
    ],
)
def test_a_mistyped_path_leaves_no_folder(tmp_path, words):
    rows = tmp_path / "rows.txt"  # a file, so that nobody asks the Hub
    rows.touch()
    with pytest.raises((ValueError, OSError), match="rows.txt|nowhere"):
        run(tmp_path / "run", *(str(rows) if word == "ROWS" else word for word in words))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "seconds"), [([], 24 * 3600), (["--ddp_timeout", "7200"], 7200)])
def test_the_others_wait_as_long_as_the_recipe_says(monkeypatch, words, seconds):
    """One process loads and filters the rows first, which may take longer than the default of a process group."""
    seen = []

    class Stop(Exception):
        pass

    def state(**keywords):
        seen.append(keywords)
        raise Stop

    monkeypatch.setattr(session, "PartialState", state)
    with pytest.raises(Stop):
        program.run(read_recipe("slipform", words))
    assert seen == [{"cpu": not torch.accelerator.is_available(), "timeout": timedelta(seconds=seconds)}]


def test_a_misspelt_field_ends_the_command_with_one_line():
    with pytest.raises(SystemExit, match="error: command line: .*'margn'.*'margin'"):
        command.main("slipform", ["--margn", "static"])


def test_the_sandboxs_siglip_takes_the_place_of_its_clip(tmp_path):
    small = {"max_steps": 1, "evaluation_items": 3, "page": "false"}
    with no_figures():
        folder = run(tmp_path / "siglip", fresh_model="sandbox-siglip", controls="plain", **small)
    for place in ("base", "controls/plain", "method"):
        assert SiglipModel.from_pretrained(folder / place).config.model_type == "siglip"
    # plain fine-tuning of a SigLIP is by its own loss
    history = json.loads((folder / "controls/plain/history.json").read_text())
    assert "logit_bias" in history[0]
