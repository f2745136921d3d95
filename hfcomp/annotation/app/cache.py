"""Gradio's folder of files, which is the server's own: removed at the end, or at the next start after a kill."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

VARIABLE = "GRADIO_TEMP_DIR"
"""The environment variable that names Gradio's folder, which is read with every file."""
PREFIX, LOCK = "hfcomp-annotate-", ".lock"


@contextmanager
def own_cache() -> Iterator[Path]:
    """A new folder in Gradio's or the system's temporary one; what killed servers left beside it is removed."""
    before = os.environ.get(VARIABLE)
    parent = Path(before or tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    remove_left(parent)
    folder = parent.resolve() / f"{PREFIX}{secrets.token_hex(8)}"
    lock = FileLock(_lock_of(folder))
    lock.acquire()  # before the folder is there; the kernel releases it when the process ends, however it ends
    folder.mkdir(mode=0o700)
    os.environ[VARIABLE] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
        _lock_of(folder).unlink(missing_ok=True)


def remove_left(parent: Path) -> None:
    """Removes the folders of this user whose server is gone: those whose lock is free."""
    for path in parent.glob(f"{PREFIX}*{LOCK}"):
        folder = path.with_name(path.name.removesuffix(LOCK))
        try:
            if path.is_symlink() or folder.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            with FileLock(path, timeout=0):
                shutil.rmtree(folder, ignore_errors=True)
                path.unlink(missing_ok=True)
        except (Timeout, OSError):  # it is served, or somebody else's
            continue


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + LOCK)
