"""Which builders of `datasets` hfcomp replaces by its own, so that no cell, member or row is lost."""

from __future__ import annotations

import logging
import os
from dataclasses import fields
from itertools import chain
from tempfile import TemporaryDirectory
from typing import Any

from datasets import BuilderConfig, DatasetBuilder, Features, load_dataset_builder
from datasets.packaged_modules.csv.csv import Csv
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.packaged_modules.json.json import Json
from datasets.packaged_modules.webdataset.webdataset import WebDataset
from datasets.utils.info_utils import is_small_dataset

from hfcomp.data.formats.archive_builders import Archives
from hfcomp.data.formats.table_builders import OPTIONS, FoldersWithTables, TextTables
from hfcomp.reading import check_surrogates

_REPLACED: dict[type[DatasetBuilder], type[DatasetBuilder]] = {
    Csv: TextTables,
    ImageFolder: FoldersWithTables,
    WebDataset: Archives,
}
_VERSION = "1"
"""Of what they make of a file; part of the name under which `datasets` keeps it."""

logger = logging.getLogger(__name__)


def load_dataset(
    path: str,
    *args: Any,
    split: str | None = None,
    streaming: bool = False,
    num_proc: int | None = None,
    **kwargs: Any,
) -> Any:
    """`datasets.load_dataset`, but hfcomp reads tables of texts and archives; notes about them are logged.

    Args:
        path: of `load_dataset_builder`, as are the further arguments.
        args: likewise.
        split: the rows of one split; by default a dictionary of all.
        streaming: give a stream.
        num_proc: processes that read the files.
        kwargs: of `load_dataset_builder`; of `download_and_prepare` also `verification_mode`, and `keep_in_memory`.
    """
    late = {key: kwargs.pop(key) for key in ("verification_mode", "keep_in_memory") if key in kwargs}
    theirs = load_dataset_builder(path, *args, **kwargs)
    features = theirs.info.features
    is_replaced = isinstance(theirs, tuple(_REPLACED))
    if (
        features is not None and is_replaced and os.path.isdir(theirs.cache_dir)
    ):  # they may be guesses of an earlier reading
        with TemporaryDirectory() as place:
            features = load_dataset_builder(path, *args, **{**kwargs, "cache_dir": place}).info.features
    ours = own_builder(theirs, features)
    builder = theirs if ours is None else ours
    if streaming:
        return builder.as_streaming_dataset(split=split)
    if isinstance(builder, Json) and not os.path.isdir(builder.cache_dir):
        for file in chain.from_iterable(builder.config.data_files.values()):
            if os.path.isfile(file) and not file.endswith(".gz"):
                check_surrogates(file)
    in_memory = late.pop("keep_in_memory", None)
    prepared = {key: kwargs[key] for key in ("download_config", "download_mode", "storage_options") if key in kwargs}
    builder.download_and_prepare(num_proc=num_proc, **late, **prepared)
    for note in filter(None, ours.info.description.split("\n") if ours else ()):
        logger.warning(note)
    if in_memory is None:
        in_memory = is_small_dataset(builder.info.dataset_size)
    return builder.as_dataset(split=split, in_memory=in_memory)


def own_builder(theirs: DatasetBuilder, features: Features | None) -> DatasetBuilder | None:
    """Hfcomp's builder for the files of one of `datasets`; `None` where `datasets` reads them.

    Args:
        theirs: the builder, with its files.
        features: types that a card or the caller states.
    """
    kind = next((kind for base, kind in _REPLACED.items() if isinstance(theirs, base)), None)
    settings = _settings(theirs.config)
    if kind is None or (kind is TextTables and settings.keys() - set(OPTIONS)):
        return None
    return kind(
        cache_dir=theirs._cache_dir_root,
        dataset_name=theirs.dataset_name,
        config_name=theirs.config.name,
        hash=f"{theirs.hash}-{_VERSION}",
        base_path=theirs.base_path,
        features=settings.pop("features", None) or features,
        token=theirs.token,
        data_files=theirs.config.data_files,
        storage_options=theirs.storage_options,
        **settings,
    )


def _settings(config: BuilderConfig) -> dict[str, Any]:
    """What differs from the defaults of a configuration's own fields."""
    default, shared = type(config)(), {field.name for field in fields(BuilderConfig)}
    names = [field.name for field in fields(config) if field.name not in shared]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)}
