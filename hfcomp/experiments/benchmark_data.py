"""The data of benchmarks as commands and recipes name it, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hfcomp.data.columns import nearest
from hfcomp.evaluation.engine import NO_IMAGE
from hfcomp.evaluation.spec import Folders, Items
from hfcomp.experiments.experiment_config import expanded

Tell = Callable[[str], None]


def data_folders(given: Sequence[str], root: Path | None = None, *, option: str) -> Folders:
    """Folders from entries `NAME=DIR`, in which `$NAME` stands for an environment variable.

    Args:
        given: entries; the name is a benchmark's or a set of images'.
        root: a folder with a sub-folder for each of the others.
        option: what errors call the entries.

    Raises:
        ValueError: for an entry of another form, or a folder that is not there.
    """
    own = {}
    for text in given:
        name, _, folder = expanded(text, option).partition("=")
        if not folder or not Path(folder).is_dir():
            raise ValueError(f"{option}: found {text!r}, expected NAME=DIR with a folder that is there.")
        if name in own:
            raise ValueError(f"{option}: found two folders for {name!r}, {own[name]} and {folder}. Pass one.")
        own[name] = Path(folder)
    if root is not None and not root.is_dir():
        raise ValueError(f"{root} is no folder; it was given for the data of benchmarks.")
    return Folders(root, own)


def check_used(folders: Folders, *, option: str) -> None:
    """Checks that every folder that was given was looked for, once all benchmarks have been loaded.

    Raises:
        ValueError: for one that was not, with the nearest name that was.
    """
    for name in folders.own:
        if name not in folders.asked:
            raise ValueError(
                f"{option}: no benchmark that was asked for has data called {name!r}.{nearest(name, folders.asked)} "
                f"They look for: {', '.join(sorted(folders.asked))}."
            )


def is_part(items: Items) -> bool:
    """Whether images are missing, so that scores are of a part of the benchmark."""
    return items.texts_alone > 0 or any(reason.startswith((NO_IMAGE, "no images of")) for reason in items.left_out)
