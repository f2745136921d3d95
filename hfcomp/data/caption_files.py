"""Captions from a file beside a data set, such as new ones for the images of WebDataset shards, joined by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset, Value

from hfcomp.data.caption_readers import READERS, shortened
from hfcomp.data.features import CONCEPT_FEATURES

KEY_COLUMN = "__key__"
"""What `datasets` calls the name of a WebDataset's sample."""
FILE_COLUMNS = ("key", "caption")


@dataclass
class FileCaptions:
    """What a file of captions holds.

    Attributes:
        captions: By key; of several under one key the first.
        repeated: Entries whose key was there already.
        first_repeated: The first of these: where it is, and its key. Empty if there is none.
        blank: Entries without a key or without a caption.
    """

    captions: dict[str, str] = field(default_factory=dict)
    repeated: int = 0
    first_repeated: str = ""
    blank: int = 0


def with_captions_of(
    dataset: Dataset,
    path: str | Path,
    *,
    key_column: str | None,
    file_columns: str | None,
    column_names: Mapping[str, str] | None = None,
    tell: Callable[[str], None],
) -> Dataset:
    """The rows with the captions of a file as their column `caption`; None where the file has none for a row.

    Captions and concepts that the data set had are taken out.

    Args:
        dataset: under its own column names.
        path: a `.json` file with one object of captions by key or a list of objects, or a `.jsonl`, `.csv` or
            `.parquet` file.
        key_column: of the data set; `json.url` is the entry `url` of a column of objects. By default `__key__`.
        file_columns: names of key and caption in the file, apart by a comma. By default `key,caption`.
        column_names: how columns are renamed later; the caption has to be left out.
        tell: receives a line about what was joined, and one for each kind of entry or row that does not fit.

    Raises:
        ValueError: for a file that cannot be read, a column that is not there, or if no row has a caption.
    """
    if "caption" in (column_names or {}):
        raise ValueError("column_names names a caption, and captions_file gives other ones. Leave one of the two out.")
    key_column = KEY_COLUMN if key_column is None else key_column
    read = read_captions(path, file_columns)
    keys = _keys(dataset, key_column)
    found = [None if key is None else read.captions.get(key) for key in keys]
    name = Path(path).name
    if not any(caption is not None for caption in found):
        raise ValueError(
            f"none of the {len(keys):,} rows has its {key_column!r} in {name}: they are as "
            f"{next((key for key in keys if key is not None), None)!r} there, and as "
            f"{next(iter(read.captions), None)!r} in the file. Name what both have: key_column for the data set, "
            "captions_columns for the file."
        )
    for line in _told(name, key_column, read, keys, found):
        tell(line)
    old = [column for column in ("caption", *CONCEPT_FEATURES) if column in dataset.column_names]
    if old:
        tell(f"they take the place of the data set's own {', '.join(old)}")
    return dataset.remove_columns(old).add_column("caption", found, feature=Value("string"))


def _told(
    name: str, key_column: str, read: FileCaptions, keys: list[str | None], found: list[str | None]
) -> Iterator[str]:
    there = len(found) - found.count(None)
    yield (
        f"captions of {name}, joined by {key_column}: {there:,} rows have one; {len(keys) - there:,} have none and "
        "are left out"
    )
    joined = {key for key, caption in zip(keys, found, strict=True) if caption is not None}
    if there > len(joined):
        yield f"{there - len(joined):,} of these rows have the {key_column} of an earlier one, and so its caption"
    if len(read.captions) > len(joined):
        yield f"{len(read.captions) - len(joined):,} captions of {name} belong to no row"
    if read.repeated:
        yield (
            f"{read.repeated:,} entries of {name} have the key of an earlier one, which is used; the first: "
            f"{read.first_repeated}"
        )
    if read.blank:
        yield f"{read.blank:,} entries of {name} have no key or no caption"


def read_captions(path: str | Path, columns: str | None = None) -> FileCaptions:
    """Captions by key; blank ones are left out, and of several under one key the first is taken.

    Args:
        path: see `with_captions_of`. Keys are texts or whole numbers, captions texts. Text files are UTF-8.
        columns: names of key and caption, apart by a comma.

    Raises:
        ValueError: for a file of another kind or without these columns, or what cannot be read, with its line.
    """
    names = tuple(name.strip() for name in columns.split(",")) if columns else FILE_COLUMNS
    if len(names) != 2 or not all(names):
        raise ValueError(f"captions_columns={columns!r}: expected two names, of key and caption, as 'url,caption'.")
    path = Path(path)
    if path.suffix not in READERS:
        raise ValueError(f"captions_file={path.name}: expected a .json, .jsonl, .csv or .parquet file.")
    read = FileCaptions()
    for place, key, caption in READERS[path.suffix](path, *names):
        if not (caption is None or isinstance(caption, str)):
            raise ValueError(f"{path.name}, {place}: the caption is {shortened(caption)}; expected one text.")
        if isinstance(key, bool) or not (key is None or isinstance(key, str | int)):
            raise ValueError(f"{path.name}, {place}: the key is {shortened(key)}; expected a text or a whole number.")
        if key is None or key == "" or not caption or not caption.strip():
            read.blank += 1
        elif (key := str(key)) not in read.captions:
            read.captions[key] = caption
        else:
            read.first_repeated = read.first_repeated or f"{place}, {key!r}"
            read.repeated += 1
    return read


def _keys(dataset: Dataset, name: str) -> list[str | None]:
    if name not in dataset.column_names:
        outer = next((column for column in dataset.column_names if name.startswith(f"{column}.")), None)
        if outer is None:
            raise ValueError(
                f"key_column={name!r}: the data set has no column {name.partition('.')[0]!r}; it has: "
                f"{', '.join(dataset.column_names)}."
            )
        # columns of entries: as objects of Python, those of millions of rows would take gigabytes
        dataset = dataset.select_columns([outer]).flatten()
        if name not in dataset.column_names:
            known = ", ".join(column.removeprefix(f"{outer}.") for column in dataset.column_names if column != outer)
            raise ValueError(
                f"key_column={name!r}: column {outer!r} has no entry {name.removeprefix(f'{outer}.')!r}; it has: "
                f"{known or 'none'}."
            )
    cells = dataset.select_columns([name])[name][:]
    return [None if cell is None else str(cell) for cell in cells]
