"""Every baseline's recipe on the sandbox, made small: it trains, is scored, and leaves a plain model (about 28 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from transformers import AutoModel

from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.experiments.arm import method_arm
from hfcomp.experiments.data import training_rows
from hfcomp.experiments.program import run
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from tests import tiny
from tests.trainers.group_rows import add_groups

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = [
    *("--dataset_rows", "64", "--batch_size", "8", "--max_steps", "2", "--evaluation_items", "5"),
    *("--logging_steps", "1", "--save_strategy", "no", "--disable_tqdm", "true"),
    *("--controls", "none", "--page", "false"),
]
RECIPES = {
    "hard_negatives": {"hard_negative_accuracy"},
    "negclip": {"hard_negative_accuracy", "unrelated_neighbor_share"},
    "ceclip": {"loss_negative_margin", "loss_intra_modal", "active_negative_margins"},
    "ahnpl": {"loss_visual_negative", "loss_textual_negative", "loss_positive_margin", "margin"},
    "ahnpl/released_sandbox": {"loss_visual_target", "loss_textual_target", "loss_logit_margin"},
    "tripletclip": {"loss_negative_image_to_text"},
    "dcl": {"loss_image_to_text"},
    "c2lip": {"loss_concept", "loss_cross_attended"},
    "clear_glass": {"loss_outer", "loss_inner", "accuracy_inner", "changed_weight_fraction"},
    "clear_glass/released_sandbox": {"loss_outer", "loss_inner"},
    "clear_glass/text_alignment": {"loss_caption_to_generalized"},
    "hierarcaps": {"loss_entailment", "loss_hardest", "loss_pullback", "accuracy_entailment"},
}
SANDBOX_SETS = ("sandbox", "sandbox keywords", "sandbox levels")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def held_out(tmp_path_factory) -> str:
    """Few rows to score: the sandbox's own tests, which take longer, do not hang on the objective."""
    folder = tmp_path_factory.mktemp("held_out")
    add_groups(tiny.pairs(6)).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize(("name", "logged"), RECIPES.items())
def test_a_small_run_leaves_a_plain_model_and_its_results(name, logged, held_out, tmp_path):
    keywords = name == "hard_negatives"
    scored = [] if keywords else ["--evaluation", "own", "--evaluation_dataset", held_out]
    grouped = ["--pairs_per_group", "4"] if "loss_inner" in logged else []
    folder = run(read_recipe(name, [*SMALL, *grouped, *scored, "--output_dir", str(tmp_path / "run")]))
    _, report = AutoModel.from_pretrained(folder / "method", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert logged <= set().union(*json.loads((folder / "method" / "history.json").read_text()))
    results = json.loads((folder / "results.json").read_text())
    lines = {(line["benchmark"], line["subset"], line["metric"]) for line in results["results"]}
    assert (("sandbox keywords", "color", "top-1") if keywords else ("own", "all", "caption choice")) in lines
    images = {"negclip": 2, "tripletclip": 2, "clear_glass/text_alignment": 0, "hierarcaps": 0}.get(name, 1)
    assert results["stages"][-1]["images"] == 2 * 8 * images


@pytest.mark.parametrize("path", recipe_files(recipes_folder()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_of_the_package_is_one_that_can_start(path: Path, monkeypatch, tmp_path):
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(tmp_path))
    recipe = read_recipe(str(path), ["--use_cpu", "true"])
    method_arm(recipe, None).check()
    assert set(yaml.safe_load(path.read_text())) <= set(recipe.given)


@pytest.mark.parametrize("path", recipe_files(recipes_folder()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_names_a_primary_endpoint_that_it_evaluates(path: Path, monkeypatch, tmp_path):
    """But for sets of the user's own, which may have no negatives: there the default is caption choice."""
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(tmp_path))
    config = read_recipe(str(path)).experiment
    titles = (
        [benchmark.title for benchmark in find_benchmarks(config.evaluation_benchmarks)]
        if config.evaluation_benchmarks
        else []
    )
    for source, means in MEANS.items():
        titles += [source] * all(title in titles for mean in means for title, _, _ in mean.parts)
    known = {"own": [None], "benchmarks": titles}.get(config.evaluation, [*titles, *SANDBOX_SETS])
    assert (config.primary and config.primary.partition(": ")[0]) in known
    assert read_recipe(str(path), ["--evaluation", "own"]).experiment.primary is None


def test_neighbors_that_nobody_reads_are_refused():
    with pytest.raises(ValueError, match="hard_images=3 .*num_neighbors"):
        read_recipe("negclip", ["--num_neighbors", "0"])
    with pytest.raises(ValueError, match="hard_images=.* --model"):
        read_recipe("negclip", ["--fresh_model", "vit_b32"])


def test_clear_glass_trains_on_generalized_captions_of_the_sandbox():
    recipe = read_recipe("clear_glass", ["--dataset_rows", "64"])
    names = recipe.trainer_arguments["column_names"]
    rows = training_rows(recipe.experiment, column_names=names, seed=0, log=print)
    assert "generalized_caption" not in rows.column_names
    assert all("figure" in caption for caption in rows["caption"])
