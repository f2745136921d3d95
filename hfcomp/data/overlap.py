"""The guard against overlap: which rows of a training set show images that an evaluation scores.

An image of one side is the same as one of the other, by the first of these that decides:

1. **name**: both are called so by one source. A photograph of COCO is known by its number, whatever release, folder
   or archive its file lies in (`000000000285.jpg`, `COCO_val2014_000000000285.jpg`; six of the twelve digits are
   leading zeros), or by `image_id` where the column `source` says COCO; a scene of hfcomp's sandbox by its `image_id`.
   In these two, other names are other images. Under any other `source`, rows that share it and `image_id` are the
   same image, and others may still be. An `image_id` without a `source` says nothing: "1" is in every data set.
2. **file**: the bytes are equal.
3. **pixels**: the decoded pixels are equal.
4. **look**: the same photograph saved, resized or cropped a little anew (`hfcomp.data.image_hashes`). Scenes of the
   sandbox are never compared so, as its drawings look alike; they are apart by their names.

Nothing finds a photograph that was mirrored, or cropped by a tenth and more, and has another name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, IterableDataset, Value
from numpy.typing import NDArray

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.image_hashes import (
    AT_A_TIME,
    RECORD,
    HashStore,
    cells_of,
    default_folder,
    file_key,
    hash_images,
    looks_alike,
)
from hfcomp.data.image_names import COCO, SANDBOX, Name, decides, photograph_name
from hfcomp.data.loading import undecoded

COLUMNS = ("image", "negative_image")
WAYS = ("name", "file", "pixels", "look")
EXAMPLES = 3
STREAMED_AT_A_TIME = 64
FIX = (
    "Leave such rows out with --overlap exclude (the default), train on them with --overlap allow, or choose another "
    "dataset, dataset_filter or evaluation."
)
OPEN = "open"  # the kind of a name that does not decide
COMPARED = ((OPEN, OPEN), (OPEN, COCO), (COCO, OPEN))  # by content: kinds of names of both sides


@dataclass(frozen=True)
class ScoredImages:
    """A column of images that an evaluation scores.

    Attributes:
        name: in messages, such as "SugarCrepe".
        cells: as `decode_image` takes them; `None` for a missing one.
        ids: `image_id` of each, where they have one.
        sources: `source` of each, likewise.
    """

    name: str
    cells: Sequence[Any]
    ids: Sequence[Any] | None = None
    sources: Sequence[Any] | None = None


@dataclass(frozen=True)
class Overlap:
    """Which rows show images that are scored.

    Attributes:
        total: rows of the training set.
        rows: `[k]`, those that do, in order.
        scored: distinct images that are scored.
        shown: how many of these the rows show.
        ways: rows by how they were found, each by the first of `WAYS`.
        examples: the first rows, in words.
        unreadable: what was wrong with each image that could not be decoded and is known by no name.
    """

    total: int
    rows: NDArray[np.int64]
    scored: int
    shown: int
    ways: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not len(self.rows):
            return f"none of {self.total:,} training rows shows one of the {self.scored:,} images that are scored"
        how = ", ".join(f"{count:,} by {way}" for way, count in self.ways.items() if count)
        return (
            f"{len(self.rows):,} of {self.total:,} training rows show {self.shown:,} of the {self.scored:,} images "
            f"that are scored ({how}; {'; '.join(self.examples)})"
        )

    def others(self) -> NDArray[np.int64]:
        """The other rows, in order."""
        return np.setdiff1d(np.arange(self.total), self.rows)

    def remark(self) -> str | None:
        """What could not be checked, if anything."""
        if not self.unreadable:
            return None
        return f"{len(self.unreadable):,} images cannot be read and were not compared; the first: {self.unreadable[0]}"


def without_overlap(
    dataset: Dataset, scored: Sequence[ScoredImages], *, folder: Path | None = None, progress: bool = True
) -> tuple[Dataset, Overlap]:
    """A training set without the rows that show images which are scored, and what was found.

    Args:
        dataset: in the column contract.
        scored: such as `hfcomp.evaluation.scored_images.benchmark_images(["sugarcrepe"])`.
        folder: where hashes are kept; by default `$HF_HOME/hfcomp/image_hashes`.
        progress: whether to show bars.

    Raises:
        TypeError: for a streamed set; `without_known_images` is for those.
    """
    found = find_overlap(dataset, scored, folder=folder, progress=progress)
    if not len(found.rows):
        return dataset, found
    return dataset.select(found.others()), found


def find_overlap(
    dataset: Dataset, scored: Sequence[ScoredImages], *, folder: Path | None = None, progress: bool = True
) -> Overlap:
    """The rows of a training set that show images which are scored; see the module's words on what is the same.

    Args:
        dataset: in the column contract; the columns `image` and `negative_image` are looked at.
        scored: the evaluation's.
        folder: where hashes are kept; by default `$HF_HOME/hfcomp/image_hashes`.
        progress: whether to show bars.

    Raises:
        TypeError: for a streamed set.
    """
    if isinstance(dataset, IterableDataset):
        raise TypeError("the training set is streamed, and this reads all of it. Use without_known_images.")
    own = [_training_column(dataset, name) for name in COLUMNS if name in dataset.column_names]
    theirs = _columns(scored)
    matches = _by_name(own, theirs)
    hashed = _Hashing(HashStore(folder or default_folder()), progress)
    for ours, others in COMPARED:
        here = hashed.of(own, ours, without=matches) if _has(theirs, others) else None
        if here is not None and len(here.records):
            _add(matches, _by_content(here, hashed.of(theirs, others)))
    rows = sorted(matches)
    return Overlap(
        total=len(dataset),
        rows=np.array(rows, dtype=np.int64),
        scored=_distinct(theirs, hashed),
        shown=len({match.target for match in matches.values()}),
        ways={way: sum(match.way == way for match in matches.values()) for way in WAYS},
        examples=tuple(matches[row].words for row in rows[:EXAMPLES]),
        unreadable=tuple(hashed.unreadable),
    )


@dataclass(frozen=True)
class _Column:
    """Images and their names."""

    name: str
    cells: Sequence[Any]
    names: list[Name | None]

    def called(self, row: int) -> str:
        """A row's image in words."""
        name = self.names[row]
        return f"{self.name}, row {row}" + (f" ({' '.join(name)})" if name else "")


