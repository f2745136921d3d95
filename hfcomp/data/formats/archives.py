"""WebDataset archives: checks that a tar file is complete, and assigns its members to samples and columns.

After the first member, `tarfile` (and therefore `datasets`) silently treats anything that is not a header as the end
of the archive: a cut between two members, a damaged header, or the end of the first of two concatenated archives.

A sample's name is the part before the first dot of the file name, as in webdataset and `datasets`. File extensions are
case-insensitive, and extensions of one kind (`jpg`, `png`, ...) form one column unless a sample has several of them.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hfcomp.reading import FileError

COUNT = "nshards.txt"
"""File next to the archives that contains their number, as in clip-benchmark's datasets."""
MARKER = 2 * tarfile.BLOCKSIZE
"""Number of zero bytes that mark the end of an archive; every program that writes archives writes them."""


def numbered_archives(folder: Path) -> list[Path]:
    """Lists a folder's archives `0.tar`, `1.tar` and so on, as many as its `nshards.txt` says."""
    count = folder / COUNT
    if not count.is_file():
        raise ValueError(f"{count} is missing: expected a file with the number of archives in {folder}.")
    text = count.read_text(encoding="utf-8").strip()
    if not text.isdigit() or not int(text):
        raise ValueError(f"{count}: found {text!r}, expected the number of archives, at least 1.")
    shards = [folder / f"{number}.tar" for number in range(int(text))]
    absent = [path.name for path in shards if not path.is_file()]
    if absent:
        raise ValueError(f"{folder}: {len(absent)} of {len(shards)} archives are missing, the first is {absent[0]}.")
    more = [path.name for path in sorted(folder.glob("*.tar")) if path.stem.isdigit() and path not in shards]
    if more:
        raise ValueError(
            f"{count}: found {text}, but {more[0]} also exists. Correct the number, or remove the archive."
        )
    return shards


def check_archive(path: Path) -> None:
    for _ in member_names(path):
        pass


def member_names(path: Path) -> Iterator[str]:
    """Yields the file names in an uncompressed archive by reading all headers to its end, without file contents."""
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                archive.members = []  # with millions of samples, this list would fill the memory
                if member.isreg():
                    yield member.name
            check_end(file, archive.offset)
    except tarfile.ReadError as error:
        raise FileError(not_whole(path, error)) from error


def check_tail(path: Path) -> None:
    """Checks only the end of an uncompressed archive, which detects nearly every truncation at no cost."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MARKER))
        if size < MARKER or size % tarfile.BLOCKSIZE or any(file.read()):
            raise FileError(not_whole(path, f"it has no end-of-archive marker at byte {size:,}"))


def check_end(file: BinaryIO, end: int) -> None:
    """Checks that an archive ends where `tarfile` stopped reading it."""
    # Two blocks of zeros must follow, and then only zeros, because tar pads to its record size.
    file.seek(end)
    marker = file.read(MARKER)
    if any(marker):
        raise tarfile.ReadError(f"no file header at byte {end:,}")
    if len(marker) < MARKER:
        raise tarfile.ReadError(f"it is truncated at byte {end + len(marker):,}, before its end-of-archive marker")
    while block := file.read(1 << 20):
        if any(block):
            raise tarfile.ReadError(
                f"data after its end-of-archive marker at byte {end:,}, as in archives concatenated with cat"
            )
    if file.tell() % tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"it is truncated at byte {file.tell():,}, inside a block of {tarfile.BLOCKSIZE}")


def not_whole(path: Path, reason: object) -> str:
    return f"{path} is not a complete tar archive ({reason}). Download it again; in a git clone, run `git lfs pull`."


KEY = "__key__"
"""Column with sample names; it identifies rows that come from archives."""
_KINDS = (
    ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif"),
    ("txt", "text"),
    ("json", "jsn"),
)
Signature = frozenset[str]


def kind_of_ending(name: str) -> int | None:
    """Number of the kind of file extension in a column or member name; `None` if it has no other spelling."""
    ending = name.lower().rpartition(".")[2]
    return next((number for number, endings in enumerate(_KINDS) if ending in endings), None)


def fitting_columns(wanted: str, columns: Sequence[str]) -> list[str]:
    """Resolves a name to columns: the name itself, existing ones of `jpg;png;webp`, or another spelling of one.

    Other spellings are resolved only in rows from archives.
    """
    if wanted in columns:
        return [wanted]
    names = [name.strip() for name in wanted.split(";")]
    existing = [name for name in names if name in columns]
    if existing or KEY not in columns:
        return existing
    kinds = {kind_of_ending(name) for name in names} - {None}
    others = [name for name in columns if kind_of_ending(name) in kinds]
    return others if len(others) == 1 else []


def _other_spelling(ending: str, columns: Iterable[str]) -> str | None:
    """Returns the column that is another spelling of an extension, if there is exactly one."""
    prefix, kind = ending.rpartition(".")[0], kind_of_ending(ending)
    spellings = [name for name in columns if name.rpartition(".")[0] == prefix and kind_of_ending(name) == kind]
    return spellings[0] if kind is not None and len(spellings) == 1 else None


@dataclass(frozen=True)
class Layout:
    """Mapping from archive members to samples and columns.

    Attributes:
        by_last_dot: Whether a sample's name ends at the last dot of a member's name rather than at the first.
        columns: Columns by lower-case file extension of the members.
    """

    by_last_dot: bool
    columns: Mapping[str, str]

    def split(self, name: str) -> tuple[str, str] | None:
        """Splits a member's name into sample and extension; `None` for hidden files and files without extension."""
        return _split(name, self.by_last_dot)

    def column(self, ending: str) -> str | None:
        """Returns the column for an extension, even one that the surveyed samples lack; `None` if there is none."""
        return self.columns.get(ending) or _other_spelling(ending, {*self.columns.values()})

    def rename_to(self, stated: Sequence[str]) -> Layout:
        """Returns the layout with the column names that a card states, instead of other spellings."""
        columns = {
            ending: name if name in stated else _other_spelling(name, stated) or name
            for ending, name in self.columns.items()
        }
        return Layout(self.by_last_dot, columns)


