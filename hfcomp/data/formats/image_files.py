"""Turns columns of file names into columns of images, and checks early that the files exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Image, IterableDataset, Value

IMAGE_COLUMNS = ("image", "negative_image", "mask")
"""Contract columns that contain images."""
TEXTS = (Value("string"), Value("large_string"))
CHECKED_ROWS = 2000
"""Number of rows whose files are checked before training; in larger datasets, evenly spaced from the first on."""
_TRIED_NAMES = 20


class Folders(NamedTuple):
    """Folders in which relative file names are searched.

    Attributes:
        tables: Folders of the files that list the names.
        root: Folder of the dataset, for names that do not exist next to their table; None if there is none.
    """

    tables: tuple[Path, ...]
    root: Path | None = None


NO_FOLDERS = Folders(())
"""Folders for a Hub dataset: relative names stay as they are."""


def text_columns(dataset: Dataset | IterableDataset) -> list[str]:
    return [name for name in IMAGE_COLUMNS if name in dataset.column_names and dataset.features[name] in TEXTS]


def with_image_files(dataset: Dataset | IterableDataset, folders: Folders) -> Dataset | IterableDataset:
    """Converts file names, and columns of encoded image bytes, to undecoded images.

    Absolute names, members of archives and URLs stay as they are; an empty name means no image.

    Raises:
        ValueError: If a name matches several files, in the folders of several tables.
    """
    for column in IMAGE_COLUMNS:
        if column in dataset.column_names and _is_encoded(dataset.features[column]):
            dataset = dataset.cast_column(column, Image(decode=False))
    columns = text_columns(dataset)
    if isinstance(dataset, IterableDataset):
        return _stream_image_files(dataset, columns, folders) if columns and folders.tables else dataset
    for column in columns:
        names = dataset[column][:]
        if not folders.tables and any(map(_is_relative, names)):
            continue
        place = _Places(column, _narrow(folders, names))
        files = [place(name, row) for row, name in enumerate(names)]
        dataset = dataset.remove_columns(column).add_column(column, files, feature=Value("string"))
        dataset = dataset.cast_column(column, Image(decode=False))
    return dataset


def _is_encoded(feature: Any) -> bool:
    """Whether a column contains image bytes, or images as pandas writes them, without the image type of `datasets`."""
    if isinstance(feature, dict):
        return feature.keys() == {"bytes", "path"}
    return feature in (Value("binary"), Value("large_binary"))


def _stream_image_files(dataset: IterableDataset, columns: Sequence[str], folders: Folders) -> IterableDataset:
    features = dataset.features.copy()
    features.update({column: Image(decode=False) for column in columns})
    places = {column: _Places(column, folders) for column in columns}

    def locate(batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        files = {
            column: [place(name, row) for name, row in zip(batch[column], rows, strict=True)]
            for column, place in places.items()
        }
        return {
            column: [None if name is None else {"path": name, "bytes": None} for name in names]
            for column, names in files.items()
        }

    return dataset.map(locate, batched=True, with_indices=True, features=features)


def _is_relative(name: str | None) -> bool:
    return bool(name) and "://" not in name and not os.path.isabs(name)


def _narrow(folders: Folders, names: Sequence[str | None]) -> Folders:
    # Decide once from a few names, so millions of rows need no lookups on disk.
    if len(folders.tables) != 1 or folders.root in (None, folders.tables[0]):
        return folders
    tried = list(islice(filter(_is_relative, names), _TRIED_NAMES))
    (own,), root = folders
    at_root = not any((own / name).exists() for name in tried) and any((root / name).exists() for name in tried)
    return Folders((root if at_root else own,))


class _Places:
    def __init__(self, column: str, folders: Folders) -> None:
        self.column = column
        self.folders = [os.path.abspath(folder) for folder in folders.tables]
        self.root = None if folders.root is None else os.path.abspath(folders.root)

    def __call__(self, name: str | None, row: int) -> str | None:
        if not name:
            return None
        if not _is_relative(name):
            return name
        if len(self.folders) == 1 and self.root in (None, self.folders[0]):
            return os.path.join(self.folders[0], name)
        files = [path for folder in self.folders if os.path.exists(path := os.path.join(folder, name))]
        if len(files) > 1:
            raise ValueError(
                f"column {self.column!r}, row {row}: {name!r} matches {len(files)} files, such as {files[0]} and "
                f"{files[1]}, because several tables list files relative to their folders. Load each table "
                "separately, or use names relative to the dataset's folder."
            )
        at_root = None if self.root is None else os.path.join(self.root, name)
        return files[0] if files else at_root or os.path.join(self.folders[0], name)


def named_image_files(dataset: Dataset, folders: Folders) -> dict[str, str]:
    """Finds text columns that name existing image files, each with the first such name."""
    endings = PIL.Image.registered_extensions()
    columns = {}
    for column, feature in dataset.features.items():
        if feature not in TEXTS:
            continue
        for name in dataset.select(range(min(len(dataset), _TRIED_NAMES)))[column]:
            places = (folders.root, *folders.tables) if _is_relative(name) else (Path(),)
            is_image = bool(name) and "\0" not in name and Path(name).suffix.lower() in endings
            if is_image and any(place is not None and (place / name).is_file() for place in places):
                columns.setdefault(column, name)
    return columns


def check_image_files(dataset: Any, columns: Sequence[str], *, one_is_enough: bool = False) -> None:
    """Checks that the files named in image columns exist, before the first of them is needed.

    Images inside the dataset and URLs are not checked. Of larger datasets, only `CHECKED_ROWS` rows are checked. With
    `one_is_enough`, other files may be missing; a build sets their rows aside.
    """
    if not isinstance(dataset, Dataset) or not len(dataset):
        return
    # Check an evenly spaced sample: looking up millions of files on a network disk would delay the start by an hour.
    # The usual mistakes, a wrong folder or a wrong extension, affect every row.
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), CHECKED_ROWS)).astype(np.int64))
    for column in columns:
        if column not in IMAGE_COLUMNS or column not in dataset.column_names:
            continue
        names = _named_files(dataset, column, rows)
        missing = [(row, name) for row, name in names if not os.path.exists(name)]
        if missing and not (one_is_enough and len(missing) < len(names)):
            raise FileNotFoundError(_missing_files_text(column, missing, len(rows), len(dataset)))


def _named_files(dataset: Dataset, column: str, rows: np.ndarray) -> list[tuple[int, str]]:
    images = dataset.data.column(column)
    if not pa.types.is_struct(images.type):
        return []
    places = pa.array(rows)
    if dataset._indices is not None:
        places = dataset._indices.column(0).take(places)
    # Read one field at a time, because whole rows would include the bytes.
    inside = pc.is_valid(pc.struct_field(images, "bytes")).take(places).to_pylist()
    paths = pc.struct_field(images, "path").take(places).to_pylist()
    entries = zip(rows.tolist(), paths, inside, strict=True)
    return [(row, path) for row, path, has_bytes in entries if path and not has_bytes and "://" not in path]


def _missing_files_text(column: str, missing: Sequence[tuple[int, str]], checked: int, total: int) -> str:
    row, path = missing[0]
    folder = Path(path).parent
    state = "exists" if folder.is_dir() else "does not exist either"
    rows = f"{total:,} rows" if checked == total else f"{checked:,} checked rows (of {total:,})"
    return (
        f"column {column!r}, row {row}: the file {path} does not exist; its folder {folder} {state}. {len(missing):,} "
        f"of {rows} {'names' if len(missing) == 1 else 'name'} a missing file. If a table is loaded by its path (a "
        "recipe's dataset, hfcomp.data.load_training_set), file names are relative to that table; otherwise they are "
        "relative to the working directory. Correct the names, add the files, or remove the rows."
    )
