"""The command line of a recipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hfcomp.experiments.help import recipe_help
from hfcomp.experiments.program import run
from hfcomp.experiments.recipes import read_recipe, split_options
from hfcomp.experiments.sweep import read_sweep, run_sweep


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Runs a recipe, or with `--report` one of its sweeps.

    Args:
        name: recipe that is run unless `--config` names another.
        arguments: by default those of the process: `--config name-or-path`, `--report name-or-path`, `--field value`,
            `--help`.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options, _ = split_options(arguments)
        if options.help:
            print(recipe_help(name, arguments))
            return
        sweep = read_sweep(name, arguments) if options.report is not None else None
        recipe = read_recipe(name, arguments) if sweep is None else None
    except (ValueError, FileNotFoundError) as error:
        raise SystemExit(f"error: {error}") from error
    if sweep is None:
        run(recipe)
    else:
        run_sweep(sweep)
