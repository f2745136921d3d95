"""What `accelerate launch` makes of the files in `recipes/accelerate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from packaging.version import Version

from hfcomp.experiments.recipe_files import recipes_folder
from hfcomp.trainers._support.fsdp_checks import LOWEST

FOLDER = recipes_folder() / "accelerate"
needs_fsdp = pytest.mark.skipif(
    any(Version(package.__version__) < Version(LOWEST[package.__name__]) for package in (torch, transformers)),
    reason=f"FSDP needs {LOWEST}",
)


def launch_settings(name: str, *options: str) -> Any:
    """The settings that `accelerate launch` has with a file and options."""
    words = ["--config_file", str(FOLDER / f"{name}.yaml"), *options, "recipes/slipform.py"]
    return _validate_launch_command(launch_command_parser().parse_args(words))[0]


def fsdp_environment() -> dict[str, str]:
    """The variables with which it starts each process for FSDP."""
    made = prepare_multi_gpu_env(launch_settings("fsdp"))
    return {key: value for key, value in made.items() if key.startswith(("FSDP_", "ACCELERATE_USE_FSDP"))}
