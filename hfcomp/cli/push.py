"""`hfcomp push`: uploads a run's model, or the folder of a model or an adapter, to a Hub repository."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.cli.places import check_folders
from hfcomp.hub.options import ModelPushOptions
from hfcomp.options import Options, Spelling, command_parser, make_options


@dataclass(kw_only=True)
class RunOptions(Options):
    """Run."""

    folder: Annotated[
        Path,
        Spelling("RUN", positional=True),
        "Folder of a finished run, of a model saved by a trainer, or of an adapter.",
    ]


def main(arguments: Sequence[str]) -> None:
    """Checks the folder and uploads its model."""
    given = vars(parser().parse_args(arguments))
    folder, options = make_options(RunOptions, given).folder, make_options(ModelPushOptions, given)
    check_folders([folder])
    from hfcomp.hub.models import push_model

    push_model(folder, options, log=lambda line: print(line, flush=True))


def parser() -> argparse.ArgumentParser:
    description = "Upload a trained model to the Hub. Re-run the command to resume an interrupted upload."
    return command_parser("push", description, RunOptions, ModelPushOptions)
