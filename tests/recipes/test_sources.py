"""Every value of every recipe says where it comes from, and none comes from a default that nobody sees."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL.Image import Resampling
from torch import nn
from transformers import (
    BertConfig,
    CLIPImageProcessor,
    CLIPTextConfig,
    SiglipImageProcessor,
    SiglipTextConfig,
    ViTImageProcessor,
)

from hfcomp.experiments.origin import value_sources
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.experiments.recipes import read_recipe
from hfcomp.families import FAMILIES, Family
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


# Settings that a recipe can leave to a default

TABLE = yaml.safe_load((Path(__file__).parent / "sources.yaml").read_text())["sources"]
PROCESSORS = {"clip": CLIPImageProcessor, "siglip": SiglipImageProcessor, "dual": ViTImageProcessor}
TEXTS = {"clip": CLIPTextConfig, "siglip": SiglipTextConfig, "dual": BertConfig}
POOLING = {"causal": "end token", "read": "last token", "masked": "own pooler"}


def effective_settings(name: str) -> dict[str, Any]:
    """What a recipe trains with, defaults of trainer and family included, in the words of sources.yaml."""
    recipe = read_recipe(name)
    half = [kind for kind in ("bf16", "fp16") if recipe.trainer_arguments.get(kind)]
    given = {key: value for key, value in recipe.trainer_arguments.items() if key not in half}
    config = recipe.trainer_class.config_class(**given, use_cpu=True)
    kind = next((kind for kind in ("siglip", "clip") if kind in str(recipe.experiment.model)), "dual")
    family, processor = FAMILIES.get(kind, Family()), PROCESSORS[kind]()
    weights = nn.ModuleDict({"linear": nn.Linear(2, 2), "norm": nn.LayerNorm(2)})
    augments = [field.name for field in fields(config) if re.search("flip|jitter|augment", field.name)]
    return {
        "random_crop": config.random_crop,
        "cropped": "model's square" if config.random_crop < 1 else "nothing",
        "augmentation": ", ".join(augments) or "none",
        "interpolation": Resampling(processor.resample).name.lower(),
        "resize": "shorter side" if "shortest_edge" in processor.size else "square",
        "precision": f"{half[0]} mixed" if half else "fp32",
        "max_grad_norm": config.max_grad_norm,
        "schedule": str(config.lr_scheduler_type.value),
        "warmup_steps": config.warmup_steps,
        "optimizer": "AdamW" if config.decoupled_weight_decay else "Adam",
        "betas": [config.adam_beta1, config.adam_beta2],
        "epsilon": config.adam_epsilon,
        "weight_decay": config.weight_decay,
        "decayed": "matrices"
        if recipe.trainer_class.get_decay_parameter_names(None, weights) == ["linear.weight"]
        else "all",
        "scale_limit": family.max_scale if config.max_logit_scale is None else config.max_logit_scale,
        "drop_last": config.dataloader_drop_last,
        "text_tokens": TEXTS[kind]().max_position_embeddings,
        "text_pooling": POOLING[family.padding],
    }


@pytest.mark.parametrize("name", [name for source in TABLE for name in source["recipes"]])
def test_what_a_recipe_leaves_to_a_default_is_what_its_source_trains_with(name):
    """A difference is listed with its reason, and is one."""
    source = next(source for source in TABLE if name in source["recipes"])
    actual = effective_settings(name)
    differs = {setting: own for setting, own in source.get("differs", {}).items() if own}
    expected = {setting: value for setting, (value, _) in source["settings"].items()}
    ours = {setting: value for setting, (value, _) in differs.items()}
    assert {setting: actual[setting] for setting in expected} == expected | ours
    assert all(reason and expected[setting] != ours[setting] for setting, (_, reason) in differs.items())


def test_every_recipe_of_a_paper_is_in_the_table():
    """All but those whose every value is our choice."""
    papers = {recipe_name(path) for path in RECIPES if path.stem.startswith(("vit_b32", "siglip_", "released_vit"))}
    assert papers | {"lit/coco"} == {name for source in TABLE for name in source["recipes"]} | {"dcl/vit_b32_coco"}
