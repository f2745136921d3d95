"""Loads rows as stored, by Hub id or path, under their own column names; checks Unicode and resolves file names."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import (
    Dataset,
    DatasetDict,
    ReadInstruction,
    concatenate_datasets,
    get_dataset_split_names,
    load_dataset_builder,
    load_from_disk,
)
from datasets.arrow_writer import SchemaInferenceError
from datasets.config import HF_DATASETS_CACHE
from datasets.exceptions import DatasetGenerationError

from hfcomp.data.built_sets.files import TRAIN, checked_shards, configuration, set_of_part, view_files
from hfcomp.data.built_sets.views import View, choose_view, read_views
from hfcomp.data.formats.archives import check_tail
from hfcomp.data.formats.caption_folders import (
    captioned_splits,
    coco_splits,
    is_captioned_folder,
    is_coco_folder,
    read_captioned_folder,
    read_coco_folder,
)
from hfcomp.data.formats.image_files import NO_FOLDERS, Folders
from hfcomp.data.formats.own_builders import load_dataset
from hfcomp.data.formats.tables import READERS, literal_files, literal_options, reader_of, tables_of_images
from hfcomp.data.urls import add_repositories
from hfcomp.old_names import current_columns
from hfcomp.reading import FileError, check_dataset_place


def check_unicode(rows: Any, name: str) -> None:
    """Checks that all texts of a table are valid UTF-8, including texts in lists and image names."""
    # Arrow reads the bytes of a Parquet file as text without a check. They would fail later, in whichever library
    # reads them first, without column and row. Each chunk is checked as a whole, and by row only if it is damaged.
    if not isinstance(rows, Dataset):
        return
    for column in rows.column_names:
        start = 0
        for chunk in rows.data.column(column).chunks:
            if not _is_valid(chunk):
                row = start + next(place for place in range(len(chunk)) if not _is_valid(chunk.take([place])))
                raise ValueError(
                    f"{name}: column {column!r}, row {row}: the text is not valid UTF-8, so the file is damaged. "
                    "Recreate the file from its source, or download it again."
                )
            start += len(chunk)


def _is_valid(values: Any) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def load_source(name: str, *, split: str = "train", config: str | None = None, **kwargs: Any) -> Dataset:
    """Loads rows as stored, under their own column names and with file names as texts; see [`load_training_set`]."""
    try:
        rows = _stored_rows(name, split=split, config=config, **kwargs)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: a file name or text is not valid Unicode: {error.object!a}. Rename or correct it."
        ) from error
    check_unicode(rows, name)
    return current_columns(rows)


def _stored_rows(name: str, *, split: str = "train", config: str | None = None, **kwargs: Any) -> Dataset:
    views = read_views(Path(name))
    if views is not None:
        return _load_view(name, views, split, config, kwargs)
    if whole := set_of_part(Path(name)):
        known = ", ".join(read_views(whole) or ())
        raise ValueError(
            f"{name} is only a part of the dataset {whole}. Pass that folder and one of its configurations: {known}."
        )
    path = configuration(Path(name), config)
    shards = checked_shards(path)
    # A truncated tar file ends as if it were complete, and `datasets` would silently read fewer rows.
    for archive in sorted((*path.glob("*.tar"), *path.glob("*/*.tar"))) if path.is_dir() else ():
        check_tail(archive)
    if shards and path.is_dir() and "data_files" not in kwargs:
        own = shards[0].name.partition("-")[0]
        if split.partition("[")[0] != own:
            raise ValueError(_no_split(name, split, [own]))
        # Load from the files, because `datasets` would read the card of a built dataset, which is not verified.
        return _load(name, "parquet", data_files={own: literal_files(shards)}, split=split, **kwargs)
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists():
        return _part(name, load_from_disk(name), split)
    if path.is_file():
        return _part(name, _load_table(path, **kwargs), split)
    if not kwargs.keys() & {"data_files", "streaming"}:
        captioned = _captioned_folder(path, split, config)
        if captioned is not None:
            return captioned
    if "data_files" not in kwargs and (tables := tables_of_images(path)):
        return _load_tables(path, tables, split, **kwargs)
    return _load_split(name, split, config, kwargs)


def listing_folders(name: str, split: str, config: str | None, options: Mapping[str, Any]) -> Folders:
    path = Path(name)
    if not path.exists():
        return NO_FOLDERS
    if path.is_file():
        return Folders((path.parent,))
    splits = split_names(split)
    if "data_files" not in options and (tables := tables_of_images(path)):
        return Folders(tuple(dict.fromkeys(table.parent for name in splits for table in tables[name])), path)
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists() or read_views(path) is not None:
        return Folders((path,))
    given = {key: value for key, value in options.items() if key != "streaming"}
    given = literal_options(name, config, given)
    files = load_dataset_builder(name, config, **given).config.data_files or {}
    places = dict.fromkeys(Path(file).parent for split_name in splits for file in files.get(split_name, ()))
    return Folders(tuple(places) or (path,), path)


def _load_view(name: str, views: Mapping[str, View], split: str, config: str | None, kwargs: dict[str, Any]) -> Any:
    view = choose_view(Path(name), views, config)
    files = {part: literal_files(view_files(Path(name), view, part)) for part in split_names(split)}
    return _load(name, "parquet", data_files=files, split=split, columns=list(view.columns), **kwargs)


def _load_table(path: Path, **kwargs: Any) -> DatasetDict:
    builder, settings = reader_of(path)
    if builder == "webdataset":
        check_tail(path)
    return _load(str(path), builder, data_files={TRAIN: literal_files([path])}, **{**settings, **kwargs})


def _load_tables(folder: Path, tables: Mapping[str, Sequence[Path]], split: str, **kwargs: Any) -> Any:
    names = split_names(split)
    if any(name not in tables for name in names):
        raise ValueError(_no_split(str(folder), split, tables))
    builder, settings = reader_of(tables[names[0]][0])
    files = {name: literal_files(tables[name]) for name in names}
    return _load(str(folder), builder, data_files=files, split=split, **{**settings, **kwargs})


def _load(name: str, builder: str, *args: Any, **kwargs: Any) -> Any:
    # `datasets` wraps any reader's error in one that names neither file nor cause. Causes on which a user can act,
    # such as our own error with line and column or a full disk, are unwrapped here.
    try:
        return load_dataset(builder, *args, **kwargs)
    except (DatasetGenerationError, ValueError, StopIteration, OSError) as error:
        if isinstance(error.__cause__, FileError):
            raise FileError(str(error.__cause__)) from error
        if "corresponds to no data" in str(error):  # a table with only a header
            raise ValueError(f"{name} has no rows.") from error
        if isinstance(error, ValueError) and not isinstance(error, pa.ArrowInvalid):
            raise
        reason = error.__cause__ or error if isinstance(error, DatasetGenerationError) else error
        if getattr(reason, "errno", None) == errno.ENOSPC or "Not enough disk space" in str(reason):
            raise OSError(
                f"{name} cannot be loaded: no space left on the disk of the cache, {HF_DATASETS_CACHE}. Free some "
                "space, or set HF_DATASETS_CACHE to another folder, and try again."
            ) from error
        if isinstance(error, OSError):
            raise
        # `datasets` raises these two if a file has no lines. StopIteration comes from versions before 5.
        if isinstance(reason, SchemaInferenceError | StopIteration):
            raise ValueError(f"{name} has no rows.") from error
        kind = builder if any(builder == known for known, _ in READERS.values()) else "a dataset"
        raise ValueError(f"{name} cannot be read as {kind}: {' '.join(str(reason).split())}") from error


def _captioned_folder(path: Path, split: str, config: str | None) -> Dataset | None:
    """Loads a COCO folder or a folder with texts next to its images; returns None for any other folder."""
    if is_coco_folder(path):
        splits, known = read_coco_folder(path, split_names(split), config), coco_splits(path)
    elif is_captioned_folder(path):
        splits, known = read_captioned_folder(path, split_names(split)), list(captioned_splits(path))
    else:
        return None
    if any(name not in splits for name in split_names(split)):
        raise ValueError(_no_split(str(path), split, known))
    return _part(str(path), splits, split)


def split_names(split: str) -> list[str]:
    return list(dict.fromkeys(part.partition("[")[0].strip() for part in split.split("+")))


def _part(name: str, loaded: Dataset | DatasetDict, split: str) -> Dataset:
    """Selects a split such as `train[:90%]` or `train+test`; rows without splits match any single split name."""
    names = split_names(split)
    if isinstance(loaded, Dataset):
        if len(names) > 1:
            raise ValueError(f"{name} has one split, but {split!r} names {len(names)}. Name only one.")
        loaded = DatasetDict({names[0]: loaded})
    if any(split_name not in loaded for split_name in names):
        raise ValueError(_no_split(name, split, loaded))
    if split in loaded:
        return loaded[split]
    parts = ReadInstruction.from_spec(split).to_absolute({part: len(loaded[part]) for part in names})
    return concatenate_datasets([loaded[part.splitname].select(range(part.from_, part.to)) for part in parts])


def _load_split(name: str, split: str, config: str | None, kwargs: dict[str, Any]) -> Dataset:
    """Loads one split of a folder or Hub dataset; `datasets` may also prepare the configuration's other splits."""
    if not Path(name).exists():
        check_dataset_place(name)
        add_repositories([name])
    # `datasets` would raise that scripts are not supported, about a file that its owner does not consider a script.
    script = Path(name) / f"{Path(name).resolve().name}.py"
    if script.is_file():
        raise ValueError(
            f"{script}: `datasets` takes a file with the same name as its folder for a loading script, and no longer "
            "runs loading scripts. Rename the file or the folder."
        )
    kwargs = literal_options(name, config, kwargs)
    try:
        return _load(name, name, config, split=split, **kwargs)
    except ConnectionError as error:
        raise ConnectionError(
            f"{name} is not a local file or folder, and loading it as a Hub id failed: {error}"
        ) from error
    except ValueError as error:
        options = {key: kwargs[key] for key in ("revision", "token", "data_files", "data_dir") if key in kwargs}
        try:
            splits = get_dataset_split_names(name, config, **options)
        except Exception:  # for example, no network; the first error is more helpful
            raise error from None
        if split.partition("[")[0] in splits:
            raise
        raise ValueError(_no_split(name, split, splits)) from error


def _no_split(name: str, split: str, splits: Iterable[str]) -> str:
    known = ", ".join(splits)
    return f"{name} has no split {split!r}. Choose one with --split: {known}."
