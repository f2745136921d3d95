"""The help of a recipe: what matters first, on two screens; everything where it is asked for."""

from __future__ import annotations

from dataclasses import fields

import pytest
from transformers import TrainingArguments

from hfcomp.cli import main as hfcomp_main
from hfcomp.experiments.command import main, recipe_help
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipe_files import recipe_files, recipes_folder
from hfcomp.trainers.cement import CementConfig


@pytest.mark.parametrize("path", recipe_files(recipes_folder()), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_fits_on_two_screens_and_names_every_field(path):
    shown = recipe_help(str(path))
    assert len(shown.splitlines()) <= 100
    assert all(f"--{name}" in shown for name in ExperimentConfig.model_fields)


def test_help_all_has_the_whole_help_of_every_field_of_hfcomp(capsys):
    main("slipform", ["--help-all"])
    shown = " ".join(capsys.readouterr().out.split())
    theirs = {f.name for f in fields(TrainingArguments)}
    own = {f.name: f.metadata["help"] for f in fields(CementConfig) if f.init and f.name not in theirs}
    for name, text in {**own, **{key: f.description for key, f in ExperimentConfig.model_fields.items()}}.items():
        assert f"--{name} " in shown and " ".join(text.split()) in shown, name


def test_a_long_help_ends_with_a_whole_sentence():
    shown = recipe_help("slipform")
    assert "a fraction of the memory." in " ".join(shown.split()) and "Gradient accumulation does not" not in shown
    assert not any(line.endswith(" ...") for line in shown.splitlines())


@pytest.mark.follows("hfcomp/cli/train.py", "`hfcomp train RECIPE --help` lists the recipe's fields and their values.")
def test_the_help_of_train_names_the_help_of_a_recipe(capsys):
    hfcomp_main(["train", "slipform", "--help"])
    assert "--margin adaptive" in capsys.readouterr().out
