"""The `hfcomp` command line. Each command is a module that is imported only when the command is called.

A command module has `main(arguments)`. Another installed package adds a command through an entry point of the group
`hfcomp.commands`; its module also has `USAGE` and `SUMMARY`, see docs/design.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, runtime_checkable

from hfcomp.errors import FLAG, one_line_errors
from hfcomp.plugins import find_plugins, load_plugin

COMMANDS = {
    "train": "hfcomp.cli.train",
    "evaluate": "hfcomp.cli.evaluate",
    "compare": "hfcomp.cli.compare",
    "reproduce": "hfcomp.cli.reproduce",
    "merge": "hfcomp.cli.merge",
    "attention": "hfcomp.analysis.commands.attention",
    "levels": "hfcomp.analysis.commands.levels",
    "analyze": "hfcomp.analysis.commands.analyze",
    "probe": "hfcomp.analysis.commands.probe",
    "gallery": "hfcomp.analysis.commands.gallery",
    "audit": "hfcomp.analysis.commands.audit",
    "build": "hfcomp.factory.command",
    "annotate": "hfcomp.annotate.command",
    "convert": "hfcomp.convert.command",
    "push": "hfcomp.cli.push",
    "push-dataset": "hfcomp.cli.push_dataset",
    "push-metrics": "hfcomp.cli.push_metrics",
    "cache": "hfcomp.cli.cache",
    "doctor": "hfcomp.cli.doctor",
}
"""Modules of the built-in commands, in the order of the help. This is a table rather than entry points because the
entry points of a checkout change only when it is reinstalled."""
# The help of these commands is written out here because `hfcomp --help` must not import any of them.
COMMAND_HELP = """\
  hfcomp train RECIPE [--config FILE] [--report SWEEP | --search [FILE]] [--field value ...]
      train and compare a recipe's base, controls and method; `hfcomp train RECIPE --help` lists its fields and values
  hfcomp evaluate MODEL [MODEL ...] --suite compositional|general|all, or --benchmarks A,B
      score models from the Hub or from folders side by side; --list lists the benchmarks
  hfcomp compare A B [C ...]
      compare stored results without loading a model
  hfcomp reproduce [MODEL ...] [--benchmarks A,B] [--page FILE]
      compare measured with published numbers for three checkpoints on five benchmarks; needs a connection
  hfcomp merge BASE TUNED --alpha X|--sweep --output_dir DIR
      interpolate between a base and a tuned model (WiSE-FT): at a point you give, or the best one according to a rule
  hfcomp attention MODEL [MODEL] --image FILE --text PHRASE
      show which parts of an image each model attends to for a phrase, and the difference
  hfcomp levels MODEL [MODEL ...] [--data DIR]
      plot accuracy by level of abstraction, and the joint image and text embeddings by group
  hfcomp analyze SET [SET ...], as in high=DIR low=DIR, or magic DIR
      measure concreteness, hardness and similarity of hard negative pairs; or show a concept hierarchy as a page
  hfcomp probe MODEL --dataset DATASET [--batch_sizes 256 1024] [--margins 0 1 2]
      test without training whether a margin can matter, from the hard negative's share of the gradient
  hfcomp gallery DATASET [--models A B], or DATASET --apply marks.json --output DIR
      show pairs side by side on an HTML page with scores and filters; or write the dataset without rows marked to drop
  hfcomp audit DATASET [--model ID] [--fail_if "blind>60"]
      check a benchmark or dataset for blind rules, probes, duplicates, overlap and false negatives; exit status for CI
  hfcomp build negatives|concepts|neighbors|concretebatch|magic|inpaintcoco|pixels
      --source DATASET --output DIR, or verify DIR
      build datasets with hard negatives, pairs, noun phrases, nearest images or a hierarchy; re-run to resume
  hfcomp annotate PROJECT [--source DATASET], or progress PROJECT, or draft PROJECT, or add_person NAME --people FILE
      edit the masked part of images from a prompt: by hand on a page (annotators, reviewers), or as automatic drafts
  hfcomp convert SOURCE --output DIR [--pretrained TAG] [--to open_clip | --to llava --llava MODEL]
      convert open_clip, NegCLIP and similar checkpoints to CLIPModel or back, or put an image tower into a LLaVA
  hfcomp push RUN --repo NAME [--private] [--revision BRANCH] [--model controls/plain]
      upload a trained model with processor, card and results to the Hub; re-run to resume an interrupted upload
  hfcomp push-dataset DIR --repo NAME, or CONFIG=DIR CONFIG=DIR --repo NAME
      verify a built dataset and upload it to the Hub; re-run to resume an interrupted upload
  hfcomp push-metrics --namespace NAME
      upload hfcomp's metrics as Spaces that `evaluate.load` can load
  hfcomp cache [clear] [--model NAME] [--older_than DAYS]
      list or clear cached embeddings and image hashes
  hfcomp doctor [--json]
      check this machine's versions, devices, caches and Hub access, and list what to fix
"""
ENTRY_POINTS = "hfcomp.commands"


@runtime_checkable
class Command(Protocol):
    """The interface of a command module from another package."""

    USAGE: str
    SUMMARY: str

    def main(self, arguments: Sequence[str]) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command: the entry point of the console script. Arguments default to those of the process.

    A user error prints one line and exits with status 1. `--traceback` or HFCOMP_TRACEBACK=1 shows the traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name, *rest = words or ["--help"]
    if name == "--version":
        from hfcomp import __version__

        print(__version__)
        return
    with one_line_errors(traceback_wanted=FLAG in rest):
        if name in ("-h", "--help"):
            print(usage())
        else:
            find_command(name).main([word for word in rest if word != FLAG])


def usage() -> str:
    """Returns the help text that lists all commands."""
    lines = []
    try:
        for name, plugin in find_plugins(ENTRY_POINTS, COMMANDS).items():
            command = load_plugin(plugin, Command)
            lines.append(f"  hfcomp {name} {command.USAGE}\n      {command.SUMMARY}\n")
    except ValueError as error:  # a broken package must not hide the help of the other commands
        lines.append(f"  error: {error}\n")
    end = "Run `hfcomp COMMAND --help` for details; add --traceback to see where an error was raised."
    return f"usage: hfcomp COMMAND ...\n\n{COMMAND_HELP}{''.join(lines)}\n{end}"


def find_command(name: str) -> Command:
    """Imports a command of this library or, failing that, of another installed package.

    Raises:
        ValueError: If the name is unknown, or if a package's command cannot be imported.
    """
    if name in COMMANDS:
        return import_module(COMMANDS[name])
    others = find_plugins(ENTRY_POINTS, COMMANDS)
    if name in others:
        return load_plugin(others[name], Command)
    from hfcomp.reading import nearest

    hint = f"{nearest(name, [*COMMANDS, *others])} `hfcomp --help` lists the commands."
    raise ValueError(f"unknown command {name!r}.{hint}")
