"""`hfcomp levels`: plots accuracy by level of abstraction, and joint embeddings by group."""

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
        "Models to score: Hub ids, folders or name=ID. For example, a model before and after training.",
    ] = ()
    data: Annotated[
        Path | None, "Folder with the benchmark's data. Without --benchmark, the benchmark is then magic."
    ] = None
    benchmark: Annotated[
        Literal[*BENCHMARKS] | None, f"Benchmark (default: {SANDBOX_LEVELS.name}; {MAGIC.name} with --data)."
    ] = None
    rows: Annotated[int | None, f"Sample N rows (default: all; sandbox: {LEVEL_ROWS})."] = None
    candidates: Annotated[
        tuple[str, ...], "Numbers of images to choose from; each gives its own result. 'all' means every image."
    ] = ("2", "10", "all")
    groups: Annotated[int, "Number of groups in groups.png, the largest first."] = 6
    seed: Annotated[int, "Random seed for all sampling."] = 0
    batch_size: BatchSize = 128
    device: Device = None


@dataclass(kw_only=True)
class OutputOptions(Options):
    """Output."""

    output_dir: Annotated[Path, "Output folder."] = Path("runs/levels")
    overwrite: Annotated[bool, "Replace results in the output folder."] = False


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables, and writes them together with the per-item outcomes and the figures."""
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
        evaluation = evaluate_levels(**vars(options) | {"candidates": candidates})
        config = {"command": shlex.join(["hfcomp", "levels", *arguments]), **evaluation.results.config}
        evaluation = replace(evaluation, results=replace(evaluation.results, config=config))
        print_evaluation(evaluation.results, folder)
        evaluation.save(folder)


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "levels",
        "Score models on concept names at several levels of abstraction, and plot two figures: accuracy "
        "by level, and joint embeddings by group.",
        LevelOptions,
        OutputOptions,
    )
