"""`hfcomp doctor`: checks whether this machine has what hfcomp needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from hfcomp.cli.environment import BROKEN, environment_report, examine
from hfcomp.options import Options, command_parser, make_options


@dataclass(kw_only=True)
class DoctorOptions(Options):
    """Output."""

    json: Annotated[bool, "Print JSON instead of tables."] = False


def main(arguments: Sequence[str]) -> None:
    """Prints the findings; exits with status 1 if something that hfcomp requires is broken."""
    from hfcomp.reporting.terminal import render_terminal

    options = make_options(DoctorOptions, vars(parser().parse_args(arguments)))
    if sys.stderr.isatty():
        print("checking packages, devices, storage and the Hub; this takes a few seconds", file=sys.stderr)
    findings = examine()
    works = all(finding.state != BROKEN for finding in findings)
    if options.json:
        print(json.dumps({"works": works, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        render_terminal(environment_report(findings))
    if not works:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "doctor",
        "Check package versions, extras, devices, cache folders and their sizes, and Hub access (the token is "
        "never shown), and list what to fix. Exits with status 1 if something that hfcomp requires is broken; a "
        "missing extra, GPU or network is only a note.",
        DoctorOptions,
    )
