"""The folders of benchmarks' data as commands and recipes name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hfcomp.evaluation.spec import NO_IMAGE, BenchmarkData, Folders
from hfcomp.reading import nearest


def parse_folders(entries: Sequence[str], *, option: str) -> dict[str, str]:
    """Folders by name, from entries `NAME=DIR`.

    Args:
        entries: the name is a benchmark's or a set of images'.
        option: what errors call the entries.

    Raises:
        ValueError: for an entry of another form, or a duplicate name.
    """
    own: dict[str, str] = {}
    for text in entries:
        name, _, folder = text.partition("=")
        if not folder:
            raise ValueError(f"{option}: found {text!r}, expected NAME=DIR with a folder that exists.")
        if name in own:
            raise ValueError(f"{option}: found two folders for {name!r}, {own[name]} and {folder}. Pass one.")
        own[name] = folder
    return own


def data_folders(
    own: Mapping[str, str | Path] | None = None, root: str | Path | None = None, *, option: str
) -> Folders:
    """Local data folders.

    Args:
        own: folders by name of a benchmark or a set of images.
        root: a folder with a sub-folder for each of the others.
        option: what errors call `own`.

    Raises:
        ValueError: for a folder that does not exist.
    """
    found = {name: Path(folder) for name, folder in (own or {}).items()}
    for name, folder in found.items():
        if not folder.is_dir():
            raise ValueError(f"{option}: found '{name}={folder}', expected NAME=DIR with a folder that exists.")
    if root is not None and not Path(root).is_dir():
        raise ValueError(f"{root} is not a folder; expected the folder with benchmark data.")
    return Folders(None if root is None else Path(root), found)


def check_used(folders: Folders, *, option: str) -> None:
    """Checks that every folder that was given was looked for, once all benchmarks have been loaded.

    Raises:
        ValueError: for one that was not, with the nearest name that was.
    """
    for name in folders.own:
        if name not in folders.asked:
            raise ValueError(
                f"{option}: no requested benchmark has data named {name!r}.{nearest(name, folders.asked)} "
                f"Their data: {', '.join(sorted(folders.asked))}."
            )


def is_part(items: BenchmarkData) -> bool:
    """Whether images are missing, so that scores are of a part of the benchmark."""
    return items.texts_alone > 0 or any(reason.startswith((NO_IMAGE, "no images of")) for reason in items.left_out)
