"""The settings for `accelerate launch` in `recipes/accelerate` are those that accelerate reads."""

from __future__ import annotations

import re

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.recipes.accelerate_files import FOLDER, fsdp_environment, launch_settings

FILES = {"one_gpu": (1, 1), "several_gpus": (8, 1), "several_nodes": (16, 2), "fsdp": (8, 1)}


def test_every_file_is_named_here():
    assert {path.stem for path in FOLDER.iterdir()} == FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_accelerate_starts_the_processes_of_a_file(name):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    settings = launch_settings(name)
    assert (
        (settings.num_processes, settings.num_machines) == (config.num_processes, config.num_machines) == FILES[name]
    )
    assert settings.use_fsdp == (name == "fsdp")
    assert settings.multi_gpu == name.startswith("several")
    assert settings.mixed_precision == "no" and not settings.cpu
    assert settings.training_script == "recipes/slipform.py"


@pytest.mark.parametrize("name", FILES)
def test_the_command_in_a_file_starts_it(name):
    (command,) = re.findall(r"^# (?:.*: )?accelerate launch (.*)$", (FOLDER / f"{name}.yaml").read_text(), re.M)
    words = command.split()
    assert words[:2] == ["--config_file", f"recipes/accelerate/{name}.yaml"]
    assert words[-1] == "recipes/slipform.py"
    assert launch_settings(name, *words[2:-1]).machine_rank == 0


def test_another_number_of_gpus_or_machine_is_an_option():
    assert launch_settings("several_gpus", "--num_processes", "4").num_processes == 4
    assert launch_settings("several_nodes", "--machine_rank", "1").machine_rank == 1


def test_sharding_is_fsdp2_of_the_towers_layers():
    environment = fsdp_environment()
    assert environment["ACCELERATE_USE_FSDP"] == "true" and environment["FSDP_VERSION"] == "2"
    assert environment["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"
    assert "FSDP_TRANSFORMER_CLS_TO_WRAP" not in environment
