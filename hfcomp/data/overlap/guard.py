"""The guard against overlap: which rows of a training set show images that an evaluation scores.

An image of one side is the same as one of the other, by the first of these that decides:

1. **name**: both have one number of COCO or one id of hfcomp's sandbox (`image_names`). In these two, other names are
   other images, and nothing has to be read. Equal names of any other kind say nothing for sure.
2. **file**: the bytes are equal (of URLs and members of archives: the names).
3. **pixels**: the decoded pixels are equal.
4. **look**: the same photograph re-saved, resized or slightly cropped (`image_hashes`). Scored images that look like
   another one of their column are not compared so, nor are scenes of the sandbox. Where more rows than `MOST_BY_LOOK`
   would match by look alone, images of this kind look alike or the set has many copies, which cannot be distinguished:
   these rows are `unsure`.

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

from hfcomp.data.columns import LEFT_OUT, RowsLeftOut
from hfcomp.data.overlap.image_columns import (
    COCO,
    OPEN,
    SANDBOX,
    ImageColumn,
    Name,
    ScoredImages,
    each_cell,
    kind_of,
    photograph_name,
    scored_columns,
    training_column,
)
from hfcomp.data.overlap.image_hashes import (
    FILE,
    RECORD,
    HashStore,
    file_key,
    hash_images,
    like_another,
    looks_alike,
)
from hfcomp.store import cache_folder

COLUMNS = ("image", "negative_image")
WAYS = ("name", "file", "pixels", "look")
EXAMPLES = 3
STREAMED_AT_A_TIME = 64
FIX = (
    "Leave such rows out with --overlap exclude (the default), train on them with --overlap allow, or choose another "
    "dataset, dataset_filter or evaluation."
)
MOST_BY_LOOK = (20, 0.02)  # rows, and their share: where both are passed, look is not trusted
COMPARED = ((OPEN, OPEN), (OPEN, COCO), (COCO, OPEN))  # by content: kinds of names of both sides


@dataclass(frozen=True)
class Overlap:
    """Which rows show images that are scored.

    Attributes:
        total: rows of the training set.
        rows: `[k]`, those that do, in order.
        scored: scored images, deduplicated by names, paths and ids.
        shown: how many of these the rows show.
        ways: rows by how they were found, each by the first of `WAYS`.
        examples: the first rows, in words.
        unreadable: what was wrong with each image that could not be decoded and is known by no name.
        unsure: `[u]`, further rows: those that look like a scored image, where these are too many to be trusted.
        unsure_examples: the first of them, in words.
        alike: scored images that were not compared by look, as they look like another one.
        looks: whether pixels and look were compared, and not names and files alone.
    """

    total: int
    rows: NDArray[np.int64]
    scored: int
    shown: int
    ways: dict[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    unsure: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unsure_examples: tuple[str, ...] = ()
    alike: int = 0
    looks: bool = True

    def __str__(self) -> str:
        by = "" if self.looks else " by name or file, which alone were compared"
        if not len(self.rows):
            return f"none of {self.total:,} training rows shows one of the {self.scored:,} images that are scored{by}"
        how = ", ".join(f"{count:,} by {way}" for way, count in self.ways.items() if count)
        return (
            f"{len(self.rows):,} of {self.total:,} training rows show {self.shown:,} of the {self.scored:,} images "
            f"that are scored{by} ({how}; {'; '.join(self.examples)})"
        )

    def others(self) -> NDArray[np.int64]:
        """The other rows, in order."""
        return np.setdiff1d(np.arange(self.total), self.rows)

    def doubt(self) -> str | None:
        """A sentence about rows that are unsure, if any."""
        if not len(self.unsure):
            return None
        return (
            f"{len(self.unsure):,} of {self.total:,} training rows look like a scored image, too many to distinguish "
            "copies "
            f"from images that are all alike ({'; '.join(self.unsure_examples)})"
        )

    def remark(self) -> str | None:
        """What could not be compared, if anything."""
        said = []
        if self.unreadable:
            count = f"{len(self.unreadable):,} images cannot be read and were not compared"
            said.append(f"{count}; the first: {self.unreadable[0]}")
        if self.alike:
            said.append(
                f"{self.alike:,} scored images look like another scored one and were compared by name, file and "
                "pixels only"
            )
        return "; ".join(said) or None


def without_overlap(
    dataset: Dataset, scored: Sequence[ScoredImages], *, folder: Path | None = None, progress: bool = True
) -> tuple[Dataset, Overlap]:
    """A training set without the rows that show images which are scored, and what was found.

    Args:
        dataset: in the column contract.
        scored: such as `hfcomp.evaluation.items.scored_images.benchmark_images(["sugarcrepe"])`.
        folder: where hashes are kept; by default `$HF_HOME/hfcomp/image_hashes`.
        progress: whether to show bars.

    Returns:
        The rows, those that are `unsure` among them, and what was found.

    Raises:
        TypeError: for a streamed set; `without_known_images` is for those.
    """
    found = find_overlap(dataset, scored, folder=folder, progress=progress)
    if not len(found.rows):
        return dataset, found
    return dataset.select(found.others()), found


def find_overlap(
    dataset: Dataset,
    scored: Sequence[ScoredImages],
    *,
    columns: Sequence[str] = COLUMNS,
    looks: bool = True,
    folder: Path | None = None,
    progress: bool = True,
) -> Overlap:
    """The rows of a training set that show images which are scored; see the module's words on what is the same.

    Args:
        dataset: in the column contract.
        scored: the evaluation's.
        columns: of images, those that training reads.
        looks: whether to compare pixels and looks too, for which images are decoded.
        folder: where hashes are kept; by default `$HF_HOME/hfcomp/image_hashes`.
        progress: whether to show bars.

    Raises:
        TypeError: for a streamed set.
    """
    if isinstance(dataset, IterableDataset):
        raise TypeError("the training set is streamed, and this reads all of it. Use without_known_images.")
    own = [training_column(dataset, name) for name in columns if name in dataset.column_names]
    theirs = scored_columns(scored)
    # Rows that a sure name decides are not hashed.
    matches = _by_name(own, theirs)
    hashed = _Hashing(folder or cache_folder("image_hashes"), looks, progress)
    # A COCO image and one without a sure name may be the same. Two COCO images with different numbers are not, which
    # was decided by name. A scene of the sandbox is never a photograph.
    for ours, others in COMPARED:
        here = hashed.of(own, ours, without=matches) if _has(theirs, others) else None
        if here is not None and len(here.records):
            _add(matches, _by_content(here, hashed.of(theirs, others, scored=True), looks))
    rows = sorted(matches)
    by_look = [row for row in rows if matches[row].way == "look"]
    # Images that are all alike, such as X-rays, match by look without being copies. Such rows are not dropped
    # silently.
    unsure = by_look if len(by_look) > max(MOST_BY_LOOK[0], MOST_BY_LOOK[1] * len(dataset)) else []
    rows = sorted(set(rows) - set(unsure))
    return Overlap(
        total=len(dataset),
        rows=np.array(rows, dtype=np.int64),
        scored=len({key for column in theirs for key in column.keys if key is not None}),
        shown=len({matches[row].target for row in rows}),
        ways={way: sum(matches[row].way == way for row in rows) for way in WAYS},
        examples=tuple(matches[row].words for row in rows[:EXAMPLES]),
        unreadable=tuple(hashed.unreadable),
        unsure=np.array(unsure, dtype=np.int64),
        unsure_examples=tuple(matches[row].words for row in unsure[:EXAMPLES]),
        alike=hashed.alike,
        looks=looks,
    )


@dataclass(frozen=True)
class _Match:
    row: int
    way: str
    target: Any
    words: str


def _add(matches: dict[int, _Match], more: Iterable[_Match]) -> None:
    # If a row matched twice, the more reliable match is kept.
    for match in more:
        if match.row not in matches or WAYS.index(match.way) < WAYS.index(matches[match.row].way):
            matches[match.row] = match


def _has(columns: Sequence[ImageColumn], kind: str) -> bool:
    return any(kind_of(name) == kind for column in columns for name in column.names)


def _by_name(own: Sequence[ImageColumn], theirs: Sequence[ImageColumn]) -> dict[int, _Match]:
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
    """Hashes of distinct images, where each is found, and which look like another one of their column."""

    records: NDArray[Any]
    places: list[list[tuple[ImageColumn, int]]]
    alike: NDArray[np.bool_]


class _Hashing:
    """Hashes of the images of some columns whose names are of one kind, computed on demand."""

    def __init__(self, folder: Path, looks: bool, progress: bool) -> None:
        self.images, self.files = HashStore(folder), HashStore(folder, FILE)
        self.looks, self.progress = looks, progress
        self.unreadable: list[str] = []
        self.alike = 0
        self._known: dict[tuple[int, str], _Hashes] = {}

    def of(
        self, columns: list[ImageColumn], kind: str, *, without: Container[int] = (), scored: bool = False
    ) -> _Hashes:
        # Images of one kind are needed in two of the three comparisons.
        if (id(columns), kind) not in self._known:
            found = self._hash(columns, kind, without)
            if scored and self.looks:
                _mark_alike(found)
                self.alike += int(found.alike.sum())
            self._known[id(columns), kind] = found
        return self._known[id(columns), kind]

    def _hash(self, columns: list[ImageColumn], kind: str, without: Container[int]) -> _Hashes:
        number: dict[bytes, int] = {}
        records: list[NDArray[Any]] = []
        places: list[list[tuple[ImageColumn, int]]] = []
        for column in columns:
            rows = [row for row, name in enumerate(column.names) if kind_of(name) == kind and row not in without]
            how = {"name": column.name, "progress": self.progress, "files": self.files, "decode": self.looks}
            found = hash_images(column.cells, rows, self.images, **how)
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
        stacked = np.stack(records) if records else np.zeros(0, dtype=RECORD)
        return _Hashes(stacked, places, np.zeros(len(records), dtype=bool))


def _mark_alike(hashes: _Hashes) -> None:
    # Not across columns: two benchmarks may well have copies of one photograph.
    of_column: dict[int, list[int]] = {}
    for number, places in enumerate(hashes.places):
        for column in {id(column) for column, _ in places}:
            of_column.setdefault(column, []).append(number)
    for numbers in of_column.values():
        hashes.alike[numbers] |= like_another(hashes.records[numbers])


def _by_content(own: _Hashes, theirs: _Hashes, looks: bool) -> Iterator[_Match]:
    # Scored images that look like each other, such as X-rays, would match any image of their kind by look.
    compared = np.flatnonzero(~theirs.alike) if looks else np.zeros(0, dtype=np.int64)
    nearest, bits = looks_alike(own.records, theirs.records[compared])
    files, pixels = (
        {record[field].tobytes(): place for place, record in reversed([*enumerate(theirs.records)])}
        for field in ("key", "pixels")
    )
    for number, record in enumerate(own.records):
        target, way = files.get(record["key"].tobytes()), "file"
        if target is None and looks:
            target, way = pixels.get(record["pixels"].tobytes()), "pixels"
        if target is None and nearest[number] >= 0:
            target, way = int(compared[nearest[number]]), "look"
        if target is None:
            continue
        other, place = theirs.places[target][0]
        identity = other.keys[place]
        differ = f", {bits[number]} of 256 bits differ" if way == "look" else ""
        for column, row in own.places[number]:
            yield _Match(row, way, identity, f"{column.called(row)} is {other.called(place)} by its {way}{differ}")


def without_known_images(
    dataset: IterableDataset,
    scored: Sequence[ScoredImages],
    *,
    columns: Sequence[str] = COLUMNS,
    refuse: bool = False,
) -> IterableDataset:
    """A streamed training set without the rows whose image can be identified as scored while reading.

    That is by name and by file: other copies of a photograph are not found. Rows that are left out are counted in the
    column `left_out_rows`; with `refuse` they raise when they are read. The images of the stream are undecoded.
    """
    keys: set[bytes | None] = set()
    for column in scored_columns(scored):
        rows = [row for row, name in enumerate(column.names) if kind_of(name) != SANDBOX]
        keys |= {_key(cell) for _, cell in each_cell(column.cells, rows)}
    known = _KnownImages(known_names(scored), frozenset(keys - {None}), refuse, tuple(columns))
    features = Features({**dataset.features, LEFT_OUT: Value("int64")})
    return dataset.map(known, batched=True, batch_size=STREAMED_AT_A_TIME, features=features)


def known_names(scored: Sequence[ScoredImages]) -> frozenset[Name]:
    return frozenset(name for column in scored_columns(scored) for name in column.names if name is not None)


def _key(cell: Any) -> bytes | None:
    try:
        return file_key(cell) if cell is not None else None
    except (OSError, TypeError):  # decoding reports the problem
        return None


@dataclass
class _KnownImages(RowsLeftOut):
    """Leaves rows out of a batch; travels to the workers that read."""

    names: frozenset[Name]
    keys: frozenset[bytes]
    refuse: bool
    columns: tuple[str, ...]

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        names = [self._scored_name(batch, row) for row in range(len(next(iter(batch.values()))))]
        called = next(filter(None, names), None)
        if called and self.refuse:
            raise ValueError(f"overlap: refuse: the stream holds {called}, an image that is scored. {FIX}")
        return self.select(batch, [name is None for name in names])

    def _scored_name(self, batch: dict[str, list[Any]], row: int) -> str | None:
        for column in (name for name in self.columns if name in batch):
            cell = batch[column][row]
            own = ("image_id", "source") if column == "image" else ("", "")
            said = [batch[name][row] if name in batch else None for name in own]
            name = photograph_name(*said, cell.get("path") if isinstance(cell, dict) else cell)
            if name in self.names:
                return " ".join(name)
            if _key(cell) in self.keys:
                return f"column '{column}', {' '.join(name) if name else 'a file'}"
        return None
