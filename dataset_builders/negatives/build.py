"""The hard negative captions that AHNPL trains on, as its paper describes them and as its released code reads them.

`python dataset_builders/negatives/build.py --source coco --output data/coco-negatives` builds both configurations of
`config.yaml`, one folder each, and `--repo my-org/coco-negatives` pushes them. The same command resumes. Every option
of `hfcomp build negatives` takes the place of the configuration's own value.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hfcomp.cli.options import add_fields, names_of
from hfcomp.errors import one_line_errors
from hfcomp.generation.build import build_set
from hfcomp.generation.options import NegativeOptions
from hfcomp.hub.datasets import PushOptions, push_built_sets
from hfcomp.reading import read_yaml

HERE = Path(__file__).parent


def main(arguments: Sequence[str]) -> None:
    """Builds the configurations that are asked for, and pushes them to `--repo`."""
    given = vars(parser().parse_args(arguments))
    known = read_yaml(HERE / "config.yaml")
    configs = given.pop("configs", tuple(known))
    unknown = [name for name in configs if name not in known]
    if unknown:
        raise ValueError(f"--configs: found {unknown[0]!r}, expected some of {', '.join(known)}.")
    push = {name: given.pop(name) for name in ("repo", "private", "allow_unknown_licenses") if name in given}
    folders = {name: given["output"] / name for name in configs}
    for name, folder in folders.items():
        print(f"{name}:", flush=True)
        build_set(negative_options(known[name], {**given, "output": folder}), progress=sys.stderr.isatty())
    if "repo" in push:
        push_built_sets(folders, PushOptions(card=HERE / "README.md", **push))


def negative_options(config: dict[str, Any], given: dict[str, Any]) -> NegativeOptions:
    """A configuration's options, of which those given on the command line count."""
    options = {"only_adaptable": True, **config, **given}
    return NegativeOptions(**{**options, "kinds": tuple(options["kinds"])})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description="Builds AHNPL's hard negative captions.", allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    ours = found.add_argument_group("This set")
    ours.add_argument("--configs", type=lambda text: tuple(names_of(text)), help="of config.yaml; by default all")
    ours.add_argument("--repo", help="push to this data set of the Hub")
    ours.add_argument("--private", action="store_true", help="a new repository is private")
    ours.add_argument("--allow_unknown_licenses", action="store_true", help="push rows without a known licence too")
    add_fields(found, NegativeOptions)
    return found


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
