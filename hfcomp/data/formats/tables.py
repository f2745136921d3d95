"""Tables of rows: readers, image folders with tables, file names that look like patterns, and lists in text form."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from glob import has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, List, Value
from datasets.data_files import DataFilesDict, DataFilesList, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard

from hfcomp.data.columns import CONCEPT_FEATURES, NEGATIVE_FEATURES
from hfcomp.data.formats.caption_folders import SPLITS, has_images
from hfcomp.data.formats.image_files import TEXTS
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
"""The `datasets` builder and its arguments by file extension."""
ENDINGS = (*READERS, *(f"{ending}.gz" for ending in (".json", ".jsonl", ".csv", ".tsv")))
_LISTING = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".parquet")  # a .json file may be anything


def is_table(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def reader_of(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns the `datasets` builder that reads a file, and its arguments."""
    if not is_table(path.name):
        raise ValueError(f"{path}: expected a folder, or a file with one of the extensions {', '.join(ENDINGS)}.")
    return READERS[Path(path.name.lower().removesuffix(".gz")).suffix]


def tables_of_images(folder: Path) -> dict[str, list[Path]]:
    """Returns the tables that list the images of a folder, by split; empty for any other folder.

    A table belongs to a split if its name starts with the split's name or it is in a folder of that name; a single
    table is `train`. `datasets` handles folders whose card or metadata file describes their content, and folders with
    several tables that name no split.
    """
    # `datasets` would read such a folder as images only, or reject a metadata file whose file name column is not
    # called `file_name`.
    if not folder.is_dir() or _has_configs(folder / "README.md") or not has_images(folder):
        return {}
    tables = {"train": own} if (own := _tables(folder)) else {}
    named = {split: [path for path in own if _split_of(path) == split] for split in SPLITS}
    if len(own) > 1:
        tables = {split: paths for split, paths in named.items() if paths}
        if sum(map(len, tables.values())) < len(own):
            return {}
    if not own:
        parts = {split: _tables(folder / split) for split in SPLITS if (folder / split).is_dir()}
        tables = {split: paths for split, paths in parts.items() if paths}
    every = [path for paths in tables.values() for path in paths]
    metadata = [path for path in every if path.name.startswith("metadata.")]
    return {} if len({reader_of(path)[0] for path in every}) > 1 or any(map(_names_images, metadata)) else tables


def _tables(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(_LISTING)]


def _split_of(path: Path) -> str | None:
    return next((split for split in SPLITS if re.match(rf"{split}(?![a-zA-Z])", path.name)), None)


def _has_configs(card: Path) -> bool:
    return card.is_file() and "\nconfigs:" in card.read_text(encoding="utf-8", errors="replace")


def _names_images(path: Path) -> bool:
    # The names that `datasets` expects: file_name, image_file_name, or file_names for a list.
    return any(name.removesuffix("s").rpartition("file_name")[1:] == ("file_name", "") for name in columns_of(path))


def columns_of(path: Path) -> Sequence[str]:
    """Returns the columns of a table, based on its first row."""
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


def literal_files(paths: Iterable[str | Path]) -> DataFilesList:
    """Makes `data_files` for `load_dataset` that match exactly these files."""
    # `datasets` treats a path in a plain list as a pattern: for `set[1].csv` it would search `set1.csv`. Size and time
    # replace the metadata by which its cache detects changed files.
    places = [os.path.abspath(path) for path in paths]
    states = [os.stat(place) for place in places]
    return DataFilesList(places, [(str(state.st_mtime_ns), str(state.st_size)) for state in states])


def literal_options(name: str | Path, config: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of `load_dataset` for a folder, with its files if its name would be read as a pattern."""
    folder = Path(name).expanduser()
    if not folder.is_dir() or not has_magic(str(folder.resolve())):
        return dict(options)
    folder = folder.resolve()
    with TemporaryDirectory() as place:  # resolve patterns below a name without special characters
        link = os.path.join(os.path.realpath(place), "set")
        os.symlink(folder, link, target_is_directory=True)
        patterns = sanitize_patterns(
            options.get("data_files") or _stated_patterns(folder, config) or get_data_patterns(link)
        )
        data_files = DataFilesDict.from_patterns(patterns, base_path=link)
    files = {
        split: literal_files(f"{folder}{file.removeprefix(link)}" for file in paths)
        for split, paths in data_files.items()
    }
    return {**options, "data_files": DataFilesDict(files)}


def _stated_patterns(folder: Path, config: str | None) -> Any:
    card = folder / "README.md"
    configs = MetadataConfigs.from_dataset_card_data(DatasetCard.load(card).data) if card.is_file() else {}
    if not configs:
        return None
    chosen = config or configs.get_default_config_name() or next(iter(configs))
    return configs.get(chosen, {}).get("data_files")


_TEXT_LISTS = ("caption", "positive_captions", "neighbor_ids", "hard_negative_groups")
LIST_FEATURES = {**dict.fromkeys(_TEXT_LISTS, List(Value("string"))), **NEGATIVE_FEATURES, **CONCEPT_FEATURES}
_LONGEST = 100_000
_MISSING = object()


def with_lists(dataset: Dataset) -> Dataset:
    """Parses lists written as text, in contract columns that may contain lists.

    A column is converted only if all its entries are lists; otherwise it stays, and the code that needs lists reports
    it.
    """
    for column, feature in LIST_FEATURES.items():
        if column in dataset.column_names and dataset.features[column] in TEXTS:
            lists = _lists(dataset[column])
            if lists is not None:
                dataset = dataset.remove_columns(column).add_column(column, lists, feature=feature)
    return dataset


def _lists(texts: Sequence[str | None]) -> list[list[Any] | None] | None:
    lists = []
    for text in texts:
        value = None if text is None else _read(text.strip())
        if value is _MISSING:
            return None
        lists.append(value)
    return lists if any(value is not None for value in lists) else None


def read_list(text: str) -> list[Any] | None:
    """Parses a list written in JSON or Python; `None` if the text is not a list."""
    value = _read(text.strip())
    return None if value is _MISSING else value


def _read(text: str) -> Any:
    if not (text.startswith("[") and text.endswith("]")) or len(text) > _LONGEST:
        return _MISSING
    # pandas writes lists in Python syntax. `literal_eval` executes no code, and the length limit above bounds its
    # memory for deeply nested brackets.
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value if isinstance(value, list) else _MISSING
    return _MISSING
