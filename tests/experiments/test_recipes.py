"""Recipes: found in a clone and in an installed package, overridden by typed fields, refused when misspelt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hfcomp
from hfcomp.experiments import recipes
from hfcomp.experiments.recipes import find_recipe, read_recipe
from hfcomp.trainers.cement import CementTrainer


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "method: Mine\nobjective: hfcomp.trainers.cement:CementTrainer\ndataset: sandbox\nbatch_size: 8\n"
        "learning_rate: 1e-3\ncolumn_names: {caption: text}\ncontrols: []\n"
    )
    return str(path)


def test_a_recipe_without_arguments_is_the_methods_sandbox():
    found = read_recipe("slipform")
    assert found.trainer_class is CementTrainer
    assert found.experiment.dataset == "sandbox"
    assert not found.resume


def test_yaml_values_and_overrides_get_their_fields_type(recipe):
    found = read_recipe(recipe, ["--max_steps", "7", "--bf16", "false", "--freeze_towers", "image", "--resume"])
    assert found.trainer_arguments["learning_rate"] == 1e-3  # YAML reads 1e-3 as a text
    assert found.trainer_arguments["max_steps"] == 7
    assert found.trainer_arguments["bf16"] is False
    assert found.trainer_arguments["freeze_towers"] == ["image"]
    assert found.trainer_arguments["column_names"] == {"caption": "text"}
    assert found.resume


def test_an_override_wins_over_the_file(recipe):
    assert read_recipe(recipe, ["--batch_size=16", "--learning_rate", "0.5"]).experiment.batch_size == 16


def test_a_model_of_the_users_own_is_not_trained_with_the_sandboxs_values():
    with pytest.raises(ValueError, match=r"sandbox's tiny model \(learning_rate 0.001\).*slipform/vit_b32_coco"):
        read_recipe("slipform", ["--model", "openai/clip-vit-base-patch32", "--dataset", "my-org/my-pairs"])


def test_config_replaces_the_recipes_own_file(recipe):
    assert read_recipe("slipform", ["--config", recipe]).experiment.method == "Mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learning_rat", "1"], "command line: unknown field 'learning_rat'. Did you mean 'learning_rate'?"),
        (["--learn", "1"], "unknown field 'learn'"),
        (["--max_steps", "many"], "--max-steps: invalid int value: 'many'"),
        (["7"], "'7' belongs to no field"),
        (["--config"], "--config needs"),
        (["--margin", "adaptiv"], None),
        (["--per_device_train_batch_size", "4"], "set batch_size instead"),
        (["--hub_token", "hf_secret"], "hub_token would be written into the run's files"),
        (["--fresh_model", "vit_b64"], "expected one of sandbox, vit_b32"),
        (["--controls", "plane"], "controls names ['plane']; known: plain"),
        (["--objective", "hfcomp.trainers.cement:CementTrainr"], "expected module:class"),
        (["--objective", "json:JSONDecoder"], "no subclass of CompositionalTrainer"),
        (["--dataset", "$HFCOMP_NOT_SET/x"], "names an environment variable that is not set"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_way_out(recipe, arguments, message):
    if message is None:
        found = read_recipe(recipe, arguments)
        with pytest.raises(ValueError, match="margin='adaptiv': expected one of adaptive, static, inverse, none"):
            found.trainer_class.config_class(output_dir="x", margin=found.trainer_arguments["margin"])
        return
    with pytest.raises(ValueError) as caught:
        read_recipe(recipe, arguments)
    assert message in str(caught.value)


def test_an_unknown_key_in_the_file_names_the_file_and_the_nearest_key(recipe):
    Path(recipe).write_text(Path(recipe).read_text() + "max_step: 3\n")
    with pytest.raises(ValueError, match=r"mine.yaml: unknown field 'max_step'. Did you mean 'max_steps'\?"):
        read_recipe(recipe)


def test_a_batch_that_does_not_divide_by_the_processes_is_refused(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="batch_size=8 does not divide by 3 processes"):
        read_recipe(recipe)


def test_an_unknown_recipe_names_those_that_exist():
    with pytest.raises(FileNotFoundError, match=r"no recipe 'slipfrom'.*slipform/sandbox"):
        find_recipe("slipfrom")


def test_recipes_are_found_inside_an_installed_package(tmp_path, monkeypatch):
    """The wheel carries them as hfcomp/recipes; a clone has them beside the package."""
    package = tmp_path / "site-packages" / "hfcomp"
    shutil.copytree(recipes.recipes_folder(), package / "recipes")
    monkeypatch.setattr(hfcomp, "__file__", str(package / "__init__.py"))
    assert find_recipe("slipform") == package / "recipes" / "slipform" / "sandbox.yaml"
    assert find_recipe("slipform/real") == package / "recipes" / "slipform" / "real.yaml"


def test_recipes_are_found_beside_the_package_of_a_clone():
    assert find_recipe("slipform").parent.parent.parent == Path(hfcomp.__file__).parent.parent


@pytest.mark.parametrize("path", sorted(recipes.recipes_folder().glob("*/*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path, monkeypatch):
    for name in ("HFCOMP_REAL_DATA", "SUGARCREPE", "COCO"):
        monkeypatch.setenv(name, "/somewhere")
    found = read_recipe(str(path))
    arguments = {key: value for key, value in found.trainer_arguments.items() if key != "bf16"}
    found.trainer_class.config_class(**arguments)
