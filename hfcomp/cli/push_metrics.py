"""`hfcomp push-metrics`: the metrics as Spaces of the Hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hfcomp.cli.options import command_parser

USAGE = "--namespace NAME"
SUMMARY = "the `evaluate` modules as Spaces"


def main(arguments: Sequence[str]) -> None:
    """Pushes the metrics, or lists what would be pushed."""
    from huggingface_hub import HfApi

    from hfcomp.hub.metrics import module_files, push_metric

    options = parser().parse_args(list(arguments))
    api = HfApi()
    for name in options.only:
        space, sent = f"{options.namespace}/{name}", ", ".join(module_files(name))
        if options.dry_run:
            print(f"would push to Space {space}{' (private)' * options.private}: {sent}")
            continue
        address = push_metric(api, name, options.namespace, private=options.private)
        print(f"pushed to {address}: {sent}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.metrics.modules import MODULES

    found = command_parser(
        "push-metrics", "Pushes hfcomp's metrics to the Hub, each as a Space that evaluate.load reads."
    )
    found.add_argument("--namespace", required=True, help="user or organisation on the Hub")
    found.add_argument(
        "--only", nargs="+", choices=MODULES, default=MODULES, metavar="METRIC", help=f"some of {', '.join(MODULES)}"
    )
    found.add_argument("--private", action="store_true", help="new Spaces are private")
    found.add_argument("--dry_run", action="store_true", help="list what would be sent, and send nothing")
    return found
