"""`hfcomp doctor`: whether this machine has what hfcomp needs."""

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
    """Prints what was found; ends with status 1 if something that hfcomp requires is broken."""
    from hfcomp.reporting.terminal import render_terminal

    options = make_options(DoctorOptions, vars(parser().parse_args(arguments)))
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
    return command_parser(
        "doctor",
        "Shows versions of packages, extras, devices, cache folders with their sizes, and access to the "
        "Hub (never the token), with what to fix. Ends with status 1 if something that hfcomp requires is broken; a "
        "missing extra, no GPU and no network are notes.",
        DoctorOptions,
    )
