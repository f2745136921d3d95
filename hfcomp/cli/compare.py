"""`hfcomp compare`: stored results against each other, without loading a model."""

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
        "All models of a folder that hfcomp evaluate or a recipe wrote, or one of them.",
    ]
    reference: Annotated[
        str | None, Spelling("MODEL"), "Model that the others are compared to (default: the first)."
    ] = None
    tie: Annotated[Tie | None, "What a tie counts (default: what it did in them)."] = None
    benchmarks: Annotated[tuple[str, ...], "Names or titles (default: all that every model has)."] = ()
    common: Annotated[bool, "Compare on the items that all have; count the others."] = False
    published: Annotated[bool, "Show published numbers of the models beside the measured ones."] = False


@dataclass(kw_only=True)
class OutputOptions(ReportPageOptions):
    """Output."""

    output_dir: Annotated[Path | None, "Folder to write report.md, report.html and results.json to."] = None
    overwrite: Annotated[bool, "Replace results that are in the output folder."] = False


def main(arguments: Sequence[str]) -> None:
    """Compares, prints the tables and, if asked, writes them."""
    import hfcomp
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation, write_evaluation
    from hfcomp.writing import check_free_folder, locked

    given = vars(parser().parse_args(arguments))
    options, output = make_options(CompareOptions, given), make_options(OutputOptions, given)
    results, folder = hfcomp.compare(**vars(options)), output.output_dir
    if folder is not None:
        if any(folder.resolve() == Path(facts["results"]).resolve() for facts in results.models.values()):
            raise ValueError(f"{folder} is one of the folders that are compared. Pass another --output_dir.")
        check_free_folder(folder, output.overwrite, written=FILES)
        with locked(folder):
            write_evaluation(folder, results, items=False, page=output.page())
    print_evaluation(results, folder)


def parser() -> argparse.ArgumentParser:
    description = "Compares models item by item, from what hfcomp evaluate or a recipe stored."
    return command_parser("compare", description, CompareOptions, OutputOptions)
