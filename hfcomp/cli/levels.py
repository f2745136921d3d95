"""`hfcomp levels`: accuracy by level of abstraction and joint embeddings by group, drawn."""

from __future__ import annotations

from collections.abc import Sequence

USAGE = "MODEL [MODEL ...] [--data DIR]"
SUMMARY = "accuracy by level of abstraction and joint embeddings by group, drawn"


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: of the command line; `--help` lists them.
    """
    from hfcomp.experiments.levels_command import main as run

    run(arguments)
