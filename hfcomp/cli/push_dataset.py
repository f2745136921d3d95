"""`hfcomp push-dataset`: uploads datasets built by `hfcomp build` to the Hub."""

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
        "Folder of a built dataset, or CONFIG=DIR for each of several; the first is the default configuration.",
    ]


def main(arguments: Sequence[str]) -> None:
    """Uploads one built dataset, or several as configurations of one repository."""
    given = vars(parser().parse_args(arguments))
    folders, options = (
        parse_configurations(make_options(FolderOptions, given).folders),
        make_options(PushOptions, given),
    )
    check_folders([folders] if isinstance(folders, Path) else folders.values())
    from hfcomp.hub.datasets import push_built_sets

    push_built_sets(folders, options, log=lambda line: print(line, flush=True))


def parser() -> argparse.ArgumentParser:
    description = (
        "Upload a dataset built by `hfcomp build` to the Hub. Re-run the command to resume an interrupted upload."
    )
    return command_parser("push-dataset", description, FolderOptions, PushOptions)


def parse_configurations(words: Sequence[str]) -> Path | dict[str, Path]:
    """Parses one folder, or folders by configuration. A configuration is named after its folder by default.

    Raises:
        ValueError: If two configurations have the same name.
    """
    if len(words) == 1 and ("=" not in words[0] or Path(words[0]).exists()):
        return Path(words[0])
    folders: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if not equals or Path(word).exists():
            name, folder = Path(word).resolve().name, word
        if name in folders:
            raise ValueError(
                f"the configuration {name!r} is given twice: {folders[name]} and {folder}. Name one CONFIG=DIR."
            )
        folders[name] = Path(folder)
    return folders