@dataclass(frozen=True)
class _Match:
    row: int
    way: str
    target: Any
    words: str


def _add(matches: dict[int, _Match], more: Iterable[_Match]) -> None:
    """Of a row that was found twice the surer way stays."""
    for match in more:
        if match.row not in matches or WAYS.index(match.way) < WAYS.index(matches[match.row].way):
            matches[match.row] = match


def _training_column(dataset: Dataset, column: str) -> _Column:
    ids, sources = (dataset[name][:] if name in dataset.column_names else None for name in ("image_id", "source"))
    if column != "image":  # another image than the one that is called so, of the same source
        ids = [f"{column} of {row if ids is None else ids[row]}" for row in range(len(dataset))] if sources else None
    return _named(f"column '{column}'", undecoded(dataset.select_columns([column]))[column], ids, sources)


def _columns(scored: Sequence[ScoredImages]) -> list[_Column]:
    return [_named(one.name, one.cells, one.ids, one.sources) for one in scored]


def _named(name: str, cells: Sequence[Any], ids: Sequence[Any] | None, sources: Sequence[Any] | None) -> _Column:
    def found(row: int, path: Any = None) -> Name | None:
        return photograph_name(ids[row] if ids else None, sources[row] if sources else None, path)

    names = [found(row) for row in range(len(cells))]
    for row, cell in _each(cells, [row for row, known in enumerate(names) if known is None]):
        names[row] = found(row, cell.get("path") if isinstance(cell, dict) else cell)
    return _Column(name, cells, names)


def _each(cells: Sequence[Any], rows: Sequence[int]) -> Iterator[tuple[int, Any]]:
    for start in range(0, len(rows), AT_A_TIME):
        part = rows[start : start + AT_A_TIME]
        yield from zip(part, cells_of(cells, part), strict=True)


def _kind(name: Name | None) -> str:
    return name[0] if decides(name) else OPEN


def _has(columns: Sequence[_Column], kind: str) -> bool:
    return any(_kind(name) == kind for column in columns for name in column.names)


def _by_name(own: Sequence[_Column], theirs: Sequence[_Column]) -> dict[int, _Match]:
    places = {name: (column, row) for column in theirs for row, name in reversed([*enumerate(column.names)])}
    matches: dict[int, _Match] = {}
    for column in own:
        for row, name in enumerate(column.names):
            if name is not None and name in places:
                other, place = places[name]
                _add(matches, [_Match(row, "name", name, f"{column.called(row)} is {other.called(place)}")])
    return matches


@dataclass(frozen=True)
class _Hashes:
    """Hashes of distinct images, and where each is found."""

    records: NDArray[Any]
    places: list[list[tuple[_Column, int]]]


