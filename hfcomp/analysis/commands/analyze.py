"""`hfcomp analyze`: what hard negative pairs are like, one set or several side by side."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_fields, command_parser
from hfcomp.cli.places import check_datasets, check_folders

USAGE = "SET [SET ...], as in high=DIR low=DIR, or magic DIR"
SUMMARY = "concreteness, hardness and similarity of hard negative pairs; or a hierarchy of concepts as a page"


MAGIC = "magic"
"""The first word where a set of `hfcomp build magic` follows; a folder of this name is ./magic."""


def main(arguments: Sequence[str]) -> None:
    """Analyses sets of pairs, or a hierarchy of concepts, prints the tables and writes the report.

    Raises:
        ValueError: for options that do not fit, a set without pairs, or an output folder that has results.
        OSError: for a file that cannot be read or written.
    """
    if arguments[:1] == [MAGIC]:
        _analyze_magic(arguments[1:])
        return
    from hfcomp.analysis.pairs.options import AnalyzeOptions

    given = vars(parser().parse_args(arguments))
    sets = given.pop("sets")
    options = AnalyzeOptions(**given)
    check_datasets(sets)
    from hfcomp.analysis.pairs.analyze import analyze
    from hfcomp.analysis.pairs.pictures import PICTURES
    from hfcomp.analysis.pairs.report import PAIRS_FILE
    from hfcomp.reporting.saving import PAGE_FILE, REPORT_FILE
    from hfcomp.statistics.results import RESULTS_FILE
    from hfcomp.writing import check_free_folder, locked

    files = [RESULTS_FILE, PAIRS_FILE, REPORT_FILE, PAGE_FILE, *PICTURES]
    check_free_folder(options.output_dir, options.overwrite, written=files)
    with locked(options.output_dir):
        analyze(sets, options).save(options.output_dir, command=shlex.join(["hfcomp", "analyze", *arguments]))


def _analyze_magic(arguments: Sequence[str]) -> None:
    from hfcomp.analysis.hierarchy.options import HierarchyOptions
    from hfcomp.writing import locked

    given = vars(magic_parser().parse_args(arguments))
    folder, options = given.pop("folder"), HierarchyOptions(**given)
    check_folders([folder])
    from hfcomp.analysis.hierarchy.page import analyze_hierarchy

    with locked(options.output_dir):
        page = analyze_hierarchy(folder, options, progress=sys.stderr.isatty())
    print(f"page: {page} ({page.stat().st_size / 1e6:.1f} MB)")


def magic_parser() -> argparse.ArgumentParser:
    """The command line of `hfcomp analyze magic`; what is not given is left to the fields of `HierarchyOptions`."""
    from hfcomp.analysis.hierarchy.options import HierarchyOptions

    found = command_parser(
        f"analyze {MAGIC}", "Draws the hierarchy of a set of `hfcomp build magic` as one HTML page.", sparse=True
    )
    found.add_argument("folder", type=Path, metavar="DIR", help="folder of the set")
    add_fields(found, HierarchyOptions)
    return found


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `AnalyzeOptions`."""
    from hfcomp.analysis.pairs.options import AnalyzeOptions

    found = command_parser(
        "analyze",
        "Analyses sets of hard negative pairs: the numbers and figures of Concrete Jungle, section 3.1.",
        sparse=True,
    )
    found.add_argument(
        "sets",
        nargs="+",
        metavar="SET",
        help="folder, file or Hub id, or NAME=SET, or sandbox; all configurations, SET::CONFIG for one",
    )
    add_fields(found, AnalyzeOptions)
    return found
