"""Atomic file and folder writes, and locks on output folders.

A file is written next to its destination under a temporary name, forced to disk, and renamed. A process that is killed
leaves the temporary file behind, never half a file; `remove_unfinished` clears such files.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from hfcomp.checksums import with_checksum
from hfcomp.text_tables import safe_cell

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LOCK_FILE = ".lock"
LOCK_SECONDS = 1.0
"""Seconds that a command waits for a folder: a process killed while it starts another may lock it a moment longer."""
PART = ".part"
_PART_NAME = re.compile(rf".+\.[\w-]+-\d+-[0-9a-f]{{8}}{re.escape(PART)}")


def host() -> str:
    """Returns the name of this machine, as used in temporary file names."""
    return re.sub(r"\W+", "-", platform.node())[:30] or "host"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path to write a file to, which replaces `path` when the block ends without an error.

    Creates a missing folder, and forces file and folder to disk. After an error, nothing is left behind and an earlier
    file is unchanged.

    Raises:
        OSError: If the file cannot be written. The error names the file.
    """
    # The order of the three steps matters, because a machine may lose power between any two. First the content: a file
    # system may save a new name before the content, and the name would then point to an empty file. Then the rename,
    # which is atomic only on one file system, so the temporary file is next to its destination and not in /tmp. Then
    # the folder; otherwise the new name itself may be lost.
    path = Path(path)
    part = _temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        _sync(part)
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        # Other code may raise inside the block too, so only errors without a file name, or about the temporary file,
        # get the user's file name.
        _remove(part)
        if error.errno is None or error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # for example a full disk
    except BaseException:
        _remove(part)
        raise


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Like `replacing`, for a folder with its files. Removes the earlier folder just before renaming the new one."""
    part = _temporary_path(folder)
    try:
        part.mkdir(parents=True)
        yield part
        for path in part.rglob("*"):
            if path.is_file():
                _sync(path)
        # No system call replaces a folder that has files. The gap between these two lines is as short as possible, and
        # a process killed inside it leaves the complete new folder under its temporary name.
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        _sync_folder(folder.parent)
    except BaseException:
        _remove(part)
        raise


def write_bytes(path: str | Path, content: bytes) -> None:
    """Writes a file atomically, see `replacing`."""
    with replacing(path) as part, part.open("wb") as file:
        file.write(content)


def write_text(path: str | Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Adds the file name to an `OSError` without one, for example from a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def append_text(path: Path, text: str) -> None:
    """Appends UTF-8 text to a file, which need not exist. The text is on disk when this function returns.

    A killed process may leave only the beginning of the text.

    Raises:
        OSError: If the file cannot be written. The error names the file.
    """
    with _named_errors(path), path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def append_bytes(path: Path, content: Any, *, at: int) -> None:
    """Truncates a file to its first `at` bytes and appends bytes or a contiguous array.

    The file need not exist. The content is on disk when this function returns; a killed process may leave only the
    beginning of it.

    Raises:
        OSError: If the file cannot be written. The error names the file.
        ValueError: If the file has fewer than `at` bytes.
    """
    # The caller records the number of valid bytes only after this function returns. Anything after `at` was therefore
    # written by a process that died before it could record it, and is removed.
    with _named_errors(path), path.open("r+b" if path.exists() else "w+b") as file:
        if file.seek(0, os.SEEK_END) < at:
            raise ValueError(f"{path} has {file.tell():,} bytes, expected at least {at:,}.")
        file.truncate(at)
        file.seek(at)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_if_missing(path: Path, text: str) -> bool:
    """Writes a UTF-8 text file atomically unless it exists; returns whether this process was the first.

    On a file system without hard links, the last writer wins.

    Raises:
        OSError: If the file cannot be written. The error names the file.
    """
    # Creating a hard link fails if the name exists; otherwise, the file appears with all its content. So exactly one
    # process wins. With a rename, the last one would win; opening with "x" would show the others an empty file.
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _temporary_path(path)
    try:
        with _named_errors(path):
            part.write_text(text, encoding="utf-8")
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            except OSError:
                os.replace(part, path)
            return True
    finally:
        _remove(part)


def write_json(path: str | Path, content: Mapping[str, Any], *, sort_keys: bool = False) -> None:
    """Writes a JSON file with the checksum of its content, for `hfcomp.checksums.read_checked`; see `replacing`.

    Raises:
        TypeError: If JSON cannot represent a value.
    """
    text = json.dumps(with_checksum(content), indent=2, ensure_ascii=False, sort_keys=sort_keys)
    write_text(path, f"{text}\n")


def write_csv(path: str | Path, table: pd.DataFrame) -> None:
    """Writes a CSV file (RFC 4180) without an index, with cells made safe by `safe_cell`; see `replacing`."""
    import numpy as np

    content = table.copy(deep=False)
    for name, column in table.items():
        if column.dtype.kind == "O":  # assigned as an array, because pandas would turn a list of numbers into floats
            content[name] = np.array([*map(safe_cell, column)], dtype=object)
    with replacing(path) as part:
        content.to_csv(part, index=False, lineterminator="\r\n")  # makes pandas quote a lone \r too


def write_parquet(
    path: str | Path,
    table: pa.Table | pd.DataFrame,
    *,
    rows_per_group: int | None = None,
    bytes_per_group: int | None = None,
) -> None:
    """Writes a Parquet file, without the index of a data frame; see `replacing`.

    Readers fetch one row group at a time. `bytes_per_group` counts texts and files; a larger row forms its own group.
    """
    import pyarrow as pa  # takes a quarter of a second, so commands that write no table skip it
    import pyarrow.parquet as pq

    rows = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    with replacing(path) as part, pq.ParquetWriter(part, rows.schema) as writer:
        # `datasets` rejects a file whose first row group is empty, but reads a file without row groups.
        for start, end in _row_groups(rows, rows_per_group, bytes_per_group):
            writer.write_table(rows.slice(start, end - start), row_group_size=rows_per_group)


def _row_groups(rows: pa.Table, rows_per_group: int | None, bytes_per_group: int | None) -> Iterator[tuple[int, int]]:
    sizes = sum(map(_content_sizes, rows.columns)) if bytes_per_group else None
    start = 0
    while start < len(rows):
        end = min(len(rows), start + (rows_per_group or len(rows)))
        if sizes is not None:
            fitting = int((sizes[start:end].cumsum() <= bytes_per_group).sum())
            end = start + max(1, fitting)
        yield start, end
        start = end


def _content_sizes(column: pa.ChunkedArray) -> Any:
    """Returns the bytes of texts and files in each row. Only content counts, so the memory layout is irrelevant."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        fields = [pc.struct_field(column, number) for number in range(kind.num_fields)]
        return sum(map(_content_sizes, fields), np.zeros(len(column), np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # Lists are stored one after the other, so a row's size is the difference between the running totals at the
        # start and the end of its list.
        ends = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64).cumsum()
        totals = np.concatenate([[0], _content_sizes(pc.list_flatten(column)).cumsum()])
        return np.diff(totals[np.concatenate([[0], ends])])
    if kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        return pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return np.zeros(len(column), np.int64)


def remove_unfinished(folder: Path, names: str = "*", *, older_than: float = 0.0) -> None:
    """Removes files that killed processes left half-written, if their last write is over `older_than` seconds ago.

    The caller must hold the folder's lock, unless it removes only old files. `names` is a pattern; `**/*` includes all
    subfolders.
    """
    for path in sorted(folder.glob(f"{names}{PART}")):  # lists all files before removing any
        if not _PART_NAME.fullmatch(path.name):
            continue
        with suppress(OSError):  # another process removed it first
            if not older_than or path.stat().st_mtime < time.time() - older_than:
                _remove(path)


def try_lock(folder: Path, seconds: float = 0.0) -> FileLock | None:
    """Locks a folder, creating it if missing. Returns None if another process still holds the lock after `seconds`."""
    # A kernel lock (flock) is released when its process ends, whatever ends it. A plain marker file would lock the
    # folder forever after a kill.
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        return None
    return lock


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of an output folder, and removes half-written files of killed processes.

    A folder that was created for the lock and stays empty is removed again.

    Raises:
        ValueError: If another process holds the lock, or the folder is not writable.
    """
    is_new = not folder.exists()
    try:
        lock = try_lock(folder, LOCK_SECONDS)
    except OSError as error:
        raise ValueError(f"{folder} is not writable: {error}. Choose another folder.") from error
    if lock is None:
        raise ValueError(f"{folder} is in use by another process. Wait until it ends, or choose another folder.")
    try:
        # This is safe only under the lock: nobody else writes here, so every temporary file belongs to a dead process.
        remove_unfinished(folder)
        yield
    finally:
        if is_new and os.listdir(folder) == [LOCK_FILE]:
            shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def check_free_file(path: Path, overwrite: bool, *, option: str) -> None:
    """Raises `ValueError` if the file, passed as `--option`, is a folder, or exists and `overwrite` is False."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, expected a file. Pass another --{option}.")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} already exists. Pass --overwrite, or another --{option}.")


