"""Every value of every recipe says where it comes from, and none comes from a default that nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hfcomp.experiments.origin import value_sources
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from hfcomp.reporting.cards.methods import PLUMBING, whose

RECIPES = recipe_files(recipes_folder())
SOURCES = {"paper's", "code's", "ours"}
OPTIMIZER = {
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay"),
    *("adam_beta2", "adam_epsilon", "max_grad_norm"),
}
# repositories whose training scripts and their defaults clip no gradient, and recipes that follow one of them
CLIP_NOTHING = {
    *("ahnpl/vit_b32_coco", "ahnpl/released_vit_b32_coco", "c2lip/siglip_cc3m", "ceclip/vit_b32_coco"),
    *("negclip/vit_b32_coco", "tripletclip/vit_b32_pairs", "dcl/vit_b32_coco", "hierarcaps/vit_b32"),
    *("slipform/vit_b32_coco", "slipform/real"),
}


def recipe_name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", RECIPES, ids=recipe_name)
def test_every_value_says_paper_code_or_ours(path):
    comments = value_sources(path)
    assert set(comments) == set(yaml.safe_load(path.read_text()))
    unsaid = [name for name, said in comments.items() if name not in PLUMBING and whose(said)[0] not in SOURCES]
    assert unsaid == []


@pytest.mark.parametrize("path", RECIPES, ids=recipe_name)
def test_gradient_clipping_is_never_a_default_of_transformers(path):
    given = yaml.safe_load(path.read_text())
    assert "max_grad_norm" in given
    if "sandbox" not in path.stem and path.stem != "text_alignment":
        assert given.keys() >= OPTIMIZER


@pytest.mark.parametrize("name", sorted(CLIP_NOTHING))
def test_what_the_released_code_does_not_clip_is_not_clipped(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(tmp_path))
    assert read_recipe(name, ["--use_cpu", "true"]).trainer_arguments["max_grad_norm"] == 0


# Recipes whose code trains with open_clip's RandomResizedCrop(0.9, 1). The others train without augmentation.
CROPPED = {
    *("ahnpl/vit_b32_coco", "ahnpl/released_vit_b32_coco", "c2lip/siglip_cc3m", "ceclip/vit_b32_coco"),
    "negclip/vit_b32_coco",
}


@pytest.mark.parametrize("path", RECIPES, ids=recipe_name)
def test_images_are_cropped_as_in_the_code_that_a_recipe_follows(path):
    expected = 0.9 if recipe_name(path) in CROPPED else 1.0
    assert yaml.safe_load(path.read_text()).get("random_crop", 1.0) == expected


# which contrast no rows with each other
NOTHING_CONTRASTED = {"hierarcaps/sandbox", "hierarcaps/vit_b32"}
OWN_CHOICE = {"negclip/own", "clear_glass/factory", "slipform/factory", "slipform/real"}
OWN_CHOICE |= {"clear_glass/vit_b32_concept_alignment"}


@pytest.mark.parametrize("path", RECIPES, ids=recipe_name)
def test_it_says_whether_equal_texts_are_negatives(path):
    """In a paper's recipe they are what its code makes of them, and no code masks them."""
    given = yaml.safe_load(path.read_text())
    if recipe_name(path) not in NOTHING_CONTRASTED:
        assert given["mask_equal_texts"] == (recipe_name(path) in OWN_CHOICE)


@pytest.mark.follows("hfcomp/trainers/_support/row_report.py", "(--mask_equal_texts false)")
def test_the_plain_loss_is_restored_on_the_command_line():
    loaded_recipe = read_recipe("negclip/own", ["--use_cpu", "true", "--mask_equal_texts", "false"])
    assert loaded_recipe.trainer_arguments["mask_equal_texts"] is False


def test_c2lip_clamps_the_scale_as_its_code_does():
    assert read_recipe("c2lip/siglip_cc3m", ["--use_cpu", "true"]).trainer_arguments["max_logit_scale"] == 100
