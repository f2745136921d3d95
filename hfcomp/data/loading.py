"""Loads training sets by Hub id or path, and yields rows for a collator, with undecoded images and row indices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset, DatasetDict, Image, IterableDataset, IterableDatasetDict

from hfcomp.data.columns import rename_columns, select_values
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
    """Loads a dataset in the column contract from a file or folder on disk if it exists, otherwise from the Hub.

    ```python
    load_training_set("pairs.tsv", column_names={"image": "filepath", "caption": "title"})
    ```

    Image columns may contain file names, relative to the file that lists them, or URLs, which are downloaded only if
    URLs are allowed. Lists written as texts, for example in CSV files, become lists.

    Args:
        name: A `.csv`, `.tsv`, `.jsonl`, `.json` (each also as `.gz`), `.parquet` or `.tar` file (WebDataset); a
            folder written by `save_to_disk` or readable by `load_dataset` (Parquet, WebDataset shards, an image folder
            with metadata, a dataset repository in the Hub's layout); a COCO folder or a folder of images with texts
            next to them (`caption_folders`); or a Hub id.
        split: Split to use, or parts of splits, such as `train[:90%]` or `train+validation`.
        config: Dataset configuration; for a COCO folder, `captions` or `karpathy`. Required for a built dataset with
            several configurations.
        column_names: Mapping from contract names to the dataset's own names, as for [`rename_columns`].
        kwargs: Passed to `load_dataset` (`revision`, `data_files`, ...).

    Raises:
        FileNotFoundError: If the name is a path, not a Hub id, and does not exist.
        ValueError: If the dataset has no such split (the message lists the existing ones), is an unfinished build, or
            has a damaged file: datasets of `hfcomp build` are verified against their manifest, `.tar` files are read
            to their end, and a table's rows are compared with its lines. Also if a name in `column_names` is missing
            from the contract or the dataset.
        OSError: If the disk of the cache is full.
    """
    rows = load_source(name, split=split, config=config, **kwargs)
    return contract_rows(rows, name, column_names, split=split, config=config, **kwargs)


def read_commit(rows: Dataset | IterableDataset) -> str | None:
    origin = read_from_hub(rows)
    return origin[1] if origin else None


def read_from_hub(rows: Dataset | IterableDataset) -> tuple[str, str] | None:
    """Returns the id and commit of the Hub dataset from which rows were read, if known."""
    # `datasets` keeps no id, but it keeps the URLs of its downloads, and a Hub URL contains both id and commit.
    files = rows.info.download_checksums if rows.info else None
    match = _HUB_FILE.search(" ".join(map(str, files or ())))
    return (match[1], match[2]) if match else None


def contract_rows(
    dataset: Rows,
    name: str,
    column_names: Mapping[str, str] | None = None,
    *,
    split: str = "train",
    config: str | None = None,
    **kwargs: Any,
) -> Rows:
    """Renames the columns of `load_source` rows to contract names; file names become images and texts lists."""
    dataset = rename_columns(dataset, column_names)
    if dataset.features is None:
        return dataset
    if isinstance(dataset, Dataset):
        dataset = with_lists(dataset)
    texts = text_columns(dataset)
    folders = listing_folders(name, split, config, kwargs) if texts else NO_FOLDERS
    dataset = with_image_files(dataset, folders)
    if isinstance(dataset, IterableDataset) and KEY in dataset.features:
        return dataset.filter(check_sample)  # check while reading, because the sample's name is lost later
    return dataset


def load_training_stream(name: str, *, split: str = "train", config: str | None = None) -> IterableDataset:
    """Streams a dataset during training, with undecoded images and its own column names; see [`contract_rows`]."""
    path = Path(name)
    if kind := _unstreamable_kind(path):
        raise ValueError(
            f"streaming: {name} is a {kind}; expected a Hub id, or a folder of WebDataset shards or Parquet files. "
            "Load it without streaming."
        )
    dataset = load_source(name, split=split, config=config, streaming=True)
    if dataset.features is None:
        raise ValueError(f"streaming: the columns of {name} are unknown before it is read. Load it without streaming.")
    return undecoded(dataset)


def _unstreamable_kind(path: Path) -> str | None:
    if path.is_file():
        return "file"
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
        return "folder written by save_to_disk"
    return "folder of images and captions" if is_coco_folder(path) or is_captioned_folder(path) else None


def undecoded(dataset: Dataset) -> Dataset:
    """Turns off image decoding: each image stays a dictionary with its bytes or path, as stored."""
    for column, feature in dataset.features.items():
        if isinstance(feature, Image) and feature.decode:
            dataset = dataset.cast_column(column, Image(decode=False))
    return dataset


def number_of_entries(dataset: Dataset, column: str) -> int:
    return pc.sum(_is_present(dataset, column)).as_py() or 0


def present_entries(dataset: Dataset, column: str) -> list[bool]:
    return _is_present(dataset, column).to_pylist()


def _is_present(dataset: Dataset, column: str) -> pa.Array | pa.ChunkedArray:
    # Arrow stores a bitmap of nulls for each column, so counting reads no entries and therefore no images.
    if column not in dataset.column_names:
        return pa.array([False] * len(dataset))
    return select_values(dataset, pc.is_valid(dataset.data.column(column)))


def first_short_row(dataset: Dataset, column: str, number: int) -> tuple[int, int | None] | None:
    """Finds the first row whose list has fewer than `number` entries; returns the row and the list's length.

    The length is `None` if the list is missing. Returns `None` if no list is too short.
    """
    lists = dataset.data.column(column)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        return None
    lengths = select_values(dataset, pc.list_value_length(lists))
    row = pc.index(pc.fill_null(pc.less(lengths, number), True), True).as_py()
    return None if row < 0 else (row, lengths[row].as_py())


class TrainingRows(torch.utils.data.Dataset):
    """Rows of a `datasets.Dataset` with undecoded images and the row index under `row`.

    The collator decodes the images, so it can name the row and column of a corrupt image, and it rotates, scales and
    converts images from any source by the same rules. Works with any `torch` sampler and inside `DataLoader` workers.

    Args:
        dataset: A `datasets.Dataset`; split dictionaries and streaming datasets raise an error.
        columns: Columns to read; others stay on disk.

    Raises:
        TypeError: If `dataset` is not a `datasets.Dataset`.
    """

    def __init__(self, dataset: Dataset, columns: list[str]) -> None:
        if isinstance(dataset, DatasetDict | IterableDatasetDict):
            splits = ", ".join(dataset)
            raise TypeError(f"the dataset has the splits {splits}. Pass one of them, such as dataset['train'].")
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "the dataset is streaming, but evaluation sets and rows selected by number must be read as a whole. "
                "Load it without streaming=True."
            )
        if not isinstance(dataset, Dataset):
            raise TypeError(f"expected a datasets.Dataset, found {type(dataset).__name__}.")
        self._whole, self._columns = dataset, [name for name in columns if name in dataset.column_names]
        self.dataset = self._select_columns()

    def _select_columns(self) -> Dataset:
        return undecoded(self._whole.select_columns(self._columns))

    # `datasets` cannot unpickle a selection that has only added image columns, so other processes select again.
    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "dataset"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.dataset = self._select_columns()

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def features(self) -> dict[str, Any]:
        """The type of each column."""
        return dict(self.dataset.features)

    def column(self, name: str) -> list[Any]:
        """Returns a column of all rows.

        Raises:
            ValueError: If the column is not among those that are read.
        """
        if name not in self.dataset.column_names:
            raise ValueError(
                f"the training rows have no column {name!r}; they have: {', '.join(self.dataset.features)}."
            )
        return self.dataset[name][:]

    def batch_column(self, name: str) -> list[Any]:
        """Returns a column of all rows that may occur in a batch."""
        return self.column(name)

    def number_of_entries(self, name: str) -> int:
        """Number of rows that have an entry in a column; 0 if there is no such column."""
        return number_of_entries(self.dataset, name)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        """Returns rows by index in one read; called by torch's DataLoader."""
        batch = self.dataset[indices]
        return [
            {"row": index, **{name: values[position] for name, values in batch.items()}}
            for position, index in enumerate(indices)
        ]
