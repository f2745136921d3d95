"""The command line of a recipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hfcomp.errors import FLAG, one_line_errors
from hfcomp.experiments.help import recipe_help
from hfcomp.experiments.plan_files import Search, Sweep, Tradeoff, read_plan
from hfcomp.experiments.program import run
from hfcomp.experiments.recipes import read_recipe, split_options
from hfcomp.experiments.search import run_search
from hfcomp.experiments.sweep import run_sweep
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
        if options.report is None and options.search is None:
            run(read_recipe(name, words))
            return
        plan = read_plan(name, words)
        {Sweep: run_sweep, Tradeoff: run_tradeoff, Search: run_search}[type(plan)](plan)
