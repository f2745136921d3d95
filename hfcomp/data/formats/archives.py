"""Tar archives that were cut, damaged or joined: `tarfile`, and `datasets` with it, reads them as shorter ones.

After its first member `tarfile` silently takes anything that is not a header for the end: the end of a file that was
cut between two members, a damaged header, the first of two archives that were joined.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hfcomp.reading import FileError

COUNT = "nshards.txt"
"""A file next to the archives with their number, as clip-benchmark's data sets have it."""
MARKER = 2 * tarfile.BLOCKSIZE
"""Bytes of zeros that say that an archive ends; whatever writes archives writes them."""


def numbered_archives(folder: Path) -> list[Path]:
    """The archives `0.tar` and so on of a folder, as many as in its `nshards.txt`."""
    count = folder / COUNT
    if not count.is_file():
        raise ValueError(f"{count} is missing: expected a file with the number of archives in {folder}.")
    text = count.read_text(encoding="utf-8").strip()
    if not text.isdigit() or not int(text):
        raise ValueError(f"{count}: found {text!r}, expected the number of archives, 1 or more.")
    shards = [folder / f"{number}.tar" for number in range(int(text))]
    absent = [path.name for path in shards if not path.is_file()]
    if absent:
        raise ValueError(f"{folder}: {len(absent)} of {len(shards)} archives are missing, the first is {absent[0]}.")
    more = [path.name for path in sorted(folder.glob("*.tar")) if path.stem.isdigit() and path not in shards]
    if more:
        raise ValueError(
            f"{count}: found {text}, but {more[0]} is there too. Correct the number, or remove the archive."
        )
    return shards


def check_archive(path: Path) -> None:
    for _ in member_names(path):
        pass


def member_names(path: Path) -> Iterator[str]:
    """The names of the files of an uncompressed archive, whose headers are walked to its end; no content is read."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                archive.members = []  # of millions of samples they fill the memory
                if member.isreg():
                    yield member.name
            check_end(file, archive.offset)
    except tarfile.ReadError as error:
        raise FileError(not_whole(path, error)) from error


def check_tail(path: Path) -> None:
    """Looks at the end of an uncompressed archive alone, which shows nearly every cut at no cost."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MARKER))
        if size < MARKER or size % tarfile.BLOCKSIZE or any(file.read()):
            raise FileError(not_whole(path, f"it has no end-of-archive marker at byte {size:,}"))


def check_end(file: BinaryIO, end: int) -> None:
    """Checks that an archive ends where `tarfile` stopped reading it."""
    # Two blocks of zeros have to stand there, and nothing but zeros behind them: tar pads to the size of its records.
    file.seek(end)
    marker = file.read(MARKER)
    if any(marker):
        raise tarfile.ReadError(f"no file header at byte {end:,}")
    if len(marker) < MARKER:
        raise tarfile.ReadError(f"it is truncated at byte {end + len(marker):,}, before its end-of-archive marker")
    while block := file.read(1 << 20):
        if any(block):
            raise tarfile.ReadError(
                f"data after its end-of-archive marker at byte {end:,}, as in archives joined by cat"
            )
    if file.tell() % tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"it is truncated at byte {file.tell():,}, inside a block of {tarfile.BLOCKSIZE}")


def not_whole(path: Path, reason: object) -> str:
    return f"{path} is not a whole tar archive ({reason}). Fetch it again; in a git clone, run `git lfs pull`."
