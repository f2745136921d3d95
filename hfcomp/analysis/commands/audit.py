"""`hfcomp audit`: what is wrong with a benchmark or a training set, as a page, as JSON, and as a status for CI."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.cli.places import check_datasets
from hfcomp.options import Options, Spelling, command_parser, make_options

PAGE, FILE = "audit.html", "audit.json"


@dataclass(kw_only=True)
class AuditedOptions(Options):
    """Set and limits."""

    dataset: Annotated[
        str, Spelling("DATASET", positional=True), "A benchmark's name, a file, a folder, a Hub id, or sandbox."
    ]
    fail_if: Annotated[
        tuple[str, ...],
        Spelling("RULE", repeated=True),
        "End with status 1 if a check is above a number, as 'blind>60'; repeatable.",
    ] = ()


def main(arguments: Sequence[str]) -> None:
    """Runs the checks, prints them, writes the page and the JSON.

    Ends with status 1 if a limit of `--fail_if` fails, after everything is written.
    """
    given = vars(parser().parse_args(arguments))
    audited, options = make_options(AuditedOptions, given), make_options(AuditOptions, given)
    name = audited.dataset
    if ":" not in name:  # a benchmark in a module
        check_datasets([name])
    from hfcomp.analysis.audit.audit import audit
    from hfcomp.analysis.audit.checks import parse_limits
    from hfcomp.analysis.audit.report import audit_page, audit_report
    from hfcomp.data.publishing import without_local_paths
    from hfcomp.reporting.terminal import render_terminal
    from hfcomp.statistics.results import for_json
    from hfcomp.writing import check_free_folder, locked, write_json, write_text

    # Both are checked before an audit, which may take long.
    limits, folder = parse_limits(audited.fail_if), options.output_dir
    check_free_folder(folder, options.overwrite, written=[FILE, PAGE])
    if ":" in name:
        sys.path.append(os.getcwd())  # a module beside the user
    with locked(folder):
        found = audit(name, options, progress=sys.stderr.isatty())
        shown = without_local_paths(name)
        write_text(folder / PAGE, audit_page(found, shown, limits))
        write_json(folder / FILE, for_json(found.to_json(shown, limits)))
    render_terminal(audit_report(found, shown, limits))
    print(f"page: {folder / PAGE}")
    if found.failures(limits):
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    from hfcomp.analysis.audit.checks import CHECKS

    names = "\n".join(f"  {name:<22}{words}" for name, words in CHECKS.items())
    return command_parser(
        "audit",
        "Checks a benchmark, a training set or negatives of your own for what a scorer could use without "
        "seeing the image, for copies, and for negatives that are true.",
        AuditedOptions,
        AuditOptions,
        epilog=f"checks, in percent, for --fail_if:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
