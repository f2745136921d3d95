"""Whether the commands of the pages are accepted by the parsers that would read them; nothing is run."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
import tomllib
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from hfcomp.cli import COMMANDS
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.experiments.command import recipe_help
from hfcomp.experiments.recipe_fields import split_options
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.factory.builder import builders
from hfcomp.factory.publishing import parser as builder_parser
from tests.docs.snippets import ROOT, blocks

OTHERS = {"tensorboard", "wandb", "trackio", "hf"}
"""Programs of others, whose options are not looked at."""
LAUNCHERS = {"accelerate", "torchrun", "python"}
SCRIPT = re.compile(r"(recipes|dataset_builders)/(\w+)(?:/(\w+))?\.py")


def check_command(words: Sequence[str]) -> None:
    """Checks one line of a shell block.

    Raises:
        ValueError: for words that no parser accepts, or a program that is not known here.
    """
    first, *rest = words
    if first == "hfcomp":
        check_hfcomp(rest)
    elif first == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        _expect(rest and {word for word in rest if "=" not in word} <= {*targets}, f"make has no target {rest}")
    elif first == "pip" and rest[:1] == ["install"]:
        _check_extras(" ".join(rest))
    elif first in LAUNCHERS:
        _check_launched(first, rest)
    elif first not in OTHERS:
        raise ValueError(f"unknown program {first!r}: mark the block with <!-- needs ... -->")


def check_hfcomp(words: Sequence[str]) -> None:
    """Checks the words after `hfcomp`, by `parser()` of the command's file, or `<word>_parser()` of its first word."""
    name, *rest = words
    if name in ("--help", "--version"):
        return
    _expect(name in COMMANDS, f"hfcomp has no command {name!r}")
    if name == "train":
        return check_recipe(rest[0], rest[1:])
    module = import_module(COMMANDS[name])
    if "--list" in rest:
        module = import_module("hfcomp.cli.list_benchmarks")
    parse = parser_of(module, rest)
    given = parse.parse_intermixed_args(rest) if name == "evaluate" else parse.parse_args(rest)
    if "--list" not in rest:
        wrong = {*(getattr(given, "models", None) or ())} & {*benchmarks()}
        _expect(not wrong, f"benchmarks where models are expected: {wrong}")


def check_recipe(name: str, words: Sequence[str]) -> None:
    """Reads the recipe, or its plan, with these overrides."""
    options, _ = split_options(words)
    if options.help or options.help_all:
        recipe_help(name, words, everything=options.help_all)
    elif options.report is None and options.search is None:
        read_recipe(name, [*words, "--use_cpu", "true"])
    else:
        read_plan(name, [*words, "--use_cpu", "true"])


def my_module() -> ModuleType:
    """The objective of docs/adding_an_objective.md as the file that pages call `my_module.py`."""
    (block,) = blocks("docs/adding_an_objective.md")
    module = ModuleType("my_module")
    exec(block, module.__dict__)
    return module


def parser_of(module: ModuleType, words: list[str]) -> argparse.ArgumentParser:
    special = getattr(module, f"{words[0]}_parser", None) if words else None
    if special is not None:
        words.pop(0)
    return (special or module.parser)()


def _check_launched(first: str, words: Sequence[str]) -> None:
    if first == "python" and words[:1] == ["-c"]:
        compile(words[1], "<command>", "exec")
        return
    if "hfcomp.cli" in words:
        return check_hfcomp(words[words.index("hfcomp.cli") + 1 :])
    place = next((place for place, word in enumerate(words) if word.endswith(".py")), None)
    match = SCRIPT.fullmatch(words[place]) if place is not None else None
    _expect(match and (ROOT / words[place]).is_file(), f"no script of this repository in {words}")
    folder, name, script = match.groups()
    if folder == "recipes" and (parser := runpy.run_path(str(ROOT / words[place])).get("parser")):
        parser().parse_args(words[place + 1 :])
    elif folder == "recipes":
        check_recipe(name, words[place + 1 :])
    elif script == "build":
        builder_parser(builders()[name].options).parse_args(words[place + 1 :])
    else:
        raise ValueError(f"{words[place]} is run by `make`")


def _check_extras(words: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"hfcomp\[([\w,]+)\]", words):
        _expect({*names.split(",")} <= extras.keys(), f"hfcomp has no extra {names!r}")


def _expect(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


sys.modules.setdefault("my_module", my_module())
