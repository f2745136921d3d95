"""What `hfcomp build` and the programs of `dataset_builders` share: a set is built and, if asked for, pushed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hfcomp.cli.options import add_fields
from hfcomp.factory.options import BuildOptions
from hfcomp.hub.options import PushOptions

Folders = Path | Mapping[str, Path]
TARGET = "push_to_hub"
Build = Callable[[dict[str, Any]], Path | Mapping[str, Path]]


@dataclass(kw_only=True)
class PublishOptions:
    """Publishing.

    Attributes:
        push_to_hub: data set of the Hub that receives the finished set, as my-org/my-set; your right to write to it is
            checked before the build starts.
        private: a new repository is private; a public one that exists is refused.
        revision: branch to push to, made from main where it is missing (default: main).
        card: README.md whose text and metadata come first, as dataset_builders/negatives/README.md.
        allow_unknown_licenses: push rows without a known licence too; you know that all may be published.
    """

    push_to_hub: str | None = None
    private: bool = False
    revision: str | None = None
    card: Path | None = None
    allow_unknown_licenses: bool = False


def take_push(given: dict[str, Any], kind: type[BuildOptions], card: Path | None = None) -> PushOptions | None:
    """Takes the options of a push out of those of a command line; None where nothing is pushed.

    Args:
        given: the options, of which those of the build are left.
        kind: of the build.
        card: of the set, unless another is given.

    Raises:
        ValueError: for options that need `--push_to_hub`, or a build that ends before the set is finished.
    """
    push = {field.name: given.pop(field.name) for field in fields(PublishOptions) if field.name in given}
    if not push:
        return None
    if TARGET not in push:
        raise ValueError(f"--{next(iter(push))} needs --{TARGET}.")
    last = next((field.default for field in fields(kind) if field.name == "until"), None)
    if given.get("until", last) != last:
        raise ValueError(
            f"--{TARGET} pushes a finished set: leave out --until {given['until']}, or --{TARGET} until then."
        )
    return PushOptions(repo=push.pop(TARGET), **{"card": card, **push})


def build_then_push(build: Callable[[], Folders], push: PushOptions | None) -> None:
    """Builds a set and pushes it, if it is to be pushed.

    Args:
        build: returns the folder of the set, or those of several by configuration.
        push: where to.

    Raises:
        ValueError: as `build`; where the set may not be pushed, before it is built where that is known.
    """
    if push is None:
        build()
        return
    from hfcomp.hub.datasets import NotPublishableError, check_repository, push_built_sets

    check_repository(push)
    folders = build()
    try:
        push_built_sets(folders, push)
    except NotPublishableError as error:  # which no later push of this set would change
        raise ValueError(f"the set is built, but not pushed. {error}") from error
    except ValueError as error:
        raise ValueError(f"the set is built, but {error} Then push it: `{_command(folders, push)}`.") from error


def _command(folders: Folders, push: PushOptions) -> str:
    named = [str(folders)] if isinstance(folders, Path) else [f"{name}={place}" for name, place in folders.items()]
    words = ["hfcomp", "push-dataset", *named, "--repo", push.repo]
    for name in ("private", "allow_unknown_licenses"):
        words += [f"--{name}"] if getattr(push, name) else []
    for name in ("revision", "card"):
        words += [f"--{name}", str(getattr(push, name))] if getattr(push, name) else []
    return shlex.join(words)


def build_and_push(arguments: Sequence[str], kind: type[BuildOptions], build: Build, *, card: Path) -> None:
    """Builds by a command line, by default from rows that may be adapted, and pushes to `--push_to_hub`.

    Args:
        arguments: of the command line.
        kind: whose fields are the options.
        build: from the options that are given to the folder of the set, or the folders of several by configuration.
        card: of the set, unless another is given.

    Raises:
        ValueError: for options that do not fit; as `hfcomp.factory.build.build_set` and `push_built_sets`.
    """
    given = vars(parser(kind).parse_args(arguments))
    push = take_push(given, kind, card)
    options = given if _has_any_license(kind) else {"only_adaptable": True, **given}
    build_then_push(lambda: build(options), push)


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
