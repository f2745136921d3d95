"""Files of this machine that a source names and a build would copy into a set that may be published."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Image
from huggingface_hub.constants import HF_HUB_CACHE

from hfcomp.data.loading import undecoded
from hfcomp.data.urls import is_url

_ROWS = 1000
_SHOWN = 3


def check_local_files(
    dataset: Dataset, columns: Sequence[str], source: str, *, allow_outside: bool, tell: Callable[[str], None]
) -> None:
    """Reports the image files that a build copies, and refuses those outside of the source's own folder.

    Whoever wrote the source chose these names: of a set that somebody else made, they may be of any picture that this
    user can read. Symbolic links count as where they lead.

    Args:
        dataset: the source.
        columns: those that are written.
        source: its name: a file, a folder or a Hub id, whose files lie in the caches of `datasets` and the Hub.
        allow_outside: whether files elsewhere are copied too.
        tell: receives a line about the files.

    Raises:
        ValueError: for files outside, with their number, the first of them, and how to allow them.
    """
    roots = _roots(source)
    known: dict[str, Path] = {}
    number, outside = 0, []
    for column, row, name in _named_files(undecoded(dataset), columns):
        number += 1
        place = _resolved(name, known)
        if not any(place.is_relative_to(root) for root in roots):
            outside.append(f"{name} (column {column!r}, row {row})")
    if number:
        tell(f"{number:,} image files that {source} names are copied into the set, {len(outside):,} from elsewhere")
    if outside and not allow_outside:
        raise ValueError(
            f"{source} names {len(outside):,} image files outside of its own folder, such as "
            f"{', '.join(outside[:_SHOWN])}. A built set holds copies of them, which are published with it. Remove "
            "the rows, put the files beside the source or, if all of them are meant, pass --allow_outside_files."
        )


def _roots(source: str) -> list[Path]:
    path = Path(source)
    if path.is_file():
        path = path.parent
    caches = [Path(datasets.config.HF_DATASETS_CACHE), Path(datasets.config.DOWNLOADED_DATASETS_PATH)]
    return [one.resolve() for one in ([path] if path.is_dir() else [Path(HF_HUB_CACHE)])] + [
        one.resolve() for one in caches
    ]


def _named_files(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Column, row and path of each image that is a file of this machine; of a member of an archive, the archive's."""
    wanted = [name for name in columns if isinstance(dataset.features.get(name), Image)]
    if not wanted:
        return
    start = 0
    for table in dataset.select_columns(wanted).with_format("arrow").iter(_ROWS):
        for column in wanted:
            images: pa.ChunkedArray = table.column(column)
            without = pc.is_null(pc.struct_field(images, "bytes")).to_pylist()
            for place, name in enumerate(pc.struct_field(images, "path").to_pylist()):
                if name is not None and without[place] and not is_url(name) and "\0" not in name:
                    yield column, start + place, name.rpartition("::")[2]
        start += len(table)


def _resolved(name: str, known: dict[str, Path]) -> Path:
    """Where a path leads; each folder is looked at once."""
    folder, file = os.path.split(name)
    if folder not in known:
        known[folder] = Path(folder).resolve()
    path = known[folder] / file
    return path.resolve() if file == ".." or path.is_symlink() else path
