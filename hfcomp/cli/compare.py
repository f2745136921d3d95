"""`hfcomp compare`: stored results against each other, without loading a model."""

from __future__ import annotations

from collections.abc import Sequence

USAGE = "A B [C ...]"
SUMMARY = "stored results against each other, without loading a model"


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: of the command line; `--help` lists them.
    """
    from hfcomp.experiments.compare import main as run

    run(arguments)
