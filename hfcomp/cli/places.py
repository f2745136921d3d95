"""Names of datasets and models on a command line, checked before the libraries that read them are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hfcomp.reading import check_dataset_place, check_place


def check_datasets(words: Iterable[str]) -> None:
    """Raises for a path that does not exist.

    Args:
        words: Hub ids, paths, NAME=PLACE or PLACE::CONFIGURATION.

    Raises:
        FileNotFoundError: naming it.
    """
    for word in words:
        check_dataset_place(_place(word).partition("::")[0])


def check_models(words: Iterable[str]) -> None:
    """Raises for a path that does not exist.

    Args:
        words: Hub ids, folders or NAME=PLACE.

    Raises:
        ValueError: naming it.
    """
    for word in words:
        check_place(_place(word))


def check_folders(folders: Iterable[Path]) -> None:
    """Raises FileNotFoundError for a folder that does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder; relative paths start at {os.getcwd()!r}.")


def _place(word: str) -> str:
    """The place in NAME=PLACE; an existing path may contain `=` itself."""
    return word if os.path.exists(word) else word.rpartition("=")[2]


def option_values(words: Sequence[str], name: str) -> list[str]:
    """The values of an option among unparsed words, written `--name value` or `--name=value`."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return values + [value for word, value in zip(words, words[1:], strict=False) if word == f"--{name}"]
