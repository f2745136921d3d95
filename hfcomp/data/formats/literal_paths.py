"""Files and folders whose names hold `[`, `]`, `*` or `?`, which `datasets` takes for patterns of other names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from glob import has_magic
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets.data_files import DataFilesDict, DataFilesList, get_data_patterns, sanitize_patterns
from datasets.utils.metadata import MetadataConfigs
from huggingface_hub import DatasetCard


def literal_files(paths: Iterable[str | Path]) -> DataFilesList:
    """What `load_dataset` takes as `data_files` for these very files.

    Args:
        paths: of files on this machine.
    """
    places = [os.path.abspath(path) for path in paths]
    states = [os.stat(place) for place in places]
    return DataFilesList(places, [(str(state.st_mtime_ns), str(state.st_size)) for state in states])


def literal_options(name: str | Path, config: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `load_dataset` for a folder; where its name would be read as a pattern, with the folder's files.

    Args:
        name: of the folder; others, and ids of the Hub, keep their options.
        config: name of the configuration; by default the card's default.
        options: `data_files` among them are patterns inside the folder.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir() or not has_magic(str(folder.resolve())):
        return dict(options)
    folder = folder.resolve()
    with TemporaryDirectory() as place:  # patterns are resolved below a name without any
        link = os.path.join(os.path.realpath(place), "set")
        os.symlink(folder, link, target_is_directory=True)
        patterns = sanitize_patterns(
            options.get("data_files") or _stated_patterns(folder, config) or get_data_patterns(link)
        )
        found = DataFilesDict.from_patterns(patterns, base_path=link)
    files = {split: literal_files(f"{folder}{file.removeprefix(link)}" for file in found[split]) for split in found}
    return {**options, "data_files": DataFilesDict(files)}


def _stated_patterns(folder: Path, config: str | None) -> Any:
    """The files of a configuration as the folder's card states them."""
    card = folder / "README.md"
    configs = MetadataConfigs.from_dataset_card_data(DatasetCard.load(card).data) if card.is_file() else {}
    if not configs:
        return None
    chosen = config or configs.get_default_config_name() or next(iter(configs))
    return configs.get(chosen, {}).get("data_files")
