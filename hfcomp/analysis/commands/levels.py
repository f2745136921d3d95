"""`hfcomp levels`: accuracy by level of abstraction and joint embeddings by group, drawn."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from hfcomp.analysis.level_benchmarks import BENCHMARKS, LEVEL_ROWS, MAGIC, SANDBOX_LEVELS
from hfcomp.options import BatchSize, Device, Options, Spelling, check_models, command_parser, make_options


@dataclass(kw_only=True)
class LevelOptions(Options):
    """Models and levels."""

    models: Annotated[
        tuple[str, ...],
        Spelling("MODEL", positional=True),
        "Hub id or folder, or name=ID; such as before, after.",
    ] = ()
    data: Annotated[Path | None, "The benchmark's data; of magic, if none is named."] = None
    benchmark: Annotated[
        Literal[*BENCHMARKS] | None, f"Benchmark (default: {SANDBOX_LEVELS.name}; {MAGIC.name} with --data)."
    ] = None
    rows: Annotated[int | None, f"Sample of N rows (default: all; sandbox: {LEVEL_ROWS})."] = None
    candidates: Annotated[tuple[str, ...], "Images to choose from."] = ("2", "10", "all")
    groups: Annotated[int, "Groups drawn in groups.png, the largest."] = 6
    seed: Annotated[int, "Random seed of all draws."] = 0
    batch_size: BatchSize = 128
    device: Device = None


@dataclass(kw_only=True)
class OutputOptions(Options):
    """Output."""

    output_dir: Annotated[Path, "Output folder."] = Path("runs/levels")
    overwrite: Annotated[bool, "Replace results in the output folder."] = False


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables and writes them, the outcomes of each item and the pictures."""
    given = vars(parser().parse_intermixed_args(arguments))
    options, output = make_options(LevelOptions, given), make_options(OutputOptions, given)
    check_models(options.models)
    from hfcomp.analysis.levels import GROUPS_FIGURE, LEVELS_FIGURE, evaluate_levels
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation
    from hfcomp.evaluation.protocols.level_choice import Count
    from hfcomp.schemas import convert
    from hfcomp.writing import check_free_folder, locked

    folder, candidates = output.output_dir, [convert(word, Count, "--candidates") for word in options.candidates]
    check_free_folder(folder, output.overwrite, written=[*FILES, LEVELS_FIGURE, GROUPS_FIGURE])
    with locked(folder):
        found = evaluate_levels(**vars(options) | {"candidates": candidates})
        config = {"command": shlex.join(["hfcomp", "levels", *arguments]), **found.results.config}
        found = replace(found, results=replace(found.results, config=config))
        print_evaluation(found.results, folder)
        found.save(folder)


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "levels",
        "Scores models by the names of concepts on levels of abstraction, and draws two pictures: "
        "accuracy against level, and joint embeddings by group.",
        LevelOptions,
        OutputOptions,
    )
