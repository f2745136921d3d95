"""Views of a dataset built in parts: each configuration selects parts and columns, so no data is stored twice.

A part is an ordinary build in a folder of the dataset. For each configuration, `views.json` lists the parts of its
splits and its columns; the first configuration is the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.checksums import read_checked
from hfcomp.reading import nearest
from hfcomp.writing import write_json

VIEWS = "views.json"
SCHEMA_VERSION = 1
HOW_TO_FIX = (
    "Re-run the `hfcomp build` command of the dataset, which rewrites the file, or download the dataset again."
)


@dataclass(frozen=True)
class View:
    """A configuration of a dataset built in parts."""

    splits: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]


def write_views(folder: Path, views: Mapping[str, View]) -> None:
    content = {
        name: {"splits": {split: list(parts) for split, parts in view.splits.items()}, "columns": list(view.columns)}
        for name, view in views.items()
    }
    write_json(folder / VIEWS, {"schema_version": SCHEMA_VERSION, "views": content})


def read_views(folder: Path) -> dict[str, View] | None:
    """Reads the views of a dataset built in parts, the default one first; None for any other folder."""
    path = folder / VIEWS
    if not path.is_file():
        return None
    content = read_checked(path, HOW_TO_FIX)
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path} was not written by this version of hfcomp. {HOW_TO_FIX}")
    return {
        name: View({split: tuple(parts) for split, parts in view["splits"].items()}, tuple(view["columns"]))
        for name, view in content["views"].items()
    }


def part_names(views: Mapping[str, View]) -> list[str]:
    return sorted({part for view in views.values() for parts in view.splits.values() for part in parts})


def choose_view(folder: Path, views: Mapping[str, View], name: str | None) -> View:
    if name is None:
        return next(iter(views.values()))
    if name not in views:
        hint = " A part is not a configuration." if name in part_names(views) else nearest(name, views)
        raise ValueError(f"{folder}: found the configuration {name!r}, expected one of: {', '.join(views)}.{hint}")
    return views[name]


def view_configs(views: Mapping[str, View], content: str) -> list[dict[str, Any]]:
    """Card metadata for `load_dataset`: one configuration per view, the first one marked as the default."""
    # `datasets` caches the rows of a folder by its name and this entry, whatever the files contain. Because the entry
    # includes the content hash, a rebuilt dataset is read again.
    entries = []
    for number, (name, view) in enumerate(views.items()):
        places = {split: [f"{part}/data/train-*.parquet" for part in parts] for split, parts in view.splits.items()}
        files = [{"split": split, "path": patterns} for split, patterns in places.items() if patterns]
        default = {} if number else {"default": True}
        columns, description = list(view.columns), f"sha256:{content}"
        entries.append(
            {"config_name": name, "data_files": files, **default, "columns": columns, "description": description}
        )
    return entries
