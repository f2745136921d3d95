"""`hfcomp push`: the model of a run, or a model's or an adapter's folder, as a repository of the Hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_fields
from hfcomp.cli.places import check_folders

USAGE = "RUN --repo NAME [--private] [--revision BRANCH] [--model controls/plain]"
SUMMARY = "a trained model with processor, card and results to the Hub; the same command resumes a broken upload"


def main(arguments: Sequence[str]) -> None:
    """Pushes a model.

    Raises:
        ValueError: as `hfcomp.hub.models.push_model`.
    """
    options = vars(parser().parse_args(arguments))
    folder = options.pop("folder")
    check_folders([folder])
    from hfcomp.hub.models import push_model
    from hfcomp.hub.options import ModelPushOptions

    push_model(folder, ModelPushOptions(**options), log=lambda line: print(line, flush=True))


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `hfcomp.hub.models.ModelPushOptions`."""
    from hfcomp.hub.options import ModelPushOptions

    found = argparse.ArgumentParser(
        prog="hfcomp push",
        description="Pushes a trained model to the Hub. A push that broke is resumed by the same command.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    words = "folder of a finished run, of a model that a trainer saved, or of an adapter"
    found.add_argument("folder", type=Path, metavar="RUN", help=words)
    add_fields(found, ModelPushOptions)
    return found
