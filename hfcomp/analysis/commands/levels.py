"""`hfcomp levels`: accuracy by level of abstraction and joint embeddings by group, drawn."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hfcomp.cli.options import add_device, add_output, command_parser, names_of
from hfcomp.cli.places import check_models

USAGE = "MODEL [MODEL ...] [--data DIR]"
SUMMARY = "accuracy by level of abstraction and joint embeddings by group, drawn"


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables and writes them, the outcomes of each item and the pictures.

    Raises:
        ValueError: as `evaluate_levels`, or for an output folder that is in use or holds results.
        OSError: for a file that cannot be read or written.
    """
    options = vars(parser().parse_intermixed_args(arguments))
    check_models(options["models"])
    from hfcomp.analysis.levels import GROUPS_FIGURE, LEVELS_FIGURE, evaluate_levels
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation
    from hfcomp.evaluation.protocols.level_choice import Count
    from hfcomp.schemas import convert
    from hfcomp.writing import check_free_folder, locked

    folder, overwrite = options.pop("output_dir"), options.pop("overwrite")
    candidates = [convert(word, Count, "--candidates") for word in names_of(options.pop("candidates"))]
    check_free_folder(folder, overwrite, written=[*FILES, LEVELS_FIGURE, GROUPS_FIGURE])
    with locked(folder):
        found = evaluate_levels(**options, candidates=candidates)
        config = {"command": shlex.join(["hfcomp", "levels", *arguments]), **found.results.config}
        found = replace(found, results=replace(found.results, config=config))
        print_evaluation(found.results, folder)
        found.save(folder)


def parser() -> argparse.ArgumentParser:
    """The command line; its options but the last two are those of `evaluate_levels`."""
    from hfcomp.analysis.level_benchmarks import BENCHMARKS, LEVEL_ROWS, MAGIC, SANDBOX_LEVELS

    found = command_parser(
        "levels",
        "Scores models by the names of concepts on levels of abstraction, and draws two pictures: "
        "accuracy against level, and joint embeddings by group.",
    )
    add = found.add_argument
    add("models", nargs="*", metavar="MODEL", help="Hub id or folder, or name=ID; such as before, after")
    add("--data", type=Path, metavar="DIR", help="the benchmark's data; of magic, if none is named")
    names = f"(default: {SANDBOX_LEVELS.name}; {MAGIC.name} with --data)"
    add("--benchmark", choices=list(BENCHMARKS), help=names)
    add("--rows", type=int, metavar="N", help=f"sample of N rows (default: all; sandbox: {LEVEL_ROWS})")
    add("--candidates", default="2,10,all", metavar="A,B", help="images to choose from (default: 2,10,all)")
    add("--groups", type=int, default=6, metavar="N", help="drawn in groups.png, the largest (default: 6)")
    add("--seed", type=int, default=0, help="of all draws (default: 0)")
    add("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    add_device(found)
    add_output(found, default=Path("runs/levels"), help="(default: runs/levels)")
    add("--overwrite", action="store_true", help="replace results in the output folder")
    return found
