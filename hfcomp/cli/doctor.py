"""`hfcomp doctor`: whether this machine has what hfcomp needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from hfcomp.cli.options import command_parser

USAGE = "[--json]"
SUMMARY = "versions, devices, caches and Hub access of this machine, and what to fix"


def main(arguments: Sequence[str]) -> None:
    """Prints what was found; ends with status 1 if something that hfcomp requires is broken."""
    from dataclasses import asdict

    from hfcomp.cli.environment import BROKEN, environment_report, examine
    from hfcomp.reporting.terminal import render_terminal

    options = parser().parse_args(arguments)
    if sys.stderr.isatty():
        print("checking packages, devices, storage and the Hub: some seconds", file=sys.stderr)
    found = examine()
    works = all(one.state != BROKEN for one in found)
    if options.json:
        print(json.dumps({"works": works, "findings": [asdict(one) for one in found]}, indent=2))
    else:
        render_terminal(environment_report(found))
    if not works:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = command_parser(
        "doctor",
        "Shows versions of packages, extras, devices, cache folders with their sizes, and access to the "
        "Hub (never the token), with what to fix. Ends with status 1 if something that hfcomp requires is broken; a "
        "missing extra, no GPU and no network are notes.",
    )
    found.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return found
