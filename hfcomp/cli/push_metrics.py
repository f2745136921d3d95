"""`hfcomp push-metrics`: uploads the metrics as Hub Spaces."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from hfcomp.metrics.modules import MODULES
from hfcomp.options import Options, Spelling, command_parser, make_options


@dataclass(kw_only=True)
class MetricOptions(Options):
    """Spaces."""

    namespace: Annotated[str, Spelling("NAME"), "User or organization on the Hub."]
    only: Annotated[
        tuple[Literal[*MODULES], ...],
        Spelling("METRIC", spaced=True),
        f"Metrics to push, any of {', '.join(MODULES)}.",
    ] = ()
    private: Annotated[bool, "Make new Spaces private."] = False
    dry_run: Annotated[bool, "List the files without uploading them."] = False


def main(arguments: Sequence[str]) -> None:
    """Uploads the metrics, or lists what would be uploaded."""
    from huggingface_hub import HfApi

    from hfcomp.hub.metrics import module_files, push_metric

    options = make_options(MetricOptions, vars(parser().parse_args(arguments)))
    api = HfApi()
    for name in options.only or MODULES:
        space, sent = f"{options.namespace}/{name}", ", ".join(module_files(name))
        if options.dry_run:
            print(f"would push to Space {space}{' (private)' * options.private}: {sent}")
            continue
        address = push_metric(api, name, options.namespace, private=options.private)
        print(f"pushed to {address}: {sent}")


def parser() -> argparse.ArgumentParser:
    description = "Upload hfcomp's metrics to the Hub, each as a Space that evaluate.load can load."
    return command_parser("push-metrics", description, MetricOptions)
