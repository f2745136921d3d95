"""Early checks of dataset and model names on a command line, before the libraries that read them are imported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from hfcomp.options import split_name
from hfcomp.reading import check_dataset_place

HEAD, SMALL = 1000, 5_000_000
"""Limits of the early checks: rows of a text table, and bytes of a JSON file."""


def check_datasets(words: Iterable[str]) -> None:
    """Checks Hub ids, paths, NAME=PLACE or PLACE::CONFIGURATION.

    Raises:
        FileNotFoundError: If a path does not exist; names it.
        ValueError: If the start of a table is broken; names the file, and the line if the format has lines.
    """
    for word in words:
        place = split_name(word)[1].partition("::")[0]
        check_dataset_place(place)
        if Path(place).is_file():
            _check_head(Path(place))


def _check_head(path: Path) -> None:
    """Reads the start of a text table, a small JSON file, or the metadata of a Parquet file."""
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        from hfcomp.text_tables import open_table

        for _ in islice(open_table(path, looked_at=HEAD).rows(), HEAD):
            pass
    elif path.name.lower().endswith((".json", ".jsonl")) and path.stat().st_size < SMALL:
        _check_json(path)
    elif name.endswith(".parquet"):
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_metadata

        try:
            read_metadata(path)
        except ArrowInvalid as error:
            raise ValueError(f"{path} cannot be read as Parquet: {error}") from error


def _check_json(path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:  # the reader names the place
        return
    if not text:  # the reader reports that there are no rows
        return
    for part in (text, text.partition("\n")[0]):  # one document, or one document per line
        try:
            json.loads(part)
            return
        except json.JSONDecodeError as error:
            reason = f"line {error.lineno}: {error.msg}"
        except (ValueError, RecursionError):  # huge numbers or deep nesting: the reader has limits and names them
            return
    raise ValueError(f"{path} cannot be read as JSON: {reason}.")


def check_folders(folders: Iterable[Path]) -> None:
    """Raises FileNotFoundError for a folder that does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder; relative paths start at {os.getcwd()!r}.")


def option_values(words: Sequence[str], name: str) -> list[str]:
    """Returns an option's values from unparsed words, written `--name value` or `--name=value`."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
    return values + [value for word, value in zip(words, words[1:], strict=False) if word == f"--{name}"]
