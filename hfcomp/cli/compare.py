"""`hfcomp compare`: stored results against each other, without loading a model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import PAGE, add_output, add_page, add_tie, command_parser, names_of, page_options

USAGE = "A B [C ...]"
SUMMARY = "stored results against each other, without loading a model"


def main(arguments: Sequence[str]) -> None:
    """Compares, prints the tables and, if asked, writes them.

    Raises:
        ValueError: as `hfcomp.compare`, or for an output folder that holds results, or is one of those compared.
        OSError: for a file that cannot be read or written.
    """
    import hfcomp
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation, write_evaluation
    from hfcomp.writing import check_free_folder, locked

    options = vars(parser().parse_args(arguments))
    folder, overwrite, page = *map(options.pop, ("output_dir", "overwrite")), page_options(*map(options.pop, PAGE))
    results = hfcomp.compare(options.pop("models"), **options)
    if folder is not None:
        if any(folder.resolve() == Path(facts["results"]).resolve() for facts in results.models.values()):
            raise ValueError(f"{folder} is one of the folders that are compared. Pass another --output_dir.")
        check_free_folder(folder, overwrite, written=FILES)
        with locked(folder):
            write_evaluation(folder, results, items=False, page=page)
    print_evaluation(results, folder)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = command_parser("compare", "Compares models item by item, from what hfcomp evaluate or a recipe stored.")
    add = found.add_argument
    add("models", nargs="+", metavar="FOLDER[:MODEL]", help="all models of a folder, or one of them")
    add("--reference", metavar="MODEL", help="that the others are compared to (default: the first)")
    add_tie(found, None, "what it did in them")
    known = "names or titles (default: all that every model has)"
    add("--benchmarks", type=names_of, default=[], metavar="A,B", help=known)
    add("--common", action="store_true", help="compare on the items that all have; count the others")
    add("--published", action="store_true", help="show published numbers of the models beside the measured ones")
    add_output(found, help="write report.md, report.html and results.json there")
    add("--overwrite", action="store_true", help="replace results that are in the output folder")
    add_page(found)
    return found
