"""The command line of a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hfcomp.errors import FLAG, one_line_errors
from hfcomp.experiments.base import prepare_base
from hfcomp.experiments.help import recipe_help
from hfcomp.experiments.program import run
from hfcomp.experiments.recipe_files import find_report, is_sweep
from hfcomp.experiments.recipes import Recipe, read_recipe, split_options
from hfcomp.experiments.search import run_search
from hfcomp.experiments.search_file import read_search
from hfcomp.experiments.sweep import run_sweep
from hfcomp.experiments.sweep_file import read_sweep
from hfcomp.experiments.tradeoff import read_tradeoff
from hfcomp.experiments.tradeoff_study import run_tradeoff


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Runs a recipe, or with `--report` one of its sweeps or studies, or with `--search` a search for its values.

    Args:
        name: recipe that is run unless `--config` names another.
        arguments: by default those of the process: `--config name-or-path`, `--report name-or-path`, `--search
            [name-or-path]`, `--field value`, `--help`, `--help-all`, `--traceback`.

    Raises:
        SystemExit: in one line, for a mistake of the user's.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with one_line_errors(traceback_wanted=FLAG in words):
        words = [word for word in words if word != FLAG]
        options, _ = split_options(words)
        if options.help or options.help_all:
            print(recipe_help(name, words, everything=options.help_all))
            return
        go, plan = _read(name, words, options.report, options.search)
        prepare_base(plan if isinstance(plan, Recipe) else plan.recipe)
        go(plan)


def _read(
    name: str, arguments: list[str], report: str | None, search: str | None
) -> tuple[Callable[[Any], Path], Any]:
    """What runs and what is to be run, all of it read."""
    if report is not None and search is not None:
        raise ValueError("command line: --report and --search are two things. Leave one of them out.")
    if search is not None:
        return run_search, read_search(name, arguments)
    if report is None:
        return run, read_recipe(name, arguments)
    path = find_report(name, report)
    if is_sweep(path):
        return run_sweep, read_sweep(name, arguments)
    return run_tradeoff, read_tradeoff(name, arguments, path)
