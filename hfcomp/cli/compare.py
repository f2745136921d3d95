"""`hfcomp compare`: compares stored results without loading a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.cli.page import ReportPageOptions, Tie
from hfcomp.options import Options, Spelling, command_parser, make_options


@dataclass(kw_only=True)
class CompareOptions(Options):
    """Models and benchmarks."""

    folders: Annotated[
        tuple[str, ...],
        Spelling("FOLDER[:MODEL]", positional=True),
        "Folder written by `hfcomp evaluate` or a recipe, for all of its models, or only MODEL.",
    ]
    reference: Annotated[str | None, Spelling("MODEL"), "Model to compare the others with (default: the first)."] = (
        None
    )
    tie: Annotated[Tie | None, "How to count a tie (default: the rule of the stored results)."] = None
    benchmarks: Annotated[
        tuple[str, ...], "Benchmark names or titles (default: all benchmarks that every model has results for)."
    ] = ()
    common: Annotated[bool, "Compare only the items that all models have; report how many others there are."] = False
    published: Annotated[bool, "Show the models' published numbers next to the measured ones."] = False


@dataclass(kw_only=True)
class OutputOptions(ReportPageOptions):
    """Output."""

    output_dir: Annotated[Path | None, "Folder for report.md, report.html and results.json."] = None
    overwrite: Annotated[bool, "Replace existing results in the output folder."] = False


def main(arguments: Sequence[str]) -> None:
    """Compares the models and prints the tables; with `--output_dir`, writes them."""
    import hfcomp
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation, write_evaluation
    from hfcomp.writing import check_free_folder, locked

    given = vars(parser().parse_args(arguments))
    options, output = make_options(CompareOptions, given), make_options(OutputOptions, given)
    results, folder = hfcomp.compare(**vars(options)), output.output_dir
    if folder is not None:
        if any(folder.resolve() == Path(facts["results"]).resolve() for facts in results.models.values()):
            raise ValueError(f"{folder} is one of the compared folders. Pass another --output_dir.")
        check_free_folder(folder, output.overwrite, written=FILES)
        with locked(folder):
            write_evaluation(folder, results, items=False, page=output.page())
    print_evaluation(results, folder)


def parser() -> argparse.ArgumentParser:
    description = "Compare models item by item, from results that an evaluation or a recipe stored."
    return command_parser("compare", description, CompareOptions, OutputOptions)
