"""`hfcomp levels`: accuracy by level of abstraction and joint embeddings by group, drawn."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hfcomp.cli.options import add_device

USAGE = "MODEL [MODEL ...] [--data DIR]"
SUMMARY = "accuracy by level of abstraction and joint embeddings by group, drawn"


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables and writes them, the outcomes of each item and the pictures.

    Args:
        arguments: models and options, see `parser`.

    Raises:
        ValueError: for options or data that do not fit, or a model that is not a dual encoder.
        OSError: for a file that cannot be read or written.
    """
    from hfcomp.analysis.levels import levels_benchmark, score_levels
    from hfcomp.evaluation.models import named_models
    from hfcomp.reporting.evaluation_results import print_evaluation, write_evaluation
    from hfcomp.writing import locked

    options = parser().parse_intermixed_args(arguments)
    models = named_models(options.models)
    _check_options(options)
    drawn = {"rows": options.rows, "candidates": _candidates(options.candidates), "seed": options.seed}
    benchmark, items = levels_benchmark(options.benchmark, options.data, **drawn)
    with locked(options.output_dir):
        settings = {name: getattr(options, name) for name in ("groups", "batch_size", "device")}
        found = score_levels(models, benchmark, items, **settings)
        config = {"command": shlex.join(["hfcomp", "levels", *arguments]), **found.results.config}
        found = replace(found, results=replace(found.results, config=config))
        print_evaluation(found.results, options.output_dir)
        write_evaluation(options.output_dir, found.results)
        found.draw(options.output_dir, print)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.analysis.levels import BENCHMARKS, LEVEL_ROWS, MAGIC, SANDBOX_LEVELS

    found = argparse.ArgumentParser(
        prog="hfcomp levels",
        description="Scores models by the names of concepts on levels of abstraction, and draws two pictures: "
        "accuracy against level, and joint embeddings by group.",
        allow_abbrev=False,
    )
    add = found.add_argument
    add("models", nargs="*", metavar="MODEL", help="Hub id or folder, or name=ID; such as before, after")
    add("--data", type=Path, metavar="DIR", help="the benchmark's data; of magic, if none is named")
    names = f"(default: {SANDBOX_LEVELS.name}; {MAGIC.name} with --data)"
    add("--benchmark", choices=list(BENCHMARKS), help=names)
    add("--rows", type=int, help=f"that many rows, drawn by the seed (sandbox: {LEVEL_ROWS}; all)")
    add("--candidates", default="2,10,all", metavar="A,B", help="images to choose from (default: 2,10,all)")
    add("--groups", type=int, default=6, metavar="N", help="drawn in groups.png, the largest (6)")
    add("--seed", type=int, default=0, help="of all draws (default: 0)")
    add("--output_dir", type=Path, default=Path("runs/levels"), metavar="DIR", help="(runs/levels)")
    add("--overwrite", action="store_true", help="replace results that lie in the output folder")
    add("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    add_device(found)
    return found


def _check_options(options: argparse.Namespace) -> None:
    from hfcomp.analysis.levels import SANDBOX_LEVELS
    from hfcomp.evaluation.results import RESULTS_FILE

    for option, least in (("rows", 2), ("groups", 2), ("batch_size", 1), ("seed", 0)):
        value = getattr(options, option)
        if value is not None and value < least:
            raise ValueError(f"--{option}: found {value}, expected {least} or more.")
    if options.data is not None and options.benchmark == SANDBOX_LEVELS.name:
        raise ValueError(f"--data: {SANDBOX_LEVELS.name} is drawn and has none. Leave out one of the two.")
    if options.data is not None and not options.data.is_dir():
        raise ValueError(f"--data: {options.data} is not a folder.")
    if (options.output_dir / RESULTS_FILE).exists() and not options.overwrite:
        raise ValueError(f"{options.output_dir} holds results already. Pass --overwrite, or another --output_dir.")


def _candidates(text: str) -> tuple[int | str, ...]:
    from hfcomp.evaluation.protocols.level_choice import ALL

    found: list[int | str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word != ALL and not (word.isdecimal() and int(word) >= 2):
            raise ValueError(f"--candidates: found {word!r}, expected numbers of at least 2, or all, as in 2,10,all.")
        found.append(ALL if word == ALL else int(word))
    if not found:
        raise ValueError("--candidates: found none, expected numbers of at least 2, or all, as in 2,10,all.")
    return tuple(dict.fromkeys(found))
