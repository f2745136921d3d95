"""The command `hfcomp`: each of its commands is a module that is imported when it is called.

A command is a module with `main(arguments)`. An installed package adds one, with `USAGE` and `SUMMARY`, by an entry
point of the group `hfcomp.commands`; docs/design.md shows how.
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
"""The module of each command of this library, in the order of the help. A table and not entry points: those of a
checkout change only when it is installed again."""
# The help of these commands is written out here because `hfcomp --help` should import none of them.
COMMAND_HELP = """\
  hfcomp train RECIPE [--config FILE] [--report SWEEP | --search [FILE]] [--field value ...]
      base, controls and method of a recipe, compared; RECIPE --help lists its fields with their values
  hfcomp evaluate MODEL [MODEL ...] --suite compositional|general|all, or --benchmarks A,B
      any models of the Hub or in folders, side by side; --list names the benchmarks
  hfcomp compare A B [C ...]
      stored results against each other, without loading a model
  hfcomp reproduce [MODEL ...] [--benchmarks A,B] [--page FILE]
      published numbers beside measured ones, of three checkpoints on five benchmarks; needs a connection
  hfcomp merge BASE TUNED --alpha X|--sweep --output_dir DIR
      a model between a base and a tuned one (WiSE-FT): at a point given, or the best by a rule
  hfcomp attention MODEL [MODEL] --image FILE --text PHRASE
      where each model's image tokens attend for a phrase, and the difference
  hfcomp levels MODEL [MODEL ...] [--data DIR]
      accuracy by level of abstraction and joint embeddings by group, drawn
  hfcomp analyze SET [SET ...], as in high=DIR low=DIR, or magic DIR
      concreteness, hardness and similarity of hard negative pairs; or a hierarchy of concepts as a page
  hfcomp probe MODEL --dataset DATASET [--batch_sizes 256 1024] [--margins 0 1 2]
      whether a margin can matter: the gradient's share on the hard negative, without training
  hfcomp gallery DATASET [--models A B], or DATASET --apply marks.json --output DIR
      pairs side by side as one HTML page, with scores, filters and marks; and the set without dropped rows
  hfcomp audit DATASET [--model ID] [--fail_if "blind>60"]
      blind rules, probes, copies, overlap and false negatives of a benchmark or set, with a status for CI
  hfcomp build negatives|concepts|neighbors|concretebatch|magic|inpaintcoco|pixels
      --source DATASET --output DIR, or verify DIR
      datasets with hard negatives, pairs, noun phrases, nearest images or a hierarchy; repeat it to resume
  hfcomp annotate PROJECT [--source DATASET], or progress PROJECT, or draft PROJECT, or add_person NAME --people FILE
      edit images in a mask by a prompt, with a page for annotators and reviewers, or automatically for review
  hfcomp convert SOURCE --output DIR [--pretrained TAG] [--to open_clip | --to llava --llava MODEL]
      open_clip, NegCLIP, CE-CLIP and similar checkpoints as plain CLIPModel folders, back, or into a LLaVA
  hfcomp push RUN --repo NAME [--private] [--revision BRANCH] [--model controls/plain]
      a trained model with processor, card and results to the Hub; the same command resumes a broken upload
  hfcomp push-dataset DIR --repo NAME, or CONFIG=DIR CONFIG=DIR --repo NAME
      a built dataset, verified, to the Hub; the same command resumes a broken upload
  hfcomp push-metrics --namespace NAME
      the `evaluate` modules as Spaces
  hfcomp cache [clear] [--model NAME] [--older_than DAYS]
      the embeddings and image hashes that are kept for later runs: what there is, and clearing it
  hfcomp doctor [--json]
      versions, devices, caches and Hub access of this machine, and what to fix
"""
ENTRY_POINTS = "hfcomp.commands"


@runtime_checkable
class Command(Protocol):
    """A module that is a command."""

    USAGE: str
    SUMMARY: str

    def main(self, arguments: Sequence[str]) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script, by default with the arguments of the process.

    A mistake of the user's ends in one line and status 1; `--traceback`, or HFCOMP_TRACEBACK=1, shows where it arose.
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
    """What there is, in the words of the commands."""
    lines = []
    try:
        for name, plugin in find_plugins(ENTRY_POINTS, COMMANDS).items():
            command = load_plugin(plugin, Command)
            lines.append(f"  hfcomp {name} {command.USAGE}\n      {command.SUMMARY}\n")
    except ValueError as error:  # a package that is broken must not take the help of all others away
        lines.append(f"  error: {error}\n")
    end = "`hfcomp COMMAND --help` says more; --traceback shows where an error arose."
    return f"usage: hfcomp COMMAND ...\n\n{COMMAND_HELP}{''.join(lines)}\n{end}"


def find_command(name: str) -> Command:
    """Imports a command: one of ours, or else of an installed package.

    Raises:
        ValueError: for an unknown name, or a package whose command cannot be imported.
    """
    if name in COMMANDS:
        return import_module(COMMANDS[name])
    others = find_plugins(ENTRY_POINTS, COMMANDS)
    if name in others:
        return load_plugin(others[name], Command)
    from hfcomp.reading import nearest

    hint = f"{nearest(name, [*COMMANDS, *others])} `hfcomp --help` lists the commands."
    raise ValueError(f"unknown command {name!r}.{hint}")
