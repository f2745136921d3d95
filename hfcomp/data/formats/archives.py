"""WebDataset archives: whether a tar file is whole, and which sample and column a member belongs to.

After its first member `tarfile`, and `datasets` with it, silently takes anything that is not a header for the end: the
end of a file that was cut between two members, a damaged header, the first of two archives that were joined.

A sample's name is what is before the first dot of the file name, as webdataset and `datasets` have it. Endings count
in any case, and those of one kind (`jpg`, `png`, ...) are one column unless a sample has several of them.
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
"""A file next to the archives with their number, as clip-benchmark's datasets have it."""
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
    # Two blocks of zeros must be there, and nothing but zeros behind them: tar pads to the size of its records.
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


KEY = "__key__"
"""The column of samples' names, by which rows of archives are known."""
_KINDS = (
    ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "avif"),
    ("txt", "text"),
    ("json", "jsn"),
)
Signature = frozenset[str]


def kind_of_ending(name: str) -> int | None:
    """A number for what the ending of a column or member stands for, `None` for one that has no other spelling."""
    ending = name.lower().rpartition(".")[2]
    return next((number for number, endings in enumerate(_KINDS) if ending in endings), None)


def fitting_columns(wanted: str, columns: Sequence[str]) -> list[str]:
    """The columns that a name stands for: itself, those of `jpg;png;webp` that exist, or another spelling of one.

    Other spellings are known in rows of archives only.
    """
    if wanted in columns:
        return [wanted]
    names = [name.strip() for name in wanted.split(";")]
    there = [name for name in names if name in columns]
    if there or KEY not in columns:
        return there
    kinds = {kind_of_ending(name) for name in names} - {None}
    others = [name for name in columns if kind_of_ending(name) in kinds]
    return others if len(others) == 1 else []


def _spelled(ending: str, columns: Iterable[str]) -> str | None:
    """The only one of some columns that is another spelling of an ending."""
    prefix, kind = ending.rpartition(".")[0], kind_of_ending(ending)
    found = [name for name in columns if name.rpartition(".")[0] == prefix and kind_of_ending(name) == kind]
    return found[0] if kind is not None and len(found) == 1 else None


@dataclass(frozen=True)
class Layout:
    """How members of archives become rows.

    Attributes:
        by_last_dot: whether the name of a sample ends at the last dot of a member's name, not at the first.
        columns: by the ending of a member, in lower case.
    """

    by_last_dot: bool
    columns: Mapping[str, str]

    def split(self, name: str) -> tuple[str, str] | None:
        """Sample and ending of a member; `None` for a file without an ending, and for hidden ones."""
        return _split(name, self.by_last_dot)

    def column(self, ending: str) -> str | None:
        """The column of an ending, also of one that the surveyed samples lack; `None` if there is none."""
        return self.columns.get(ending) or _spelled(ending, {*self.columns.values()})

    def named_as(self, stated: Sequence[str]) -> Layout:
        """The layout with the columns that a card states, in place of other spellings of them."""
        columns = {
            ending: name if name in stated else _spelled(name, stated) or name for ending, name in self.columns.items()
        }
        return Layout(self.by_last_dot, columns)


@dataclass
class _Samples:
    """What samples have if their names end at the first, or the last, dot.

    Attributes:
        by_last_dot: which of both.
        signatures: the number of samples with the same endings.
        fault: what makes the samples ambiguous, a sentence; empty for none.
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
                    f"{archive}: the members of the sample {key!r} are not one after the other. Pack the files in the "
                    "order of their names, for example with `tar --sort=name`."
                )
            elif twice and not self.fault:
                self.fault = f"{archive}: the sample {key!r} has {twice!r} twice. Rename or remove one."
            seen.add(key)

    @property
    def evenness(self) -> float:
        """Share of samples that have the most frequent endings."""
        return max(self.signatures.values(), default=0) / max(1, self.signatures.total())

    def columns(self) -> dict[str, str]:
        """By ending its column: endings of one kind share one, named by the most frequent, unless they meet."""
        number: Counter[str] = Counter()
        for signature, samples_with_it in self.signatures.items():
            number.update(dict.fromkeys(sorted(signature), samples_with_it))
        found = {}
        for ending in number:
            prefix, kind = ending.rpartition(".")[0], kind_of_ending(ending)
            same = [one for one in number if (one.rpartition(".")[0], kind_of_ending(one)) == (prefix, kind)]
            meet = kind is None or any(len(signature & set(same)) > 1 for signature in self.signatures)
            found[ending] = ending if meet else max(same, key=lambda one: number[one])
        return found


def samples(names: Iterable[str], by_last_dot: bool) -> Iterator[tuple[str, list[str]]]:
    # The members of a sample are neighbors in the archive, so one sample at a time is in memory.
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
    """The layout of archives by the names of their members.

    Names of samples with dots in them (`1.5.jpg` and `1.5.txt`, `1.6.jpg`) are told from endings with dots
    (`000.left.jpg`): those of names differ from sample to sample.

    """
    first, last = _Samples(by_last_dot=False), _Samples(by_last_dot=True)
    for archive, names in archives:
        first.add(archive, names)
        last.add(archive, names)
    number: Counter[str] = Counter(ending for signature in first.signatures.elements() for ending in signature)
    dotted = [ending for ending in number if "." in ending]
    once = sum(number[ending] == 1 for ending in dotted)
    # Samples of one kind stay as they are. Names with dots must not make them less alike.
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
