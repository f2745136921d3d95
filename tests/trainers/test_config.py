"""Defaults of the optimizer: those of each objective's recipe, with their source, for controls too."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hfcomp.experiments.arm import method_arm
from hfcomp.experiments.controls import plain
from hfcomp.experiments.recipes import read_recipe
from hfcomp.trainers.config import OPTIMIZATION, CompositionalConfig
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import build

RECIPES = (
    *("slipform/vit_b32_coco", "ahnpl/vit_b32_coco", "ahnpl/released_vit_b32_coco", "c2lip/siglip_cc3m"),
    *("ceclip/vit_b32_coco", "clear_glass/vit_b32_magic", "clear_glass/vit_b32_concept_alignment"),
    *("dcl/vit_b32_coco", "hard_negatives/vit_b32_coco", "hierarcaps/vit_b32", "negclip/vit_b32_coco"),
    "tripletclip/vit_b32_pairs",
)
# The paper's 1e-8 moves no weight near 1: the recipe is the paper's, the default is ours.
DIFFERENT = {("clear_glass/vit_b32_magic", "learning_rate")}


@pytest.mark.parametrize("name", RECIPES)
def test_defaults_are_those_of_the_recipe_and_name_their_source(name):
    recipe = read_recipe(name, ["--bf16", "false"])
    known = {field.name: field for field in fields(recipe.trainer_class.config_class)}
    of_transformers = {field.name for field in fields(CompositionalConfig.__mro__[1])}
    for field in OPTIMIZATION:
        if field in recipe.trainer_arguments and (name, field) not in DIFFERENT:
            assert known[field].default == recipe.trainer_arguments[field], field
        if field in of_transformers and field in recipe.trainer_arguments:
            assert f"Default {known[field].default}: " in known[field].metadata["help"]


def test_a_control_is_trained_as_the_method_where_the_recipe_is_silent(tmp_path):
    text = (
        "method: mine\nobjective: hfcomp.trainers.ahnpl:AHNPLTrainer\ndataset: sandbox\nbatch_size: 4\n"
        "max_grad_norm: 0.5\ncontrols: [plain]\n"
    )
    (tmp_path / "mine.yaml").write_text(text)
    method = method_arm(read_recipe(str(tmp_path / "mine.yaml"), []), None)
    arguments = plain(method).arguments
    assert (arguments["learning_rate"], arguments["max_grad_norm"]) == (2.0e-5, 0.5)
    assert method.arguments["learning_rate"] == 2.0e-5


@pytest.mark.parametrize(("warmup", "said"), [(4, True), (2, False), (0.5, False)])
def test_a_warm_up_longer_than_training_is_said(warmup, said, clip, pairs, tmp_path, capsys):
    build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=4, warmup_steps=warmup).train()
    assert ("warmup_steps=4, but training has only 4 steps" in capsys.readouterr().out) == said
