"""The command `hfcomp`."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import hfcomp
from hfcomp import cli
from hfcomp.experiments import command
from hfcomp.experiments.experiment_config import ExperimentConfig


def test_train_hands_recipe_and_fields_to_the_program(monkeypatch):
    called = []
    monkeypatch.setattr(command, "main", lambda *arguments: called.append(arguments))
    cli.main(["train", "slipform/real", "--max_steps", "3"])
    assert called == [("slipform/real", ["--max_steps", "3"])]


@pytest.mark.parametrize("name", ["evaluate", "compare", "attention", "build", "cache", "push-metrics"])
def test_the_other_commands_get_their_words(name, monkeypatch):
    called = []
    module = import_module(cli.COMMANDS[name])
    monkeypatch.setattr(module, "main", called.append)
    cli.main([name, "a", "--flag"])
    assert called == [["a", "--flag"]]


@pytest.mark.parametrize("words", [["trian", "slipform"], ["train"]])
def test_a_wrong_command_shows_the_usage(words):
    with pytest.raises(SystemExit, match="is no command.\nusage: hfcomp COMMAND"):
        cli.main(words)


def test_version_and_help_are_printed(capsys):
    cli.main(["--version"])
    cli.main([])
    assert capsys.readouterr().out.startswith(f"{hfcomp.__version__}\nusage: hfcomp COMMAND")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_before_a_recipe_is_the_usage(flag, capsys):
    cli.main(["train", flag])
    assert capsys.readouterr().out.startswith("usage: hfcomp COMMAND")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_help_of_a_recipe_shows_its_path_fields_and_values(flag, capsys):
    cli.main(["train", "slipform", "--config=slipform/real", flag])
    shown = capsys.readouterr().out
    assert re.match(r"recipe: .*slipform/real\.yaml\n", shown)
    assert "every field of transformers' TrainingArguments" in shown
    # the experiment's, the trainer's own, and those of transformers that the recipe sets
    assert "--batch_size 32  (recipe)\n    Rows of the contrastive batch" in shown
    assert "--dataset $HFCOMP_REAL_DATA/coco_open_256.jsonl  (recipe)" in shown
    assert "--margin adaptive\n" in shown and "--mini_batch_size (unset)\n    Images and texts" in shown
    assert "--learning_rate 1.0e-05" in shown
    assert "--adam_epsilon" in shown and "--push_to_hub" not in shown


def test_every_field_of_hfcomp_has_a_help_text():
    for name, field in ExperimentConfig.model_fields.items():
        assert field.description.endswith("."), name


def test_the_recipe_prints_its_help():
    root = Path(hfcomp.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "recipes/slipform.py", "--help"], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("recipe: ") and "slipform/sandbox.yaml" in done.stdout.splitlines()[0]
