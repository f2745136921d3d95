"""`hfcomp evaluate`: any models of the Hub or in folders, side by side."""

from __future__ import annotations

from collections.abc import Sequence

USAGE = "MODEL [MODEL ...] --suite compositional|general|all, or --benchmarks A,B"
SUMMARY = "any models of the Hub or in folders, side by side; --list names the benchmarks"


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: of the command line; `--help` lists them.
    """
    if "--list" in arguments:  # quick: it needs no library that scoring needs
        from hfcomp.cli.list_benchmarks import main as run
    else:
        from hfcomp.experiments.evaluate_command import main as run
    run(arguments)
