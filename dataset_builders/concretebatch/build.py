"""ConcreteBatch, the pairs that Slipform trains on (Concrete Jungle, arXiv 2604.13313), from a set of your own.

`python dataset_builders/concretebatch/build.py --source coco --output data/concretebatch --base_url
http://127.0.0.1:8000/v1 --concreteness_ratings FILE` builds the paper's three configurations from rows whose licence
allows adaptation, and `--repo my-org/concretebatch` pushes them. The same command resumes. The options are those of
`hfcomp build concretebatch`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_fields
from hfcomp.errors import one_line_errors
from hfcomp.generation.build import build_set
from hfcomp.generation.concretebatch.chain import CONFIGS, ConcreteBatchOptions
from hfcomp.hub.datasets import PushOptions, push_built_sets
from hfcomp.reporting.terminal import render_terminal

HERE = Path(__file__).parent


def main(arguments: Sequence[str]) -> None:
    """Builds the configurations that are asked for, and pushes them to `--repo`."""
    given = vars(parser().parse_args(arguments))
    push = {name: given.pop(name) for name in ("repo", "private") if name in given}
    options = ConcreteBatchOptions(**{"only_adaptable": True, "configs": tuple(CONFIGS), **given})
    render_terminal(build_set(options, progress=sys.stderr.isatty()).report())
    if "repo" in push:
        push_built_sets(options.output, PushOptions(card=HERE / "README.md", **push))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description="Builds ConcreteBatch.", allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    ours = found.add_argument_group("The Hub")
    ours.add_argument("--repo", help="push to this data set of the Hub")
    ours.add_argument("--private", action="store_true", help="a new repository is private")
    add_fields(found, ConcreteBatchOptions)
    return found


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
