"""Which builders of `datasets` hfcomp replaces by its own, so that no cell, member or row is lost."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from datasets import BuilderConfig, DatasetBuilder
from datasets.packaged_modules.csv.csv import Csv
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.packaged_modules.webdataset.webdataset import WebDataset

from hfcomp.data.formats.archive_builders import Archives
from hfcomp.data.formats.table_builders import OPTIONS, FoldersWithTables, TextTables

_REPLACED: dict[type[DatasetBuilder], type[DatasetBuilder]] = {
    Csv: TextTables,
    ImageFolder: FoldersWithTables,
    WebDataset: Archives,
}
_VERSION = "1"
"""Of what they make of a file; part of the name under which `datasets` keeps it."""


def own_builder(theirs: DatasetBuilder) -> DatasetBuilder | None:
    """hfcomp's builder for the files of one of `datasets`; `None` where `datasets` reads them.

    Args:
        theirs: the builder, with its files.
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
        features=settings.pop("features", None) or theirs.info.features,
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
