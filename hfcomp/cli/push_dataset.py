"""`hfcomp push-dataset`: a set of `hfcomp build` as a data set of the Hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_fields, command_parser
from hfcomp.cli.places import check_folders

USAGE = "DIR --repo NAME, or CONFIG=DIR CONFIG=DIR --repo NAME"
SUMMARY = "a built data set, verified, to the Hub; the same command resumes a broken upload"


def main(arguments: Sequence[str]) -> None:
    """Pushes one built set, or several as configurations.

    Raises:
        ValueError: as `hfcomp.hub.datasets.push_built_sets`, or for two folders of one name.
    """
    options = vars(parser().parse_args(arguments))
    folders = folders_of(options.pop("folders"))
    check_folders([folders] if isinstance(folders, Path) else folders.values())
    from hfcomp.hub.datasets import PushOptions, push_built_sets

    push_built_sets(folders, PushOptions(**options), log=lambda line: print(line, flush=True))


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `hfcomp.hub.datasets.PushOptions`."""
    from hfcomp.hub.options import PushOptions

    found = command_parser(
        "push-dataset",
        "Pushes a set of `hfcomp build` to the Hub. A push that broke is resumed by the same command.",
        sparse=True,
    )
    words = "folder of a built set, or CONFIG=DIR for each of several; the first is the default configuration"
    found.add_argument("folders", nargs="+", metavar="DIR", help=words)
    add_fields(found, PushOptions)
    return found


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
