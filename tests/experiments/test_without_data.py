"""A dry run without data counts what the real run takes, and needs none of what the recipe names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AlignConfig, CLIPConfig, CLIPModel

from hfcomp.experiments import command
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.without_data import SPEED, Architecture, WithoutData, without_data

pytestmark = pytest.mark.usefixtures("without_figures")
CLIP = "openai/clip-vit-base-patch32"
FILE = "hfcomp/experiments/without_data.py"
WORDS = ["--dataset", "not/here", "--batch_size", "16", "--mini_batch_size", "16", "--disable_tqdm", "true"]


@pytest.fixture
def studies(monkeypatch) -> list[WithoutData]:
    """The dry runs of a test, as they stand when they print."""
    runs: list[WithoutData] = []
    monkeypatch.setattr(DryRun, "_print", lambda study, show=DryRun._print: (runs.append(study), show(study)))
    return runs


def test_steps_follow_from_rows_and_hours_from_the_named_model(studies, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = [
        "--evaluation_data",
        "sugarcrepe=not/here",
        "--evaluation_dataset",
        "not/here.tsv",
        "--pixel_cache",
        "none",
    ]
    command.main("slipform/vit_b32_coco", [*WORDS, *files, "--controls", "plain", "--dry_run", "--rows", "1000"])
    (study,), printed = studies, " ".join(capsys.readouterr().out.split())
    assert list(tmp_path.iterdir()) == []
    costs = {name: (cost.steps, cost.images, cost.texts) for name, cost in study.costs.items()}
    steps = 5 * (1000 // 16)  # five epochs of whole batches
    assert costs == {"plain": (steps, steps * 16, steps * 16), "Slipform": (steps, steps * 32, steps * 32)}
    images = texts = 3 * 16 * steps
    # mini-batches take the forward pass twice
    seconds = 4 * (images * study.base.image + texts * study.base.text) / SPEED
    assert sum(cost.seconds for cost in study.costs.values()) == pytest.approx(seconds)
    assert f"{CLIP} (not on this machine" in printed and "151.3 million weights" in printed
    assert "benchmarks: SugarCrepe, SugarCrepe++, Winoground" in printed and "2 runs" in printed


def test_operations_are_those_of_a_profile():
    config = CLIPConfig()
    count = torch.utils.flop_counter.FlopCounterMode(display=False)
    with torch.device("meta"), count, torch.no_grad():
        model = CLIPModel(config)
        model.get_image_features(pixel_values=torch.zeros(1, 3, 224, 224))
        model.get_text_features(input_ids=torch.full((1, 77), config.text_config.eos_token_id))
    base = Architecture.from_recipe(ExperimentConfig(objective="x", method="x", dataset="x", batch_size=1, model=CLIP))
    # embeddings of patches, attention and projections are left out
    assert 0.9 < (base.image + base.text) / count.get_total_flops() < 1
    assert base.weights == sum(weight.numel() for weight in model.parameters())


@pytest.mark.follows("hfcomp/experiments/command.py", "--rows works only with --dry_run.")
@pytest.mark.follows("hfcomp/experiments/command.py", "Add --dry_run, or leave --rows out.")
@pytest.mark.follows(FILE, "--rows: found {rows}, expected a positive number.")
@pytest.mark.follows(FILE, "--rows: found {self.rows}, expected at least one batch of {arm.batch_size}.")
def test_rows_need_a_dry_run(studies, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="--rows works only with --dry_run"):
        command.main("slipform/vit_b32_coco", [*WORDS, "--rows", "100"])
    with pytest.raises(SystemExit, match="--rows: found 0, expected a positive number"):
        command.main("slipform/vit_b32_coco", [*WORDS, "--dry_run", "--rows", "0"])
    given = [*WORDS, "--controls", "none", "--dry_run", "--rows"]
    with pytest.raises(SystemExit, match="Slipform: --rows: found 15, expected at least one batch of 16"):
        command.main("slipform/vit_b32_coco", [*given, "15"])
    command.main("slipform/vit_b32_coco", [*given, "100"])
    assert len(studies) == 1


def test_a_base_without_patches_counts_as_a_vit(tmp_path):
    AlignConfig().save_pretrained(tmp_path)
    given = ExperimentConfig(objective="x", method="x", dataset="x", batch_size=1, model=str(tmp_path))
    assert "(not a ViT for one image size: counted as a ViT-B)" in Architecture.from_recipe(given).summary


@pytest.mark.follows(FILE, "--rows: found a {type(plan).__name__}, expected a plan that lists its `parts`.")
def test_a_plan_of_another_package_is_refused():
    with pytest.raises(ValueError, match="found a SimpleNamespace, expected a plan that lists its `parts`"):
        without_data(SimpleNamespace(), 100)