def check_free_folder(
    folder: Path, overwrite: bool, *, written: Sequence[str], whole: bool = False, option: str = "output_dir"
) -> None:
    """Raises if files would be lost in an output folder.

    Args:
        folder: Output folder; it need not exist.
        overwrite: Whether the user allows replacing earlier output.
        written: Files that are replaced or, with `whole`, that mark a folder as earlier output.
        whole: Whether the folder is replaced with all its content, as by `replacing_folder`.
        option: Command-line option of the folder, for the message.

    Raises:
        ValueError: If `folder` is a file, or if it contains one of `written` and `overwrite` is False. With `whole`,
            also if it contains files but none of `written`, even with `overwrite`.
    """
    # A folder without any of our files may be someone's own, for example a home folder that was passed by mistake.
    # --overwrite allows replacing earlier output and must not be enough to delete such a folder.
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, expected a folder. Pass another --{option}.")
    existing = sorted(name for name in os.listdir(folder) if name != LOCK_FILE) if folder.is_dir() else []
    ours = [name for name in written if name in existing]
    if whole and existing and not ours:
        others = ", ".join(existing[:3]) + (", ..." if len(existing) > 3 else "")
        raise ValueError(
            f"{folder} has no {written[0]} but contains other files ({others}), which would be deleted. Pass another "
            f"--{option}."
        )
    if ours and not overwrite:
        raise ValueError(f"{folder} already contains {ours[0]}. Pass --overwrite, or another --{option}.")


def _temporary_path(path: Path) -> Path:
    # The random suffix is needed because containers that share a folder may have the same host name and process ids.
    return path.with_name(f"{path.name}.{host()}-{os.getpid()}-{secrets.token_hex(4)}{PART}")


def _remove(path: Path) -> None:
    # Best effort: the folder may be read-only, or another process may remove it first.
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    with path.open("rb+" if os.name == "nt" else "rb") as file:
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    # Windows cannot open a folder.
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems do not support this call for folders
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
