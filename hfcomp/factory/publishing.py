"""Building and optional pushing of a dataset, shared by `hfcomp build` and the programs in `dataset_builders`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hfcomp.factory.options import BuildOptions
from hfcomp.hub.options import AllowUnknown, Card, Private, PushOptions, Revision
from hfcomp.options import Needs, Options, Spelling, command_parser, declared_options, make_options

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
        "Hub dataset to push the finished dataset to, for example my-org/my-dataset. Write access is checked before "
        "the build starts.",
    ] = None
    private: Annotated[Private, _NEEDED] = False
    revision: Annotated[Revision, _NEEDED] = None
    card: Annotated[Card, _NEEDED] = None
    allow_unknown_licenses: Annotated[AllowUnknown, _NEEDED] = False

    def target(self, kind: type[BuildOptions], until: str | None, card: Path | None = None) -> PushOptions | None:
        """Returns the options of the push; None if the dataset is not pushed.

        Args:
            kind: Class of options of the build.
            until: Last step to run, if given.
            card: Card to push unless the options name another.

        Raises:
            ValueError: If the build ends before the dataset is finished.
        """
        if self.push_to_hub is None:
            return None
        if until is not None and until != kind.steps[-1]:
            raise ValueError(
                f"--{TARGET} pushes a finished dataset, which --until {until} does not build. Remove one of them."
            )
        how = {name: getattr(self, name) for name in ("private", "revision", "allow_unknown_licenses")}
        return PushOptions(repo=self.push_to_hub, card=self.card or card, **how)


@dataclass(kw_only=True)
class LicenseOptions(Options):
    """Licenses."""

    any_license: Annotated[
        bool,
        "Include rows whose license forbids adaptation or is unknown; --only_adaptable, the default, leaves them out.",
    ] = False


def check_push(push: PushOptions | None) -> None:
    """Raises ValueError if it is known before the build that the dataset may not be pushed."""
    if push is not None:
        from hfcomp.hub.datasets import check_repository

        check_repository(push)


def push_set(folders: Folders, push: PushOptions | None) -> None:
    """Pushes a dataset that was just built, if requested.

    Args:
        folders: Folder of the dataset, or folders by configuration.
        push: Options of the push; None does nothing.

    Raises:
        ValueError: If the dataset may not be pushed.
    """
    if push is None:
        return
    from hfcomp.hub.datasets import NotPublishableError, push_built_sets

    try:
        push_built_sets(folders, push)
    except NotPublishableError as error:  # a later push of this dataset would fail too
        raise ValueError(f"the dataset is built, but not pushed. {error}") from error
    except ValueError as error:
        raise ValueError(f"the dataset is built, but {error} Then push it: `{_command(folders, push)}`.") from error


def _command(folders: Folders, push: PushOptions) -> str:
    named = [str(folders)] if isinstance(folders, Path) else [f"{name}={place}" for name, place in folders.items()]
    words = ["hfcomp", "push-dataset", *named, "--repo", push.repo]
    for name in ("private", "allow_unknown_licenses"):
        words += [f"--{name}"] if getattr(push, name) else []
    for name in ("revision", "card"):
        words += [f"--{name}", str(getattr(push, name))] if getattr(push, name) else []
    return shlex.join(words)


def build_and_push(arguments: Sequence[str], kind: type[BuildOptions], build: Build, *, card: Path) -> None:
    """Builds a dataset from command-line arguments, by default of adaptable rows, and pushes it if requested.

    Args:
        arguments: Arguments of the command line.
        kind: Class of options.
        build: Function from the given options to the folder of the dataset, or to folders by configuration.
        card: Card to push unless the options name another.

    Raises:
        ValueError: For invalid options, and as in `hfcomp.factory.build.build_set` and `push_built_sets`.
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
    """The command-line parser of a builder."""
    licenses = () if _has_any_license(kind) else (LicenseOptions,)
    return command_parser("", (kind.__doc__ or "").partition("\n")[0], *licenses, PublishOptions, kind)


def _has_any_license(kind: type[BuildOptions]) -> bool:
    """Whether the options have an `any_license` of their own."""
    return "any_license" in declared_options(kind)
