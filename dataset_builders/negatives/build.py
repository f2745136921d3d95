"""The hard negative captions that AHNPL trains on, as its paper describes them and as its released code reads them.

`python dataset_builders/negatives/build.py --source coco --output data/coco-negatives` builds both configurations of
`config.yaml`, one folder each, and `--push_to_hub my-org/coco-negatives` pushes them. The same command resumes. Every
option of `hfcomp build negatives` takes the place of the configuration's own value; `--any_license` is there too.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.errors import one_line_errors
from hfcomp.factory.command import build_and_report
from hfcomp.factory.options import NegativeOptions
from hfcomp.factory.publishing import build_and_push
from hfcomp.reading import read_yaml

HERE = Path(__file__).parent


@dataclass(kw_only=True)
class SetOptions(NegativeOptions):
    """Hard negative captions for AHNPL.

    Attributes:
        configs: of config.yaml; by default all.
    """

    configs: tuple[str, ...] = ()


def build(given: dict[str, Any]) -> dict[str, Path]:
    """Builds the configurations that are asked for, a folder each.

    Raises:
        ValueError: for one that `config.yaml` does not have.
    """
    known = read_yaml(HERE / "config.yaml")
    configs = given.pop("configs", tuple(known))
    unknown = [name for name in configs if name not in known]
    if unknown:
        raise ValueError(f"--configs: found {unknown[0]!r}, expected some of {', '.join(known)}.")
    folders = {name: given["output"] / name for name in configs}
    for name, folder in folders.items():
        print(f"{name}:", flush=True)
        build_and_report(negative_options(known[name], {**given, "output": folder}))
    return folders


def negative_options(config: dict[str, Any], given: dict[str, Any]) -> NegativeOptions:
    """A configuration's options, of which those given on the command line count."""
    options = {**config, **given}
    return NegativeOptions(**{**options, "kinds": tuple(options["kinds"])})


if __name__ == "__main__":
    with one_line_errors():
        build_and_push(sys.argv[1:], SetOptions, build, card=HERE / "README.md")