@dataclass
class _Samples:
    """Samples and their extensions, assuming that sample names end at the first dot or at the last.

    Attributes:
        by_last_dot: Whether sample names end at the last dot.
        signatures: Number of samples for each set of extensions.
        fault: Sentence about an ambiguity of the samples; empty if there is none.
    """

    by_last_dot: bool
    signatures: Counter[Signature] = field(default_factory=Counter)
    fault: str = ""

    def add(self, archive: str, names: Sequence[str]) -> None:
        seen: set[str] = set()
        for key, endings in samples(names, self.by_last_dot):
            self.signatures[frozenset(endings)] += 1
            twice = next((ending for ending, number in Counter(endings).items() if number > 1), None)
            if key in seen and not self.fault:
                self.fault = (
                    f"{archive}: the members of the sample {key!r} are not consecutive. Pack the files in order of "
                    "their names, for example with `tar --sort=name`."
                )
            elif twice and not self.fault:
                self.fault = f"{archive}: the sample {key!r} has {twice!r} twice. Rename or remove one."
            seen.add(key)

    @property
    def evenness(self) -> float:
        """Share of samples that have the most frequent set of extensions."""
        return max(self.signatures.values(), default=0) / max(1, self.signatures.total())

    def columns(self) -> dict[str, str]:
        """Assigns a column to each extension.

        Extensions of one kind share a column, named by the most frequent one, unless a sample has several of them.
        """
        number: Counter[str] = Counter()
        for signature, samples_with_it in self.signatures.items():
            number.update(dict.fromkeys(sorted(signature), samples_with_it))
        columns = {}
        for ending in number:
            prefix, kind = ending.rpartition(".")[0], kind_of_ending(ending)
            same = [other for other in number if (other.rpartition(".")[0], kind_of_ending(other)) == (prefix, kind)]
            meet = kind is None or any(len(signature & set(same)) > 1 for signature in self.signatures)
            columns[ending] = ending if meet else max(same, key=lambda other: number[other])
        return columns


def samples(names: Iterable[str], by_last_dot: bool) -> Iterator[tuple[str, list[str]]]:
    # The members of a sample are consecutive in the archive, so only one sample is in memory at a time.
    current: str | None = None
    endings: list[str] = []
    for name in names:
        parts = _split(name, by_last_dot)
        if parts is None:
            continue
        if parts[0] != current and current is not None:
            yield current, endings
            endings = []
        current = parts[0]
        endings.append(parts[1])
    if current is not None:
        yield current, endings


def survey(archives: Iterable[tuple[str, Sequence[str]]]) -> Layout:
    """Infers the layout of archives from the names of their members.

    Dots in sample names (`1.5.jpg` and `1.5.txt`, `1.6.jpg`) are distinguished from dots in extensions
    (`000.left.jpg`): in sample names, the part after the dot differs from sample to sample.
    """
    first, last = _Samples(by_last_dot=False), _Samples(by_last_dot=True)
    for archive, names in archives:
        first.add(archive, names)
        last.add(archive, names)
    number: Counter[str] = Counter(ending for signature in first.signatures.elements() for ending in signature)
    dotted = [ending for ending in number if "." in ending]
    once = sum(number[ending] == 1 for ending in dotted)
    # If all samples have the same extensions, keep the first dot; splitting at the last must not make them less even.
    is_even = first.evenness == 1 and first.signatures.total() > 1
    is_mixed = 2 * once > len(dotted) or first.evenness < 0.5
    chosen = last if dotted and not is_even and is_mixed and last.evenness >= first.evenness else first
    if chosen.fault:
        raise FileError(chosen.fault)
    return Layout(chosen.by_last_dot, chosen.columns())


def _split(name: str, by_last_dot: bool) -> tuple[str, str] | None:
    folder, slash, base = name.rpartition("/")
    stem, dot, ending = base.rpartition(".") if by_last_dot else base.partition(".")
    if not dot or not stem or base.startswith((".", "__")):
        return None
    return f"{folder}{slash}{stem}", ending.lower()
