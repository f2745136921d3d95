"""Overlap guard: finds rows of a training set that show images which an evaluation scores.

A training image and a scored image are the same if one of these criteria says so, tried in order:

1. **name**: both have the same COCO number or the same hfcomp sandbox id (`photograph_name`). In these two sources,
   different names are different images, and no file must be read. Equal names of any other kind prove nothing.
2. **file**: the bytes are equal (for URLs and members of archives, the names).
3. **pixels**: the decoded pixels are equal.
4. **look**: the same photograph re-saved, resized or slightly cropped (`image_hashes`). This criterion is not used for
   scored images that look like another image of their column, or for sandbox scenes. If more rows than `MOST_BY_LOOK`
   match only by look, either images of this kind look alike or the dataset has many copies. The two cases cannot be
   distinguished, so these rows are `unsure`.

A photograph that was mirrored, or cropped by a tenth or more, and has another name is not detected.
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
    "Exclude such rows with --overlap exclude (the default), train on them with --overlap allow, or choose another "
    "dataset, dataset_filter or evaluation."
)
MOST_BY_LOOK = (20, 0.02)  # number and share of rows: if both are exceeded, look is not trusted
COMPARED = ((OPEN, OPEN), (OPEN, COCO), (COCO, OPEN))  # kinds of names on both sides that are compared by content


@dataclass(frozen=True)
class Overlap:
    """Training rows that show scored images.

    Attributes:
        total: Number of rows in the training set.
        rows: Indices `[k]` of rows that show scored images, in order.
        scored: Number of scored images, deduplicated by names, paths and ids.
        shown: Number of scored images that these rows show.
        ways: Number of rows by the first criterion of `WAYS` that matched.
        examples: Descriptions of the first rows.
        unreadable: Problem of each image that could not be decoded and has no reliable name.
        unsure: Indices `[u]` of further rows that look like a scored image but are too many to be trusted.
        unsure_examples: Descriptions of the first unsure rows.
        alike: Number of scored images that were not compared by look, because they look like another one.
        looks: Whether pixels and looks were compared, in addition to names and files.
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
        by = "" if self.looks else ", compared only by name and file"
        if not len(self.rows):
            return f"none of {self.total:,} training rows shows one of the {self.scored:,} scored images{by}"
        how = ", ".join(f"{count:,} by {way}" for way, count in self.ways.items() if count)
        return (
            f"{len(self.rows):,} of {self.total:,} training rows show {self.shown:,} of the {self.scored:,} scored "
            f"images{by} ({how}; {'; '.join(self.examples)})"
        )

    def others(self) -> NDArray[np.int64]:
        """Returns the indices of all other rows, in order."""
        return np.setdiff1d(np.arange(self.total), self.rows)

    def doubt(self) -> str | None:
        """Returns a sentence about unsure rows, if any."""
        if not len(self.unsure):
            return None
        return (
            f"{len(self.unsure):,} of {self.total:,} training rows look like a scored image, too many to distinguish "
            f"copies from images that merely look alike ({'; '.join(self.unsure_examples)})"
        )

    def remark(self) -> str | None:
        """Returns a sentence about images that could not be compared, if any."""
        sentences = []
        if self.unreadable:
            count = f"{len(self.unreadable):,} images cannot be read and were not compared"
            sentences.append(f"{count}; the first: {self.unreadable[0]}")
        if self.alike:
            sentences.append(
                f"{self.alike:,} scored images look like another scored image and were compared only by name, file "
                "and pixels"
            )
        return "; ".join(sentences) or None


def without_overlap(
    dataset: Dataset, scored: Sequence[ScoredImages], *, folder: Path | None = None, progress: bool = True
) -> tuple[Dataset, Overlap]:
    """Removes the rows of a training set that show scored images.

    Args:
        dataset: Training set in the column contract.
        scored: Scored images, such as
            `hfcomp.evaluation.items.scored_images.benchmark_images(["sugarcrepe"])`.
        folder: Folder for hashes. Defaults to `$HF_HOME/hfcomp/image_hashes`.
        progress: Whether to show progress bars.

    Returns:
        The remaining rows, including `unsure` ones, and the overlap.

    Raises:
        TypeError: If the dataset is streamed; use `without_known_images` instead.
    """
    overlap = find_overlap(dataset, scored, folder=folder, progress=progress)
    if not len(overlap.rows):
        return dataset, overlap
    return dataset.select(overlap.others()), overlap


def find_overlap(
    dataset: Dataset,
    scored: Sequence[ScoredImages],
    *,
    columns: Sequence[str] = COLUMNS,
    looks: bool = True,
    folder: Path | None = None,
    progress: bool = True,
) -> Overlap:
    """Finds the rows of a training set that show scored images; the module docstring lists the criteria.

    Args:
        dataset: Training set in the column contract.
        scored: Images that the evaluation scores.
        columns: Image columns that training reads.
        looks: Whether to compare pixels and looks too, which requires decoding the images.
        folder: Folder for hashes. Defaults to `$HF_HOME/hfcomp/image_hashes`.
        progress: Whether to show progress bars.

    Raises:
        TypeError: If the dataset is streamed.
    """
    if isinstance(dataset, IterableDataset):
        raise TypeError(
            "the training set is streamed, but find_overlap reads the whole dataset. Use without_known_images."
        )
    own = [training_column(dataset, name) for name in columns if name in dataset.column_names]
    theirs = scored_columns(scored)
    # Rows with a reliable name are not hashed.
    matches = _by_name(own, theirs)
    hashed = _Hashing(folder or cache_folder("image_hashes"), looks, progress)
    # A COCO image and an image without a reliable name may be the same. Two COCO images with different numbers are
    # not, which their names have already decided. A sandbox scene is never a photograph.
    for ours, others in COMPARED:
        here = hashed.of(own, ours, without=matches) if _has(theirs, others) else None
        if here is not None and len(here.records):
            _add(matches, _by_content(here, hashed.of(theirs, others, scored=True), looks))
    rows = sorted(matches)
    by_look = [row for row in rows if matches[row].way == "look"]
    # Images of one kind, such as X-rays, match by look without being copies. Such rows are not dropped silently.
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
    # If a row matched twice, keep the more reliable match.
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
                _add(matches, [_Match(row, "name", name, f"{column.describe(row)} is {other.describe(place)}")])
    return matches


