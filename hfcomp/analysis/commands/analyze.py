"""`hfcomp analyze`: compares datasets of hard negative pairs, or draws a concept hierarchy."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.analysis.hierarchy.options import HierarchyOptions
from hfcomp.analysis.pairs.options import AnalyzeOptions
from hfcomp.cli.places import check_datasets, check_folders
from hfcomp.options import Options, Spelling, command_parser, make_options

MAGIC = "magic"
"""First argument if a dataset of `hfcomp build magic` follows. Write ./magic for a folder of this name."""


@dataclass(kw_only=True)
class SetOptions(Options):
    """Sets."""

    sets: Annotated[
        tuple[str, ...],
        Spelling("SET", positional=True),
        "Folder, file or Hub id, or NAME=SET, or sandbox; SET::CONFIG selects one of several configurations.",
    ]


@dataclass(kw_only=True)
class MagicFolder(Options):
    """Set."""

    folder: Annotated[Path, Spelling("DIR", positional=True), "Dataset folder written by `hfcomp build magic`."]


def main(arguments: Sequence[str]) -> None:
    """Analyzes datasets of pairs, prints the tables and writes the report; or draws a concept hierarchy."""
    if arguments[:1] == [MAGIC]:
        _analyze_magic(arguments[1:])
        return
    given = vars(parser().parse_args(arguments))
    sets, options = make_options(SetOptions, given).sets, make_options(AnalyzeOptions, given)
    check_datasets(sets)
    # Imported here so that --help and option errors do not wait for the libraries.
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
    given = vars(magic_parser().parse_args(arguments))
    folder, options = make_options(MagicFolder, given).folder, make_options(HierarchyOptions, given)
    check_folders([folder])
    from hfcomp.analysis.hierarchy.page import analyze_hierarchy
    from hfcomp.writing import locked

    with locked(options.output_dir):
        page = analyze_hierarchy(folder, options, progress=sys.stderr.isatty())
    print(f"page: {page} ({page.stat().st_size / 1e6:.1f} MB)")


def magic_parser() -> argparse.ArgumentParser:
    """Returns the parser of `hfcomp analyze magic`."""
    description = "Draw the concept hierarchy of a dataset from `hfcomp build magic` as one HTML page."
    return command_parser(f"analyze {MAGIC}", description, MagicFolder, HierarchyOptions)


def parser() -> argparse.ArgumentParser:
    description = (
        'Analyze datasets of hard negative pairs: the numbers and figures of section 3.1 of the paper "Concrete '
        'Jungle" (Im et al. 2026). `hfcomp analyze magic DIR`, which has its own --help, shows a concept hierarchy as '
        "a page instead."
    )
    return command_parser("analyze", description, SetOptions, AnalyzeOptions)
