"""The command `hfcomp`: each of its commands is a module that is imported when it is called.

A command is a module with `USAGE`, `SUMMARY` and `main(arguments)`. An installed package adds one by an entry point of
the group `hfcomp.commands`; docs/design.md shows how.
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
    parts = ["usage: hfcomp COMMAND ...\n"]
    for name in [*COMMANDS, *find_plugins(ENTRY_POINTS, COMMANDS)]:
        command = find_command(name)
        parts.append(f"  hfcomp {name} {command.USAGE}\n      {command.SUMMARY}")
    parts.append("\n`hfcomp COMMAND --help` says more; --traceback shows where an error arose.")
    return "\n".join(parts)


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
