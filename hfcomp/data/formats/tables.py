"""Files of rows: what `datasets` reads one with, by its name, and folders of images with a table of their captions."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hfcomp.data.formats.image_folders import SPLITS, has_images
from hfcomp.reading import FileError
from hfcomp.text_tables import open_table

READERS: dict[str, tuple[str, dict[str, Any]]] = {
    ".parquet": ("parquet", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {}),
    ".tsv": ("csv", {"sep": "\t"}),
    ".tar": ("webdataset", {}),
}
"""By the end of a file's name, the builder of `datasets` and its arguments."""
ENDINGS = (*READERS, *(f"{ending}.gz" for ending in (".json", ".jsonl", ".csv", ".tsv")))
_LISTING = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".parquet")  # a .json file may be anything


def is_table(name: str) -> bool:
    """Whether a file of this name is read as rows."""
    return name.lower().endswith(ENDINGS)


def reader_of(path: Path) -> tuple[str, dict[str, Any]]:
    """The builder of `datasets` that reads a file, and its arguments.

    Raises:
        ValueError: for a file of another kind.
    """
    if not is_table(path.name):
        raise ValueError(f"{path}: expected a file that ends with {', '.join(ENDINGS)}, or a folder.")
    return READERS[Path(path.name.lower().removesuffix(".gz")).suffix]


def tables_of_images(folder: Path) -> dict[str, list[Path]]:
    """The tables of a folder of images that list them, by split; none for any other folder.

    `datasets` would read such a folder as images alone, or refuse a metadata file that does not call the column of
    file names `file_name`. Tables of a split begin with its name, or are in a folder of its name; a single table is
    `train`. A folder whose card or whose metadata file says what it holds is left to `datasets`, and so are several
    tables that name no split.

    Raises:
        ValueError: for a metadata file that cannot be read.
    """
    if not folder.is_dir() or _has_configs(folder / "README.md") or not has_images(folder):
        return {}
    found = {"train": own} if (own := _tables(folder)) else {}
    named = {split: [path for path in own if _split_of(path) == split] for split in SPLITS}
    if len(own) > 1:
        found = {split: paths for split, paths in named.items() if paths}
        if sum(map(len, found.values())) < len(own):
            return {}
    if not own:
        parts = {split: _tables(folder / split) for split in SPLITS if (folder / split).is_dir()}
        found = {split: paths for split, paths in parts.items() if paths}
    every = [path for paths in found.values() for path in paths]
    metadata = [path for path in every if path.name.startswith("metadata.")]
    return {} if len({reader_of(path)[0] for path in every}) > 1 or any(map(_names_images, metadata)) else found


def _tables(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(_LISTING)]


def _split_of(path: Path) -> str | None:
    return next((split for split in SPLITS if re.match(rf"{split}(?![a-zA-Z])", path.name)), None)


def _has_configs(card: Path) -> bool:
    return card.is_file() and "\nconfigs:" in card.read_text(encoding="utf-8", errors="replace")


def _names_images(path: Path) -> bool:
    """Whether a metadata file names images as `datasets` expects."""
    return any(name.removesuffix("s").rpartition("file_name")[1:] == ("file_name", "") for name in columns_of(path))


def columns_of(path: Path) -> Sequence[str]:
    """The columns of a table by its first row.

    Raises:
        ValueError: for a file that cannot be read.
    """
    builder, _ = reader_of(path)
    try:
        if builder == "parquet":
            return pq.read_schema(path).names
        if builder == "csv":
            return open_table(path).columns
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            return [*json.loads(file.readline() or "{}")]
    except FileError:
        raise
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"{path} cannot be read: {error}. Correct the file.") from error
