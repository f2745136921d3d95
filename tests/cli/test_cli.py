"""The command `hfcomp`."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from datasets.exceptions import DatasetsError

import hfcomp
from hfcomp import cli
from hfcomp.cli import page
from hfcomp.experiments import command
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.reporting.pages.items import DEFAULT_PAGE
from hfcomp.statistics.summary import TIE_RULES
from tests import processes


def test_train_hands_recipe_and_fields_to_the_program(monkeypatch):
    called = []
    monkeypatch.setattr(command, "main", lambda *arguments: called.append(arguments))
    cli.main(["train", "slipform/real", "--max_steps", "3"])
    assert called == [("slipform/real", ["--max_steps", "3"])]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_gets_its_words(name, monkeypatch):
    called = []
    monkeypatch.setattr(import_module(cli.COMMANDS[name]), "main", called.append)
    cli.main([name, "a", "--flag", "--traceback"])
    assert called == [["a", "--flag"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian", "slipform"], "error: unknown command 'trian'. Did you mean 'train'? `hfcomp --help` lists"),
        (["--flag"], "error: unknown command '--flag'. `hfcomp --help` lists the commands."),
        (["train"], "error: hfcomp train needs a recipe"),
        (["train", "--max_steps", "3"], "error: hfcomp train needs a recipe"),
        (["train", "nothing/at/all"], "nothing/at/all"),
    ],
)
def test_a_wrong_command_ends_in_one_line(words, message):
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert message in str(stopped.value) and "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(2, "No such file", "a.txt"), ImportError("pip install x"), DatasetsError("no")]
)
def test_a_mistake_ends_in_one_line_unless_the_whole_is_asked_for(error, monkeypatch):
    def fail(_):
        raise error

    monkeypatch.setattr(import_module("hfcomp.cli.cache"), "main", fail)
    with pytest.raises(SystemExit, match=r"^error: .*(no|a\.txt|pip install x)"):
        cli.main(["cache"])
    with pytest.raises(type(error)):
        cli.main(["cache", "--traceback"])
    monkeypatch.setenv("HFCOMP_TRACEBACK", "1")
    with pytest.raises(type(error)):
        cli.main(["cache"])


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(import_module("hfcomp.cli.cache"), "main", lambda _: {}["key"])
    with pytest.raises(KeyError):
        cli.main(["cache"])


def test_version_and_usage_are_printed(capsys):
    cli.main(["--version"])
    cli.main([])
    shown = capsys.readouterr().out
    assert shown.startswith(f"{hfcomp.__version__}\nusage: hfcomp COMMAND")
    assert all(f"  hfcomp {name} " in shown for name in cli.COMMANDS)


def test_the_usage_needs_no_package_of_others():
    code = "import sys; from hfcomp.cli import main; main([]); print({'torch', 'datasets', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("set()\n"), done.stderr[-2000:]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_before_a_recipe_lists_the_recipes(flag, capsys):
    cli.main(["train", flag])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: hfcomp train RECIPE")
    assert "\n  slipform slipform/factory slipform/real slipform/sandbox slipform/vit_b32_coco\n" in shown  # no sweep


@pytest.mark.parametrize("name", ["evaluate", "compare", "attention", "levels", "build", "cache", "push-metrics"])
def test_each_command_has_its_help(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    assert stopped.value.code == 0 and capsys.readouterr().out.startswith(f"usage: hfcomp {name}")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_help_of_a_recipe_shows_its_path_fields_and_values(flag, capsys):
    cli.main(["train", "slipform", "--config=slipform/real", flag])
    shown = capsys.readouterr().out
    assert re.match(r"recipe: .*slipform/real\.yaml\n", shown)
    assert "fields of transformers' TrainingArguments" in shown
    # the experiment's, the trainer's own, and those of transformers that the recipe sets
    assert "--batch_size 32  (recipe)\n    Rows per contrastive batch" in shown
    assert "--dataset $HFCOMP_REAL_DATA/coco_open_256.jsonl  (recipe)" in shown
    assert "--margin adaptive\n" in shown and "--mini_batch_size (unset)\n    Images and texts" in shown
    assert "--learning_rate 1.0e-05" in shown
    assert "--adam_epsilon" in shown and "--push_to_hub" not in shown


def test_what_is_written_down_to_start_fast_is_as_the_library_has_it():
    assert get_args(page.Tie) == (*TIE_RULES,) and DEFAULT_PAGE.items == page.PAGE_ITEMS


def test_every_field_of_hfcomp_has_a_help_text():
    for name, field in ExperimentConfig.model_fields.items():
        assert field.description.endswith("."), name


def test_the_recipe_prints_its_help():
    root = Path(hfcomp.__file__).parents[1]
    done = processes.run(["recipes/slipform.py", "--help"], cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("recipe: ") and "slipform/sandbox.yaml" in done.stdout.splitlines()[0]
