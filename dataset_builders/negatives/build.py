"""Builds AHNPL's hard negative captions, both as described in its paper and as read by its released code.

`python dataset_builders/negatives/build.py --source coco --output data/coco-negatives` builds both configurations of
`config.yaml`, in one folder each, and `--push_to_hub my-org/coco-negatives` pushes them. Repeat the command to resume.
The options of `hfcomp build negatives` override the values of a configuration; `--any_license` is available too.
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
        configs: Configurations in config.yaml. Defaults to all.
    """

    configs: tuple[str, ...] = ()


def build(given: dict[str, Any]) -> dict[str, Path]:
    """Builds the requested configurations, each in its own folder.

    Raises:
        ValueError: If `config.yaml` does not contain a configuration.
    """
    known = read_yaml(HERE / "config.yaml")
    configs = given.pop("configs", tuple(known))
    unknown = [name for name in configs if name not in known]
    if unknown:
        raise ValueError(f"--configs: found {unknown[0]!r}, expected one of: {', '.join(known)}.")
    folders = {name: given["output"] / name for name in configs}
    for name, folder in folders.items():
        print(f"{name}:", flush=True)
        build_and_report(negative_options(known[name], {**given, "output": folder}))
    return folders


def negative_options(config: dict[str, Any], given: dict[str, Any]) -> NegativeOptions:
    """Combines a configuration's options with those from the command line, which take precedence."""
    options = {**config, **given}
    return NegativeOptions(**{**options, "kinds": tuple(options["kinds"])})


if __name__ == "__main__":
    with one_line_errors():
        build_and_push(sys.argv[1:], SetOptions, build, card=HERE / "README.md")
