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
from huggingface_hub.file_download import repo_folder_name

from hfcomp.data.built_sets import SET_ASIDE_FILE
from hfcomp.data.loading import undecoded
from hfcomp.data.urls import is_url

_ROWS = 1000
_SHOWN = 3


def check_local_files(
    dataset: Dataset, columns: Sequence[str], source: str, *, allow_outside: bool, log: Callable[[str], None]
) -> None:
    """Reports images that a build copies from files, misses or fetches, and refuses files outside the source's folder.

    Whoever wrote the source chose these names: in a set from somebody else, they may point to any picture that this
    user can read. Symbolic links are followed.

    Args:
        dataset: the source.
        columns: those that are written.
        source: its name: a file, a folder or a Hub id, with its own folders in the caches of the Hub and
            `datasets`.
        allow_outside: whether files elsewhere are copied too.
        log: receives a line about the files.

    Raises:
        ValueError: for files outside, with their number, the first of them, and how to allow them. Nothing counts as
            inside of a home directory, or of what holds one.
    """
    roots = _roots(source)
    everything = [root for root in roots if _holds_everything(root)]
    roots = [root for root in roots if root not in everything]
    known: dict[str, Path] = {}
    number, urls, outside, missing = 0, 0, [], []
    for column, row, name in _named_files(undecoded(dataset), columns):
        if is_url(name):
            urls += 1
            continue
        number += 1
        place = _resolve(name, known)
        if not os.path.exists(place):
            missing.append(f"{place} (row {row})")
        if not any(place.is_relative_to(root) for root in roots):
            outside.append(f"{name} (column {column!r}, row {row})")
    if number:
        inside = " and ".join(map(str, roots)) or "no folder of its own"
        log(
            f"{number:,} image files that {source} names are copied into the set: {number - len(outside):,} from "
            f"{inside} and its sub-folders, {len(outside):,} from elsewhere"
        )
    if missing:
        log(
            f"{len(missing):,} of them are missing, such as {', '.join(missing[:_SHOWN])}: their rows are set aside, "
            f"each with its file in {SET_ASIDE_FILE}"
        )
    if urls:
        log(f"{urls:,} images that {source} references by URL are copied into the set if fetching is allowed")
    if outside and not allow_outside and everything:
        raise ValueError(
            f"{source} references {len(outside):,} image files, such as {', '.join(outside[:_SHOWN])}, and is in "
            f"{everything[0]}, which also has private files. The built set embeds copies of them, which would be "
            "published with it. Move the file and its images to a folder of their own, or, if all of them are "
            "intended, pass --allow_outside_files."
        )
    if outside and not allow_outside:
        raise ValueError(
            f"{source} references {len(outside):,} image files outside its own folder, such as "
            f"{', '.join(outside[:_SHOWN])}. The built set embeds copies of them, which would be published with it. "
            "Remove the rows, move the files to the source's folder or, if all of them are intended, pass "
            "--allow_outside_files."
        )


def _roots(source: str) -> list[Path]:
    path = Path(source)
    if path.exists():
        return [(path.parent if path.is_file() else path).resolve()]
    repository = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="dataset")
    return [repository.resolve(), (Path(datasets.config.HF_DATASETS_CACHE) / source.replace("/", "___")).resolve()]


def _holds_everything(folder: Path) -> bool:
    """Whether a folder is a home directory, holds one, or is the root of a file system."""
    return folder == folder.parent or Path.home().resolve().is_relative_to(folder)


def _named_files(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Column, row and URL or path of each image that is not in the set; of a member of an archive, the archive's."""
    wanted = [name for name in columns if isinstance(dataset.features.get(name), Image)]
    if not wanted:
        return
    start = 0
    for table in dataset.select_columns(wanted).with_format("arrow").iter(_ROWS):
        for column in wanted:
            images: pa.ChunkedArray = table.column(column)
            without = pc.is_null(pc.struct_field(images, "bytes")).to_pylist()
            for place, name in enumerate(pc.struct_field(images, "path").to_pylist()):
                if name is not None and without[place] and "\0" not in name:
                    yield column, start + place, name if is_url(name) else name.rpartition("::")[2]
        start += len(table)


def _resolve(name: str, known: dict[str, Path]) -> Path:
    """Where a path leads; each folder is looked at once."""
    folder, file = os.path.split(name)
    if folder not in known:
        known[folder] = Path(folder).resolve()
    path = known[folder] / file
    return path.resolve() if file == ".." or path.is_symlink() else path
