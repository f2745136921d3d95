"""Where the values of a run come from: what its card says of the recipe's comments and of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.experiments.origin import default_facts, multi_process_command, value_sources
from hfcomp.experiments.recipes import read_recipe
from hfcomp.trainers import CementConfig


def test_a_value_has_its_comment_in_the_file_or_is_of_the_command_line():
    origin = read_recipe("slipform", ["--seed", "3", "--max_steps", "5"]).origin
    assert origin.sources["batch_size"] == "ours"
    assert origin.sources["seed"] == origin.sources["max_steps"] == "set, on the command line"
    assert origin.recipe == "slipform/sandbox"
    assert origin.command == "hfcomp train slipform --seed 3 --max_steps 5"


def test_a_command_is_quoted_as_a_shell_reads_it():
    command = read_recipe("slipform", ["--primary", "sandbox: swap_att group"]).origin.command
    assert command == "hfcomp train slipform --primary 'sandbox: swap_att group'"


def test_a_recipe_of_the_user_s_own_is_named_by_its_folder_and_file(tmp_path: Path):
    path = tmp_path / "mine" / "small.yaml"
    path.parent.mkdir()
    path.write_text(
        "objective: hfcomp.trainers:CementTrainer  # paper: section 2\nmethod: Mine\ndataset: sandbox\n"
        "batch_size: 8 # chosen by eye\nmax_steps: 2\n"
    )
    origin = read_recipe(str(path)).origin
    assert origin.recipe == "mine/small"
    assert value_sources(path) == origin.sources
    assert origin.sources["batch_size"] == "chosen by eye" and origin.sources["max_steps"] == ""


@pytest.mark.parametrize(
    ("number", "command"),
    [(1, "hfcomp train slipform"), (2, "torchrun --nproc_per_node 2 -m hfcomp.cli train slipform")],
)
def test_a_run_on_several_processes_has_their_command(number, command):
    assert multi_process_command("hfcomp train slipform", number) == command


def test_defaults_are_listed_for_what_the_objective_adds_and_for_what_has_a_source():
    facts = default_facts(CementConfig, ["learning_rate"])
    assert facts["defaults"]["margin_threshold"] == 4.0 and "mini_batch_size" not in facts["defaults"]
    assert "learning_rate" not in facts["defaults"]  # it was set
    assert facts["default_sources"]["margin_threshold"] == "the paper, section 3"
    assert "NegCLIP" in facts["default_sources"]["warmup_steps"]