@dataclass(frozen=True)
class _Hashes:
    """Hashes of distinct images, their places, and whether each looks like another image of its column."""

    records: NDArray[Any]
    places: list[list[tuple[ImageColumn, int]]]
    alike: NDArray[np.bool_]


class _Hashing:
    """Computes on demand the hashes of a group of columns, for images with one kind of name."""

    def __init__(self, folder: Path, looks: bool, progress: bool) -> None:
        self.images, self.files = HashStore(folder), HashStore(folder, FILE)
        self.looks, self.progress = looks, progress
        self.unreadable: list[str] = []
        self.alike = 0
        self._known: dict[tuple[int, str], _Hashes] = {}

    def of(
        self, columns: list[ImageColumn], kind: str, *, without: Container[int] = (), scored: bool = False
    ) -> _Hashes:
        # Cached, because images of one kind are needed in two of the three comparisons.
        if (id(columns), kind) not in self._known:
            hashes = self._hash(columns, kind, without)
            if scored and self.looks:
                _mark_alike(hashes)
                self.alike += int(hashes.alike.sum())
            self._known[id(columns), kind] = hashes
        return self._known[id(columns), kind]

    def _hash(self, columns: list[ImageColumn], kind: str, without: Container[int]) -> _Hashes:
        number: dict[bytes, int] = {}
        records: list[NDArray[Any]] = []
        places: list[list[tuple[ImageColumn, int]]] = []
        for column in columns:
            rows = [row for row, name in enumerate(column.names) if kind_of(name) == kind and row not in without]
            how = {"name": column.name, "progress": self.progress, "files": self.files, "decode": self.looks}
            hashed = hash_images(column.cells, rows, self.images, **how)
            self.unreadable += hashed.unreadable
            for row, index in zip(rows, hashed.index, strict=True):
                if index < 0:
                    continue
                key = hashed.records[index]["key"].tobytes()
                if key not in number:
                    number[key] = len(records)
                    records.append(hashed.records[index])
                    places.append([])
                places[number[key]].append((column, row))
        stacked = np.stack(records) if records else np.zeros(0, dtype=RECORD)
        return _Hashes(stacked, places, np.zeros(len(records), dtype=bool))


def _mark_alike(hashes: _Hashes) -> None:
    # Not across columns, because two benchmarks may contain copies of one photograph.
    numbers_by_column: dict[int, list[int]] = {}
    for number, places in enumerate(hashes.places):
        for column in {id(column) for column, _ in places}:
            numbers_by_column.setdefault(column, []).append(number)
    for numbers in numbers_by_column.values():
        hashes.alike[numbers] |= like_another(hashes.records[numbers])


def _by_content(own: _Hashes, theirs: _Hashes, looks: bool) -> Iterator[_Match]:
    # Scored images that look like each other, such as X-rays, would match every image of their kind by look.
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
            yield _Match(row, way, identity, f"{column.describe(row)} is {other.describe(place)} by its {way}{differ}")


def without_known_images(
    dataset: IterableDataset,
    scored: Sequence[ScoredImages],
    *,
    columns: Sequence[str] = COLUMNS,
    refuse: bool = False,
) -> IterableDataset:
    """Removes rows from a streamed training set if their image is recognized as scored while reading.

    Images are recognized by name and by file; other copies of a photograph are not detected. Removed rows are counted
    in the column `left_out_rows`. With `refuse`, reading such a row raises an error. The images must be undecoded.
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
    except (OSError, TypeError):  # decoding will report the problem
        return None


@dataclass
class _KnownImages(RowsLeftOut):
    """Drops rows with known images from a batch; pickled to the reading workers."""

    names: frozenset[Name]
    keys: frozenset[bytes]
    refuse: bool
    columns: tuple[str, ...]

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        names = [self._scored_name(batch, row) for row in range(len(next(iter(batch.values()))))]
        name = next(filter(None, names), None)
        if name and self.refuse:
            raise ValueError(
                f"overlap: the stream contains the scored image {name}, and overlap is set to refuse. {FIX}"
            )
        return self.select(batch, [name is None for name in names])

    def _scored_name(self, batch: dict[str, list[Any]], row: int) -> str | None:
        for column in (name for name in self.columns if name in batch):
            cell = batch[column][row]
            own = ("image_id", "source") if column == "image" else ("", "")
            values = [batch[name][row] if name in batch else None for name in own]
            name = photograph_name(*values, cell.get("path") if isinstance(cell, dict) else cell)
            if name in self.names:
                return " ".join(name)
            if _key(cell) in self.keys:
                return f"column '{column}', {' '.join(name) if name else 'a file'}"
        return None