class _Hashing:
    """Hashes of the images of some columns whose names are of one kind, computed when they are asked for."""

    def __init__(self, store: HashStore, progress: bool) -> None:
        self.store, self.progress = store, progress
        self.unreadable: list[str] = []
        self._known: dict[tuple[int, str], _Hashes] = {}

    def of(self, columns: list[_Column], kind: str, without: Container[int] = ()) -> _Hashes:
        if (id(columns), kind) not in self._known:
            self._known[id(columns), kind] = self._hash(columns, kind, without)
        return self._known[id(columns), kind]

    def _hash(self, columns: list[_Column], kind: str, without: Container[int]) -> _Hashes:
        number: dict[bytes, int] = {}
        records: list[NDArray[Any]] = []
        places: list[list[tuple[_Column, int]]] = []
        for column in columns:
            rows = [row for row, name in enumerate(column.names) if _kind(name) == kind and row not in without]
            found = hash_images(column.cells, rows, self.store, name=column.name, progress=self.progress)
            self.unreadable += found.unreadable
            for row, index in zip(rows, found.index, strict=True):
                if index < 0:
                    continue
                key = found.records[index]["key"].tobytes()
                if key not in number:
                    number[key] = len(records)
                    records.append(found.records[index])
                    places.append([])
                places[number[key]].append((column, row))
        return _Hashes(np.stack(records) if records else np.zeros(0, dtype=RECORD), places)


def _by_content(own: _Hashes, theirs: _Hashes) -> Iterator[_Match]:
    nearest, bits = looks_alike(own.records, theirs.records)
    files, pixels = (
        {record[field].tobytes(): place for place, record in reversed([*enumerate(theirs.records)])}
        for field in ("key", "pixels")
    )
    for number, record in enumerate(own.records):
        target, way = files.get(record["key"].tobytes()), "file"
        if target is None:
            target, way = pixels.get(record["pixels"].tobytes()), "pixels"
        if target is None:
            target, way = int(nearest[number]), "look"
        if target < 0:
            continue
        other, place = theirs.places[target][0]
        identity = other.names[place] or theirs.records[target]["key"].tobytes()
        differ = f", {bits[number]} of 256 bits differ" if way == "look" else ""
        for column, row in own.places[number]:
            yield _Match(row, way, identity, f"{column.called(row)} is {other.called(place)} by its {way}{differ}")


def _distinct(theirs: list[_Column], hashed: _Hashing) -> int:
    """How many images are scored, each once: by name, else by content."""
    named = {name for column in theirs for name in column.names if name is not None}
    unnamed = [
        places for places in hashed.of(theirs, OPEN).places if all(column.names[row] is None for column, row in places)
    ]
    return len(named) + len(unnamed)


def without_known_images(
    dataset: IterableDataset, scored: Sequence[ScoredImages], *, refuse: bool = False
) -> IterableDataset:
    """A streamed training set without the rows whose image is scored and can be known as they are read.

    That is by name and by file: other copies of a photograph are not found. Rows that are left out are counted in the
    column `left_out_rows`.

    Args:
        dataset: in the column contract, images undecoded, with `features`.
        scored: the evaluation's.
        refuse: raise instead, where training reads such a row.
    """
    keys: set[bytes | None] = set()
    for column in _columns(scored):
        rows = [row for row, name in enumerate(column.names) if _kind(name) != SANDBOX]
        keys |= {_key(cell) for _, cell in _each(column.cells, rows)}
    known = _KnownImages(known_names(scored), frozenset(keys - {None}), refuse)
    features = Features({**dataset.features, LEFT_OUT: Value("int64")})
    return dataset.map(known, batched=True, batch_size=STREAMED_AT_A_TIME, features=features)


def known_names(scored: Sequence[ScoredImages]) -> frozenset[Name]:
    """The names of images that are scored, as far as they have one."""
    return frozenset(name for column in _columns(scored) for name in column.names if name is not None)


def _key(cell: Any) -> bytes | None:
    try:
        return file_key(cell) if cell is not None else None
    except (OSError, TypeError):  # whoever decodes it says what is wrong with it
        return None


@dataclass
class _KnownImages:
    """Leaves rows out of a batch; travels to the workers that read."""

    names: frozenset[Name]
    keys: frozenset[bytes]
    refuse: bool
    left_out: int = 0

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        size = len(next(iter(batch.values())))
        before = batch.get(LEFT_OUT, [0] * size)
        kept, counts = [], []
        for row in range(size):
            self.left_out += before[row]
            called = self._found(batch, row)
            if called is None:
                kept.append(row)
                counts.append(self.left_out)
                self.left_out = 0
            elif self.refuse:
                raise ValueError(f"overlap: refuse: the stream holds {called}, an image that is scored. {FIX}")
            else:
                self.left_out += 1
        return {name: [values[row] for row in kept] for name, values in batch.items()} | {LEFT_OUT: counts}

    def _found(self, batch: dict[str, list[Any]], row: int) -> str | None:
        """What a row's image is called, if it is scored."""
        for column in (name for name in COLUMNS if name in batch):
            cell = batch[column][row]
            own = "image_id" if column == "image" else None
            said = [batch[name][row] if name in batch else None for name in (own, "source")]
            name = photograph_name(*said, cell.get("path") if isinstance(cell, dict) else cell)
            if name in self.names:
                return " ".join(name)
            if _key(cell) in self.keys:
                return f"column '{column}', {' '.join(name) if name else 'a file'}"
        return None
