"""`hfcomp audit`: what is wrong with a benchmark or a training set, as a page, as JSON, and as a status for CI."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from hfcomp.cli.options import add_fields, command_parser
from hfcomp.cli.places import check_datasets

USAGE = 'DATASET [--model ID] [--fail_if "blind>60"]'
SUMMARY = "blind rules, probes, copies, overlap and false negatives of a benchmark or set, with a status for CI"
PAGE, FILE = "audit.html", "audit.json"


def main(arguments: Sequence[str]) -> None:
    """Runs the checks, prints them, writes the page and the JSON.

    Ends with status 1 if a limit of `--fail_if` fails, after everything is written.

    Raises:
        ValueError: for options that do not fit, data that is unavailable or wrong, or an output folder with an audit.
        OSError: for a file that cannot be read or written.
    """
    given = vars(parser().parse_args(arguments))
    if ":" not in given["dataset"]:  # a benchmark in a module
        check_datasets([given["dataset"]])
    from hfcomp.analysis.audit.audit import audit
    from hfcomp.analysis.audit.checks import parse_limits
    from hfcomp.analysis.audit.options import AuditOptions
    from hfcomp.analysis.audit.report import audit_page, audit_report
    from hfcomp.data.publishing import without_local_paths
    from hfcomp.reporting.terminal import render_terminal
    from hfcomp.statistics.results import for_json
    from hfcomp.writing import check_free_folder, locked, write_json, write_text

    name, limits = given.pop("dataset"), parse_limits(given.pop("fail_if", []))
    options = AuditOptions(**given)
    folder = options.output_dir
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
    """The command line; what is not given is left to the fields of `AuditOptions`."""
    from hfcomp.analysis.audit.checks import CHECKS
    from hfcomp.analysis.audit.options import AuditOptions

    names = "\n".join(f"  {name:<22}{words}" for name, words in CHECKS.items())
    found = command_parser(
        "audit",
        "Checks a benchmark, a training set or negatives of your own for what a scorer could use without "
        "seeing the image, for copies, and for negatives that are true.",
        epilog=f"checks, in percent, for --fail_if:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        sparse=True,
    )
    words = "a benchmark's name, a file, a folder, a Hub id, or sandbox"
    found.add_argument("dataset", metavar="DATASET", help=words)
    words = "end with status 1 where a check is above a number, as 'blind>60'; repeatable"
    found.add_argument("--fail_if", action="append", metavar="RULE", help=words)
    add_fields(found, AuditOptions)
    return found
