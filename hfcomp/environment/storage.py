"""Folders that hfcomp and its libraries write to: sizes, room, and whether they can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hfcomp.environment.findings import BROKEN, NOTE, OK, Finding
from hfcomp.evaluation.encoding.cache_files import default_folder, default_limit, size_text

AREA = "storage"
LITTLE = 5 * 10**9
"""Free bytes below which there is a note: a CLIP with its optimiser's state takes about 2 GB."""
PATIENCE = 3.0
"""Seconds for the size of a folder."""


def find_storage() -> Iterator[Finding]:
    """The caches, the folder for temporary files, and the working directory, where runs are written."""
    from datasets.config import HF_DATASETS_CACHE
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    from hfcomp.data.overlap import hash_store

    yield _folder("HF_HOME", Path(HF_HOME), sized=False)
    yield _folder("models and data of the Hub", Path(HF_HUB_CACHE))
    yield _folder("data sets as loaded", Path(HF_DATASETS_CACHE))
    yield _folder("embeddings", default_folder(), f" of at most {size_text(default_limit())}")
    yield _folder("image hashes", hash_store.default_folder())
    yield _folder("working directory", Path.cwd(), sized=False)
    yield _temporary()


def _folder(name: str, folder: Path, limit: str = "", *, sized: bool = True) -> Finding:
    """A folder's size, and the room on its disk; of one that is not there yet, of the folder above it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    size = f"{_size(folder)}{limit}, " if sized and folder.exists() else ""
    size = size or ("" if folder.exists() else "not there yet, ")
    free = shutil.disk_usage(there).free
    found = f"{folder}: {size}{size_text(free)} free"
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        fix = f"Make {there} writable, or set HF_HOME to another folder."
        return Finding(AREA, name, f"{found}; cannot be written", BROKEN, fix)
    if free < LITTLE:
        return Finding(AREA, name, found, NOTE, f"Make room on the disk of {there}, or set HF_HOME to another disk.")
    return Finding(AREA, name, found, OK)


def _size(folder: Path) -> str:
    """The bytes of a folder's files, links not followed; at least so many where it takes too long to count."""
    until, total, folders = time.monotonic() + PATIENCE, 0, [os.fspath(folder)]
    while folders:
        if time.monotonic() > until:
            return f"more than {size_text(total)}"
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_symlink():
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # removed meanwhile, or not ours to read
            continue
    return size_text(total)


def _temporary() -> Finding:
    """The folder for temporary files, by writing one."""
    try:
        folder = Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"hfcomp")
    except OSError as error:
        fix = "Set TMPDIR to a folder that can be written and has room."
        return Finding(AREA, "temporary files", f"cannot be written: {error}", BROKEN, fix)
    return Finding(AREA, "temporary files", f"{folder}: {size_text(shutil.disk_usage(folder).free)} free")
