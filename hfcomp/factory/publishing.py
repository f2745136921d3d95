"""What `hfcomp build` and the programs of `dataset_builders` share: a set is built and, if asked for, pushed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hfcomp.cli.options import command_parser
from hfcomp.factory.options import BuildOptions
from hfcomp.hub.options import AllowUnknown, Card, Private, PushOptions, Revision
from hfcomp.options import Needs, Options, Spelling, declared_options, make_options

Folders = Path | Mapping[str, Path]
TARGET = "push_to_hub"
_NEEDED = Needs(TARGET)
Build = Callable[[dict[str, Any]], Path | Mapping[str, Path]]


@dataclass(kw_only=True)
class PublishOptions(Options):
    """Publishing."""

    push_to_hub: Annotated[
        str | None,
        Spelling("NAME"),
        "Dataset of the Hub that receives the finished set, as my-org/my-set; your right to write to it is checked "
        "before the build starts.",
    ] = None
    private: Annotated[Private, _NEEDED] = False
    revision: Annotated[Revision, _NEEDED] = None
    card: Annotated[Card, _NEEDED] = None
    allow_unknown_licenses: Annotated[AllowUnknown, _NEEDED] = False

    def target(self, kind: type[BuildOptions], until: str | None, card: Path | None = None) -> PushOptions | None:
        """Where the set is pushed; None if it is not.

        Args:
            kind: of the build.
            until: the step that is given as the last one, if any.
            card: of the set, unless another is given.

        Raises:
            ValueError: for a build that ends before the set is finished.
        """
        if self.push_to_hub is None:
            return None
        if until is not None and until != kind.steps[-1]:
            raise ValueError(f"--{TARGET} pushes a finished set: leave out --until {until}, or --{TARGET} until then.")
        how = {name: getattr(self, name) for name in ("private", "revision", "allow_unknown_licenses")}
        return PushOptions(repo=self.push_to_hub, card=self.card or card, **how)


@dataclass(kw_only=True)
class LicenseOptions(Options):
    """Licenses."""

    any_license: Annotated[
        bool,
        "Also rows whose license allows no adaptation or is unknown, which --only_adaptable, the default, leaves out.",
    ] = False


def check_push(push: PushOptions | None) -> None:
    """Raises ValueError for a set that may not be pushed, as far as that is known before it is built."""
    if push is not None:
        from hfcomp.hub.datasets import check_repository

        check_repository(push)


def push_set(folders: Folders, push: PushOptions | None) -> None:
    """Pushes a set that was just built, if it is to be pushed.

    Args:
        folders: of the set, or of several by configuration.
        push: where to.

    Raises:
        ValueError: where the set may not be pushed.
    """
    if push is None:
        return
    from hfcomp.hub.datasets import NotPublishableError, push_built_sets

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
    push = make_options(PublishOptions, given).target(kind, given.get("until"), card)
    if not _has_any_license(kind):
        any_license = make_options(LicenseOptions, given).any_license
        if any_license and "only_adaptable" in given:
            raise ValueError("--any_license and --only_adaptable are given; expected one of them.")
        given["only_adaptable"] = not any_license
    # Checked before the build, which may take days.
    check_push(push)
    push_set(build(given), push)


def parser(kind: type[BuildOptions]) -> argparse.ArgumentParser:
    """The command line of a builder."""
    licenses = () if _has_any_license(kind) else (LicenseOptions,)
    return command_parser("", (kind.__doc__ or "").partition("\n")[0], *licenses, PublishOptions, kind)


def _has_any_license(kind: type[BuildOptions]) -> bool:
    """Whether a kind is built from rows that may be adapted unless its own option says otherwise."""
    return "any_license" in declared_options(kind)
