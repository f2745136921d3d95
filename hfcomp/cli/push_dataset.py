"""`hfcomp push-dataset`: a set of `hfcomp build` as a dataset of the Hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.cli.places import check_folders
from hfcomp.hub.options import PushOptions
from hfcomp.options import Options, Spelling, command_parser, make_options


@dataclass(kw_only=True)
class FolderOptions(Options):
    """Folders."""

    folders: Annotated[
        tuple[str, ...],
        Spelling("DIR", positional=True),
        "Folder of a built set, or CONFIG=DIR for each of several; the first is the default configuration.",
    ]


def main(arguments: Sequence[str]) -> None:
    """Pushes one built set, or several as configurations."""
    given = vars(parser().parse_args(arguments))
    folders, options = folders_of(make_options(FolderOptions, given).folders), make_options(PushOptions, given)
    check_folders([folders] if isinstance(folders, Path) else folders.values())
    from hfcomp.hub.datasets import push_built_sets

    push_built_sets(folders, options, log=lambda line: print(line, flush=True))


def parser() -> argparse.ArgumentParser:
    description = "Pushes a set of `hfcomp build` to the Hub. A push that broke is resumed by the same command."
    return command_parser("push-dataset", description, FolderOptions, PushOptions)


def folders_of(words: Sequence[str]) -> Path | dict[str, Path]:
    """One folder, or folders by configuration: by default a folder's name is that of its configuration.

    Raises:
        ValueError: for two of one name.
    """
    if len(words) == 1 and ("=" not in words[0] or Path(words[0]).exists()):
        return Path(words[0])
    found: dict[str, Path] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not equals or Path(word).exists():
            name, place = Path(word).resolve().name, word
        if name in found:
            raise ValueError(
                f"the configuration {name!r} is given twice: {found[name]} and {place}. Name one CONFIG=DIR."
            )
        found[name] = Path(place)
    return found
