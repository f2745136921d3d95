"""Training sets by Hub id or path, and the rows a collator receives: undecoded images, each row with its index."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import (
    Dataset,
    DatasetDict,
    Image,
    IterableDataset,
    IterableDatasetDict,
    ReadInstruction,
    Value,
    concatenate_datasets,
    get_dataset_split_names,
    load_dataset,
    load_from_disk,
)
from datasets.arrow_writer import SchemaInferenceError
from datasets.config import HF_DATASETS_CACHE
from datasets.exceptions import DatasetGenerationError

from hfcomp.data.built_sets import checked_shards, configuration, set_of_part, view_files
from hfcomp.data.formats.archives import check_tail
from hfcomp.data.formats.coco_folders import coco_splits, is_coco_folder, read_coco_folder
from hfcomp.data.formats.image_folders import captioned_splits, is_captioned_folder, read_captioned_folder
from hfcomp.data.urls import add_repositories
from hfcomp.data.views import View, choose_view, read_views
from hfcomp.reading import may_be_hub_id

BUILDERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".csv": "csv"}
"""What `datasets` reads a file with, by its suffix."""
_HUB_FILE = re.compile(r"datasets/([^@\s]+)@([0-9a-f]{40})")


def load_training_set(name: str, *, split: str = "train", config: str | None = None, **kwargs: Any) -> Dataset:
    """Loads a data set: a folder or file on disk where there is one, else a Hub id.

    Args:
        name: a folder written by `save_to_disk`, a folder or file that `load_dataset` reads (Parquet, an image folder
            with `metadata.jsonl`, a data set repository in the Hub's layout), a folder of COCO (`coco_folders`) or of
            images with texts beside them (`image_folders`), or a Hub id. In a JSON-lines or CSV file, `image` may
            hold file names relative to it.
        split: which split to use, or parts of some, such as `train[:90%]` or `train+validation`.
        config: the data set's configuration; of a COCO folder, `captions` or `karpathy`. A built set of several needs
            one.
        kwargs: handed to `load_dataset` (`revision`, `data_files`, ...).

    Raises:
        FileNotFoundError: for a path, and no Hub id, where nothing is.
        ValueError: when the data set has no such split, naming those that it has, is an unfinished build, or has a
            file that is damaged: a set of `hfcomp build` is verified against its manifest, a `.tar` by its end.
        OSError: where the disk of the cache is full.
    """
    views = read_views(Path(name))
    if views is not None:
        return _load_view(name, views, split, config, kwargs)
    if whole := set_of_part(Path(name)):
        known = ", ".join(read_views(whole) or ())
        raise ValueError(
            f"{name} is a part of the set {whole}. Name that folder, and one of its configurations: {known}."
        )
    path = configuration(Path(name), config)
    shards = checked_shards(path)
    for archive in sorted((*path.glob("*.tar"), *path.glob("*/*.tar"))) if path.is_dir() else ():
        check_tail(archive)
    if shards and path.is_dir() and "data_files" not in kwargs:
        own = shards[0].name.partition("-")[0]
        if split.partition("[")[0] != own:
            raise ValueError(_no_split(name, split, [own]))
        # by its files: the card of a built set, which `datasets` would read, is not verified
        return _load(name, "parquet", data_files={own: list(map(str, shards))}, split=split, **kwargs)
    elif (path / "state.json").exists() or (path / "dataset_dict.json").exists():
        loaded = load_from_disk(name)
    elif path.is_file():
        builder = BUILDERS.get(path.suffix)
        if builder is None:
            raise ValueError(f"{name}: expected a .parquet, .json, .jsonl or .csv file, or a folder.")
        loaded = _load(name, builder, data_files=name, **kwargs)
    else:
        captioned = None if kwargs.keys() & {"data_files", "streaming"} else _captioned_folder(path, split, config)
        return _load_split(name, split, config, kwargs) if captioned is None else captioned
    loaded = _part(name, loaded, split)
    return _with_image_files(loaded, path.parent) if path.is_file() else loaded


def read_commit(rows: Dataset | IterableDataset) -> str | None:
    """The commit that rows of the Hub were read at; `None` where that is not known, as of rows of files."""
    origin = read_from_hub(rows)
    return origin[1] if origin else None


def read_from_hub(rows: Dataset | IterableDataset) -> tuple[str, str] | None:
    """The id and the commit of the data set on the Hub that rows were read from, where that is known."""
    files = rows.info.download_checksums if rows.info else None
    found = _HUB_FILE.search(" ".join(map(str, files or ())))
    return (found[1], found[2]) if found else None


def _load_view(name: str, views: Mapping[str, View], split: str, config: str | None, kwargs: dict[str, Any]) -> Any:
    """Rows of a set of parts: the columns and parts of one of its views."""
    view = choose_view(Path(name), views, config)
    files = {one: list(map(str, view_files(Path(name), view, one))) for one in _split_names(split)}
    return _load(name, "parquet", data_files=files, split=split, columns=list(view.columns), **kwargs)


def _load(name: str, builder: str, *args: Any, **kwargs: Any) -> Any:
    """`load_dataset`, whose errors say what cannot be read, or that there is no room."""
    try:
        return load_dataset(builder, *args, **kwargs)
    except (DatasetGenerationError, pa.ArrowInvalid, StopIteration, OSError) as error:
        reason = error.__cause__ or error if isinstance(error, DatasetGenerationError) else error
        if getattr(reason, "errno", None) == errno.ENOSPC or "Not enough disk space" in str(reason):
            raise OSError(
                f"{name} cannot be loaded: no space left on the disk of the cache, {HF_DATASETS_CACHE}. Make room, or "
                "set HF_DATASETS_CACHE to another folder, and repeat."
            ) from error
        if isinstance(error, OSError):
            raise
        # what `datasets` raises for a file without a line; before version 5 the second
        if isinstance(reason, SchemaInferenceError | StopIteration):
            raise ValueError(f"{name} has no rows.") from error
        kind = builder if builder in BUILDERS.values() else "a data set"
        raise ValueError(f"{name} cannot be read as {kind}: {reason}") from error


def load_training_stream(name: str, *, split: str = "train", config: str | None = None) -> IterableDataset:
    """A data set that is read while training goes on, images undecoded.

    Args:
        name: a Hub id, or a folder of WebDataset shards or Parquet files.
        split: as in `load_training_set`; of a stream no slice can be read.
        config: likewise.

    Raises:
        ValueError: for a file, a folder of `save_to_disk`, or a set that does not say its columns.
    """
    path = Path(name)
    if kind := _unstreamed(path):
        raise ValueError(
            f"streaming: {name} is a {kind}; expected a Hub id, or a folder of WebDataset shards or Parquet files. "
            "Leave streaming out."
        )
    dataset = load_training_set(name, split=split, config=config, streaming=True)
    if dataset.features is None:
        raise ValueError(f"streaming: {name} does not say its columns. Leave streaming out.")
    return undecoded(dataset)


def _unstreamed(path: Path) -> str | None:
    """What is at a path, if it is nothing that can be streamed."""
    if path.is_file():
        return "file"
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
        return "folder of save_to_disk"
    return "folder of images and captions" if is_coco_folder(path) or is_captioned_folder(path) else None


def _captioned_folder(path: Path, split: str, config: str | None) -> Dataset | None:
    """The rows of a COCO folder, or of one with texts beside its images; None for any other."""
    if is_coco_folder(path):
        splits, known = read_coco_folder(path, _split_names(split), config), coco_splits(path)
    elif is_captioned_folder(path):
        splits, known = read_captioned_folder(path, _split_names(split)), list(captioned_splits(path))
    else:
        return None
    if any(name not in splits for name in _split_names(split)):
        raise ValueError(_no_split(str(path), split, known))
    return _part(str(path), splits, split)


def _split_names(split: str) -> list[str]:
    return list(dict.fromkeys(part.partition("[")[0].strip() for part in split.split("+")))


def _part(name: str, loaded: Dataset | DatasetDict, split: str) -> Dataset:
    """What a split such as `train[:90%]` or `train+test` names; rows without splits are those of any one name."""
    names = _split_names(split)
    if isinstance(loaded, Dataset):
        if len(names) > 1:
            raise ValueError(f"{name} has one split, but {split!r} names {len(names)}. Name one.")
        loaded = DatasetDict({names[0]: loaded})
    if any(one not in loaded for one in names):
        raise ValueError(_no_split(name, split, loaded))
    if split in loaded:
        return loaded[split]
    parts = ReadInstruction.from_spec(split).to_absolute({one: len(loaded[one]) for one in names})
    return concatenate_datasets([loaded[one.splitname].select(range(one.from_, one.to)) for one in parts])


def _load_split(name: str, split: str, config: str | None, kwargs: dict[str, Any]) -> Dataset:
    """One split of a folder or a set of the Hub; `datasets` may also prepare the configuration's others."""
    if not Path(name).exists():
        if not may_be_hub_id(name):
            raise FileNotFoundError(f"there is no file or folder {name!r}; relative paths start at {os.getcwd()!r}.")
        add_repositories([name])
    try:
        return _load(name, name, config, split=split, **kwargs)
    except ConnectionError as error:
        raise ConnectionError(f"{name} is not a local file or folder, and as a Hub id: {error}") from error
    except ValueError as error:
        options = {key: kwargs[key] for key in ("revision", "token", "data_files", "data_dir") if key in kwargs}
        try:
            splits = get_dataset_split_names(name, config, **options)
        except Exception:  # then the first error has to do
            raise error from None
        if split.partition("[")[0] in splits:
            raise
        raise ValueError(_no_split(name, split, splits)) from error


def _no_split(name: str, split: str, splits: Iterable[str]) -> str:
    known = ", ".join(splits)
    return f"{name} has no split {split!r}; it has: {known}. Choose one: --split, or a recipe's dataset_split."


def _with_image_files(dataset: Dataset, folder: Path) -> Dataset:
    """Image columns that hold file names become images.

    Relative names start at the folder of the file that lists them; absolute ones and URLs stay as they are.
    """

    def place(name: str) -> str:
        return name if "://" in name else str(folder / name)

    for column in ("image", "negative_image"):
        if column in dataset.column_names and dataset.features[column] in (Value("string"), Value("large_string")):
            files = [None if name is None else {"path": place(name), "bytes": None} for name in dataset[column]]
            dataset = dataset.remove_columns(column).add_column(column, files, feature=Image(decode=False))
    return dataset


def undecoded(dataset: Dataset) -> Dataset:
    """The data set with its images as they are stored, a dictionary of bytes or a path each."""
    for column, feature in dataset.features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(column, Image(decode=False))
    return dataset


def number_of_entries(dataset: Dataset, column: str) -> int:
    """How many rows of a data set have something in a column, 0 without the column; no entry is read.

    Args:
        dataset: a `datasets.Dataset`.
        column: its name.
    """
    if column not in dataset.column_names:
        return 0
    there = pc.is_valid(dataset.data.column(column))
    # reading rows through select() would read their bytes
    if dataset._indices is not None:
        there = there.take(dataset._indices.column(0))
    return pc.sum(there).as_py() or 0


def first_short_row(dataset: Dataset, column: str, number: int) -> tuple[int, int | None] | None:
    """The first row whose list in a column has fewer than a number of entries, and how many; no entry is read.

    Args:
        dataset: a `datasets.Dataset`.
        column: of lists; of another column nothing is known.
        number: of entries.

    Returns:
        The row and its number of entries, `None` in place of this where it has no list; `None` where none is short.
    """
    lists = dataset.data.column(column)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        return None
    lengths = pc.list_value_length(lists)
    if dataset._indices is not None:
        lengths = lengths.take(dataset._indices.column(0))
    row = pc.index(pc.fill_null(pc.less(lengths, number), True), True).as_py()
    return None if row < 0 else (row, lengths[row].as_py())


class TrainingRows(torch.utils.data.Dataset):
    """Rows of a `datasets.Dataset` with their index under `row` and images undecoded.

    The collator decodes: it can then name the row and column of an image that is corrupt, and turn, scale and convert
    by one rule whatever the source. Works with any `torch` sampler and inside `DataLoader` workers.

    Args:
        dataset: a `datasets.Dataset`; a split dictionary or a streaming data set is refused.
        columns: the columns to read; others stay on disk.

    Raises:
        TypeError: for anything but a `datasets.Dataset`.
    """

    def __init__(self, dataset: Dataset, columns: list[str]) -> None:
        if isinstance(dataset, DatasetDict | IterableDatasetDict):
            raise TypeError(f"the data set has the splits {', '.join(dataset)}. Pass one of them: dataset['train'].")
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "the data set is streaming; an evaluation set, and rows that are chosen by number, are read whole. "
                "Load it without streaming=True."
            )
        if not isinstance(dataset, Dataset):
            raise TypeError(f"expected a datasets.Dataset, found {type(dataset).__name__}.")
        self.dataset = undecoded(dataset.select_columns([name for name in columns if name in dataset.column_names]))

    def __len__(self) -> int:
        return len(self.dataset)

    def column(self, name: str) -> list[Any]:
        """A column of all rows.

        Raises:
            ValueError: when it is not among those that are read.
        """
        if name not in self.dataset.column_names:
            raise ValueError(
                f"the training rows have no column {name!r}; they have: {', '.join(self.dataset.features)}."
            )
        return self.dataset[name][:]

    def number_of_entries(self, name: str) -> int:
        """How many rows have something in a column; 0 without the column."""
        return number_of_entries(self.dataset, name)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Rows by index in one read; called by torch's DataLoader."""
        batch = self.dataset[indices]
        return [
            {"row": index, **{name: values[position] for name, values in batch.items()}}
            for position, index in enumerate(indices)
        ]
