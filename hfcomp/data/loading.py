"""Training sets by Hub id or path, and the rows a collator receives: undecoded images, each row with its index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset, DatasetDict, Image, IterableDataset, IterableDatasetDict

from hfcomp.data.columns import chosen_rows, rename_columns
from hfcomp.data.formats.archives import KEY
from hfcomp.data.formats.caption_folders import is_captioned_folder, is_coco_folder
from hfcomp.data.formats.image_files import NO_FOLDERS, text_columns, with_image_files
from hfcomp.data.formats.tables import with_lists
from hfcomp.data.row_checks import check_sample
from hfcomp.data.sources import listing_folders, load_source

Rows = Dataset | IterableDataset
_HUB_FILE = re.compile(r"datasets/([^@\s]+)@([0-9a-f]{40})")


def load_training_set(
    name: str,
    *,
    split: str = "train",
    config: str | None = None,
    column_names: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Dataset:
    """Loads a dataset in the column contract: a folder or file on disk where there is one, else a Hub id.

    ```python
    load_training_set("pairs.tsv", column_names={"image": "filepath", "caption": "title"})
    ```

    Columns of images may hold file names, relative to the file that lists them, or URLs, which are fetched only where
    they are allowed. Lists that are written as texts, as in CSV, become lists.

    Args:
        name: a `.csv`, `.tsv`, `.jsonl`, `.json` (each also as `.gz`), `.parquet` or `.tar` file (WebDataset); a
            folder written by `save_to_disk` or that `load_dataset` reads (Parquet, shards of WebDataset, an image
            folder with metadata, a dataset repository in the Hub's layout); a folder of COCO or of images with
            texts beside them (`caption_folders`); or a Hub id.
        split: which split to use, or parts of some, such as `train[:90%]` or `train+validation`.
        config: the dataset's configuration; of a COCO folder, `captions` or `karpathy`. A built set of several needs
            one.
        column_names: contract name to the dataset's own, as for [`rename_columns`].
        kwargs: handed to `load_dataset` (`revision`, `data_files`, ...).

    Raises:
        FileNotFoundError: for a path, and no Hub id, where nothing is.
        ValueError: when the dataset has no such split, naming those that it has, is an unfinished build, or has a
            file that is damaged: a set of `hfcomp build` is verified against its manifest, a `.tar` is walked to its
            end, a table's rows are compared with its lines. Also for a name in `column_names` that the contract or
            the set lacks.
        OSError: where the disk of the cache is full.
    """
    rows = load_source(name, split=split, config=config, **kwargs)
    return contract_rows(rows, name, column_names, split=split, config=config, **kwargs)


def read_commit(rows: Dataset | IterableDataset) -> str | None:
    origin = read_from_hub(rows)
    return origin[1] if origin else None


def read_from_hub(rows: Dataset | IterableDataset) -> tuple[str, str] | None:
    """The id and the commit of the dataset on the Hub that rows were read from, where that is known."""
    # `datasets` keeps no id, but it keeps the addresses of its downloads, and a Hub address holds both id and commit.
    files = rows.info.download_checksums if rows.info else None
    found = _HUB_FILE.search(" ".join(map(str, files or ())))
    return (found[1], found[2]) if found else None


def contract_rows(
    dataset: Rows,
    name: str,
    column_names: Mapping[str, str] | None = None,
    *,
    split: str = "train",
    config: str | None = None,
    **kwargs: Any,
) -> Rows:
    """Rows of `load_source` under the contract's names, with images for file names, and lists for their texts."""
    dataset = rename_columns(dataset, column_names)
    if dataset.features is None:
        return dataset
    if isinstance(dataset, Dataset):
        dataset = with_lists(dataset)
    texts = text_columns(dataset)
    folders = listing_folders(name, split, config, kwargs) if texts else NO_FOLDERS
    dataset = with_image_files(dataset, folders)
    if isinstance(dataset, IterableDataset) and KEY in dataset.features:
        return dataset.filter(check_sample)  # as it is read: later its sample's name is lost
    return dataset


def load_training_stream(name: str, *, split: str = "train", config: str | None = None) -> IterableDataset:
    """A dataset that is read while training goes on, images undecoded, under its own names; see [`contract_rows`]."""
    path = Path(name)
    if kind := _unstreamed(path):
        raise ValueError(
            f"streaming: {name} is a {kind}; expected a Hub id, or a folder of WebDataset shards or Parquet files. "
            "Leave streaming out."
        )
    dataset = load_source(name, split=split, config=config, streaming=True)
    if dataset.features is None:
        raise ValueError(f"streaming: {name} does not say its columns. Leave streaming out.")
    return undecoded(dataset)


def _unstreamed(path: Path) -> str | None:
    if path.is_file():
        return "file"
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
        return "folder of save_to_disk"
    return "folder of images and captions" if is_coco_folder(path) or is_captioned_folder(path) else None


def undecoded(dataset: Dataset) -> Dataset:
    """The dataset with its images as they are stored, a dictionary of bytes or a path each."""
    for column, feature in dataset.features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(column, Image(decode=False))
    return dataset


def number_of_entries(dataset: Dataset, column: str) -> int:
    return pc.sum(_there(dataset, column)).as_py() or 0


def entries_there(dataset: Dataset, column: str) -> list[bool]:
    return _there(dataset, column).to_pylist()


def _there(dataset: Dataset, column: str) -> pa.Array | pa.ChunkedArray:
    # Arrow has a bitmap of nulls for each column: no entry, and so no image, is read to count them.
    if column not in dataset.column_names:
        return pa.array([False] * len(dataset))
    there = pc.is_valid(dataset.data.column(column))
    return chosen_rows(dataset, there)


def first_short_row(dataset: Dataset, column: str, number: int) -> tuple[int, int | None] | None:
    """The first row whose list has fewer than a number of entries, and how many it has (`None` without a list)."""
    lists = dataset.data.column(column)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        return None
    lengths = chosen_rows(dataset, pc.list_value_length(lists))
    row = pc.index(pc.fill_null(pc.less(lengths, number), True), True).as_py()
    return None if row < 0 else (row, lengths[row].as_py())


class TrainingRows(torch.utils.data.Dataset):
    """Rows of a `datasets.Dataset` with their index under `row` and images undecoded.

    The collator decodes: it can then name the row and column of an image that is corrupt, and turn, scale and convert
    by one rule whatever the source. Works with any `torch` sampler and inside `DataLoader` workers.

    Args:
        dataset: a `datasets.Dataset`; a split dictionary or a streaming dataset is refused.
        columns: the columns to read; others stay on disk.

    Raises:
        TypeError: for anything but a `datasets.Dataset`.
    """

    def __init__(self, dataset: Dataset, columns: list[str]) -> None:
        if isinstance(dataset, DatasetDict | IterableDatasetDict):
            raise TypeError(f"the dataset has the splits {', '.join(dataset)}. Pass one of them: dataset['train'].")
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "the dataset is streaming; an evaluation set, and rows that are chosen by number, are read whole. "
                "Load it without streaming=True."
            )
        if not isinstance(dataset, Dataset):
            raise TypeError(f"expected a datasets.Dataset, found {type(dataset).__name__}.")
        self._whole, self._columns = dataset, [name for name in columns if name in dataset.column_names]
        self.dataset = self._selected()

    def _selected(self) -> Dataset:
        return undecoded(self._whole.select_columns(self._columns))

    # `datasets` cannot unpickle a selection of only added image columns, so another process selects again.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "dataset"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dataset = self._selected()

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def features(self) -> dict[str, Any]:
        """The type of each column."""
        return dict(self.dataset.features)

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

    def batch_column(self, name: str) -> list[Any]:
        """A column of all rows that a batch may hold."""
        return self.column(name)

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
