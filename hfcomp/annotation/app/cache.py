"""Gradio's folder of files, which is the server's own: removed at the end, or at the next start after a kill."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hfcomp.writing import LOCK_FILE, try_lock

VARIABLE = "GRADIO_TEMP_DIR"
"""The environment variable that names Gradio's folder, which is read with every file."""
PREFIX = "hfcomp-annotate-"


@contextmanager
def own_cache() -> Iterator[Path]:
    """A new folder in Gradio's or the system's temporary one; what killed servers left beside it is removed."""
    before = os.environ.get(VARIABLE)
    parent = Path(before or tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    remove_left(parent)
    folder = parent.resolve() / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    lock = try_lock(folder)  # the kernel releases it when the process ends, however it ends
    if lock is None or not folder.is_dir():
        raise OSError(f"{folder} was removed by another server that started at this moment. Start this one again.")
    os.environ[VARIABLE] = str(folder)
    try:
        yield folder
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def remove_left(parent: Path) -> None:
    """Removes the folders of this user whose server is gone: those whose lock is free."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid() or not (folder / LOCK_FILE).is_file():
                continue
            lock = try_lock(folder)
        except OSError:
            continue
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()
