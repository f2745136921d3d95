"""The command `hfcomp`: each of its commands is a module that is imported when it is called.

A command is a module with `USAGE`, `SUMMARY` and `main(arguments)`. An installed package adds one by an entry point of
the group `hfcomp.commands`; docs/design.md shows how.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

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
GROUP = "hfcomp.commands"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script, by default with the arguments of the process.

    A mistake of the user's ends in one line and status 1; `--traceback`, or HFCOMP_TRACEBACK=1, shows where it arose.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return
    if words[0] == "--version":
        from hfcomp import __version__

        print(__version__)
        return
    name, *rest = words
    if name not in COMMANDS and name not in (others := installed_commands()):
        from hfcomp.reading import nearest

        hint = f"{nearest(name, [*COMMANDS, *others])} `hfcomp --help` lists the commands."
        raise SystemExit(f"error: unknown command {name!r}.{hint}")
    from hfcomp.errors import FLAG, one_line_errors

    with one_line_errors(traceback_wanted=FLAG in rest):
        _module(name).main([word for word in rest if word != FLAG])


def usage() -> str:
    """What there is, in the words of the commands."""
    parts = ["usage: hfcomp COMMAND ...\n"]
    for name in [*COMMANDS, *installed_commands()]:
        module = _module(name)
        parts.append(f"  hfcomp {name} {module.USAGE}\n      {module.SUMMARY}")
    parts.append("\n`hfcomp COMMAND --help` says more; --traceback shows where an error arose.")
    return "\n".join(parts)


def installed_commands() -> dict[str, str]:
    """The modules of the commands that other packages add; a name of this library's stays its own."""
    return {point.name: point.value for point in entry_points(group=GROUP) if point.name not in COMMANDS}


def _module(name: str) -> ModuleType:
    return import_module(COMMANDS.get(name) or installed_commands()[name])
