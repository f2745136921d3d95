"""What the programs of `dataset_builders` share: a set is built, and pushed where a repository is named."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hfcomp.cli.options import add_fields
from hfcomp.cli.publishing import PublishOptions, built_and_pushed, take_push
from hfcomp.generation.options import BuildOptions

Build = Callable[[dict[str, Any]], Path | Mapping[str, Path]]


def build_and_push(arguments: Sequence[str], kind: type[BuildOptions], build: Build, *, card: Path) -> None:
    """Builds by a command line, by default from rows that may be adapted, and pushes to `--push_to_hub`.

    Args:
        arguments: of the command line.
        kind: whose fields are the options.
        build: from the options that are given to the folder of the set, or the folders of several by configuration.
        card: of the set, unless another is given.

    Raises:
        ValueError: for options that do not fit; as `hfcomp.generation.build.build_set` and `push_built_sets`.
    """
    given = vars(parser(kind).parse_args(arguments))
    push = take_push(given, kind, card)
    options = given if _has_any_license(kind) else {"only_adaptable": True, **given}
    built_and_pushed(lambda: build(options), push)


def parser(kind: type[BuildOptions]) -> argparse.ArgumentParser:
    """The command line of a builder."""
    found = argparse.ArgumentParser(
        description=(kind.__doc__ or "").partition("\n")[0], allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    words = (
        "also rows whose licence allows no adaptation or is unknown, which --only_adaptable, the default, leaves out"
    )
    either = found.add_mutually_exclusive_group()
    if not _has_any_license(kind):
        either.add_argument("--any_license", dest="only_adaptable", action="store_const", const=False, help=words)
    add_fields(found, PublishOptions)
    add_fields(found, kind)
    for action in found._actions:
        if "--only_adaptable" in action.option_strings:
            either._group_actions.append(action)
    return found


def _has_any_license(kind: type[BuildOptions]) -> bool:
    """Whether a kind is built from rows that may be adapted unless its own option says otherwise."""
    return any(field.name == "any_license" for field in fields(kind))
