"""The command `hfcomp`."""

from __future__ import annotations

import pytest

import hfcomp
from hfcomp import cli
from hfcomp.experiments import program


def test_train_hands_recipe_and_fields_to_the_program(monkeypatch):
    called = []
    monkeypatch.setattr(program, "main", lambda *arguments: called.append(arguments))
    cli.main(["train", "slipform/real", "--max_steps", "3"])
    assert called == [("slipform/real", ["--max_steps", "3"])]


@pytest.mark.parametrize("words", [["trian", "slipform"], ["train"]])
def test_a_wrong_command_shows_the_usage(words):
    with pytest.raises(SystemExit, match="is no command.\nusage: hfcomp train RECIPE"):
        cli.main(words)


def test_version_and_help_are_printed(capsys):
    cli.main(["--version"])
    cli.main([])
    assert capsys.readouterr().out.startswith(f"{hfcomp.__version__}\nusage: hfcomp train RECIPE")
