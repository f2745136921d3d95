"""Names of members of WebDataset archives: which sample a member belongs to, and which column it is.

A sample's name is what is before the first dot of the file name, as webdataset and `datasets` have it. Endings count
in any case, and those of one kind (`jpg`, `png`, ...) are one column unless a sample has several of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hfcomp.reading import FileError

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
    # members of a sample are neighbors in the archive, so one sample at a time is in memory
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
    # samples of one kind stay as they are, and names with dots have to make them no less alike
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
