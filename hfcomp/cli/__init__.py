"""The command `hfcomp`: each command is a file of this package, imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

COMMANDS = (
    *("train", "evaluate", "compare", "reproduce", "merge", "attention", "levels", "analyze", "probe"),
    *("gallery", "audit", "build", "annotate", "convert", "push", "push-dataset", "push-metrics", "cache", "doctor"),
)


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
    if name not in COMMANDS:
        from hfcomp.reading import nearest

        hint = f"{nearest(name, COMMANDS)} `hfcomp --help` lists the commands."
        raise SystemExit(f"error: unknown command {name!r}.{hint}")
    from hfcomp.errors import FLAG, one_line_errors

    with one_line_errors(traceback_wanted=FLAG in rest):
        _module(name).main([word for word in rest if word != FLAG])


def usage() -> str:
    """What there is, in the words of the commands."""
    parts = ["usage: hfcomp COMMAND ...\n"]
    for name in COMMANDS:
        module = _module(name)
        parts.append(f"  hfcomp {name} {module.USAGE}\n      {module.SUMMARY}")
    parts.append("\n`hfcomp COMMAND --help` says more; --traceback shows where an error arose.")
    return "\n".join(parts)


def _module(name: str) -> ModuleType:
    return import_module(f"hfcomp.cli.{name.replace('-', '_')}")
