"""Replay: adds rows of a general dataset to every batch of task rows, to reduce forgetting."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from datasets import Dataset, Image, Value, concatenate_datasets

from hfcomp.data.image_ids import IMAGE_ID, photographs, streamed_id, with_image_ids
from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.draws import DrawnRows, EpochSampler
from hfcomp.data.sampling.orders import NoDuplicatesOrder, RowKeys

STREAMED = 2**40
"""Row number of the first replay row if the task dataset is streamed and therefore has no last row."""


class ReplayRow(int):
    """Number of a replay row in a batch. It prints as its place in the replay set, for error messages."""

    place: int

    def __new__(cls, place: int, first: int) -> ReplayRow:
        number = super().__new__(cls, first + place)
        number.place = place
        return number

    def __str__(self) -> str:
        return f"{self.place} of the replay set"


def count_replay_rows(fraction: float, batch_size: int, processes: int = 1) -> int:
    """Number of replay rows in a global batch: fraction r adds round(r N / (1 - r)) rows to the N task rows.

    N does not include neighbors. Raises ValueError if a fraction above 0 adds no row, or the rows cannot be divided
    equally among processes.
    """
    number = round(fraction * batch_size / (1 - fraction))
    if fraction and not number:
        raise ValueError(
            f"replay_fraction={fraction:g} adds no row to a batch of {batch_size}. Set it to "
            f"{1 / (1 + batch_size):.6g}, which adds one, or to 0."
        )
    if number % processes:
        more = number + processes - number % processes
        raise ValueError(
            f"replay_fraction={fraction:g} adds {number} rows to a batch of {batch_size}, which {processes} processes "
            f"cannot share equally. Set it to {more / (more + batch_size):.6g}, which adds {more}."
        )
    return number


def replay_places(items: int, number: int) -> list[bool]:
    """Whether each item of a global batch is a replay row: evenly spread, starting with a task item."""
    # Bresenham's line: if the number of processes divides both numbers, all shares have the same number of rows of
    # either kind. So the batch has the same order and content on any number of processes.
    total = items + number
    return [(place + 1) * number // total > place * number // total for place in range(total)]


def with_shared_image_ids(task: Dataset, replay: Dataset) -> tuple[Dataset, Dataset]:
    """Fills the column `image_id` of both datasets with each row's photograph, identified across both."""
    ids = photographs(concatenate_datasets([_pictures(task), _pictures(replay)]))
    return with_image_ids(task, ids[: len(task)]), with_image_ids(replay, ids[len(task) :])


def _pictures(dataset: Dataset) -> Dataset:
    # Both datasets are concatenated, so the types of their columns must agree.
    rows = dataset.with_format(None).select_columns([c for c in ("image", IMAGE_ID) if c in dataset.column_names])
    for name, feature in {"image": Image(decode=False), IMAGE_ID: Value("string")}.items():
        if name in rows.column_names and rows.features[name] != feature:
            rows = rows.cast_column(name, feature)
    return rows


class ReplayedRows(DrawnRows):
    """Task rows followed by replay rows: an index of at least `len` is a replay row.

    Length, columns and counts are those of the task, so epochs are planned for the task. A replay row has an image, a
    caption and no negatives. Every row has an `image_id`, identified across both datasets.
    """

    def __init__(self, rows: TrainingRows, replay: TrainingRows, *, num_negatives: int = 0) -> None:
        super().__init__(rows, seed=0)
        self.replay, self.num_negatives = replay, num_negatives
        self.dataset, general = with_shared_image_ids(rows.dataset, replay.dataset)
        self.ids, self.replay_ids = self.dataset[IMAGE_ID][:], general[IMAGE_ID][:]

    def column(self, name: str) -> list[Any]:
        return self.ids if name == IMAGE_ID else self.rows.column(name)

    def batch_column(self, name: str) -> list[Any]:
        blank = [[""] * self.num_negatives] * len(self.replay)
        return self.column(name) + (blank if name == "negative_captions" else self.replay.column(name))

    def __getitems__(self, indices: list[int | tuple[int, int]]) -> list[dict[str, Any]]:
        """Returns rows by index or `(index, epoch)`; for a replay row, the epoch is the pass over the replay set."""
        wanted = [index if isinstance(index, tuple) else (index, 0) for index in indices]
        task = [pair for pair in wanted if pair[0] < len(self)]
        replayed = [(index - len(self), epoch) for index, epoch in wanted if index >= len(self)]
        sources = (
            iter(_read_rows(self.rows, task)),
            iter(read_replay(self.replay, replayed, len(self), self.num_negatives)),
        )
        return [{**next(sources[index >= len(self)]), IMAGE_ID: self._image_id(index)} for index, _ in wanted]

    def _image_id(self, index: int) -> str | None:
        return self.ids[index] if index < len(self) else self.replay_ids[index - len(self)]


def read_replay(
    rows: TrainingRows, wanted: Sequence[tuple[int, int]], first: int, num_negatives: int
) -> list[dict[str, Any]]:
    blank = {"negative_captions": [""] * num_negatives} if num_negatives else {}
    return [{**row, **blank, "row": ReplayRow(row["row"], first)} for row in _read_rows(rows, wanted)]


def _read_rows(rows: TrainingRows, wanted: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    if not wanted:
        return []
    return rows.__getitems__(list(wanted) if isinstance(rows, DrawnRows) else [index for index, _ in wanted])


class _Shuffled(EpochSampler):
    """All rows in random order, different in each pass."""

    def __init__(self, rows: int, seed: int) -> None:
        self.rows, self.seed = rows, seed

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        return iter(random.Random(f"replay {self.seed} {self.epoch}").sample(range(self.rows), self.rows))


class ReplayDraws:
    """Draws the replay rows of each global batch: one pass over the dataset after another, each in its own order.

    The draws depend only on `seed` and the number of the batch since the start of training. No image occurs twice in a
    batch: a row waits for the next batch, and at the end of a pass another row is repeated instead. Rows that do not
    fill a batch at the end of a pass are left out of it.

    Raises:
        ValueError: If there are fewer images than a batch needs.
    """

    def __init__(
        self, rows: int, ids: Sequence[str | None] | None, *, number: int, seed: int, group_size: int = 1
    ) -> None:
        # Each row without an id counts as a separate image.
        images = rows if ids is None else len({*ids} - {None}) + list(ids).count(None)
        if images < number:
            raise ValueError(
                f"the replay set shows {images} images, fewer than the {number} replay rows of a batch. Lower "
                "replay_fraction, or use a larger replay_dataset."
            )
        self.number, self.group_size, self.per_pass = number, group_size, rows // number
        keys = [RowKeys((), ())] * rows if images == rows else RowKeys.from_columns([None] * rows, ids)
        self._passes = NoDuplicatesOrder(_Shuffled(rows, seed), keys, batch_size=number, seed=seed)

    def batch_rows(self, batch: int) -> list[tuple[int, int]]:
        # This depends only on the number of the batch, so a resumed run needs no state to continue.
        epoch, place = divmod(batch, self.per_pass)
        rows = self._passes.plan(epoch)[place * self.number : (place + 1) * self.number]
        return [(row, epoch) for row in rows]

    def mix(self, task: Sequence[Any], replayed: Sequence[Any]) -> Iterator[Any]:
        """Yields the rows of a global batch, with replay rows among task rows according to `replay_places`."""
        task_rows, replay_rows = iter(task), iter(replayed)
        for is_replay in replay_places(len(task) // self.group_size, len(replayed)):
            yield from islice(replay_rows, 1) if is_replay else islice(task_rows, self.group_size)


class ReplayOrder(EpochSampler):
    """An order of rows with replay rows in every global batch, for `ReplayedRows`."""

    def __init__(self, order: torch.utils.data.Sampler, draws: ReplayDraws, *, first: int, batch_size: int) -> None:
        self.order, self.draws, self.first, self.batch_size = order, draws, first, batch_size

    def __len__(self) -> int:
        return len(self.order) // self.batch_size * (self.batch_size + self.draws.number)

    def __iter__(self) -> Iterator[Any]:
        rows, batches = iter(self.order), len(self.order) // self.batch_size
        start = self.epoch * batches
        for batch in range(start, start + batches):
            replayed = [(self.first + row, epoch) for row, epoch in self.draws.batch_rows(batch)]
            yield from self.draws.mix(list(islice(rows, self.batch_size)), replayed)


class StreamedReplay:
    """Replay rows for a streamed task dataset; the replay set is loaded as a whole."""

    def __init__(
        self, rows: TrainingRows, draws: ReplayDraws, *, num_negatives: int, further: dict[str, Any] | None = None
    ) -> None:
        self.rows, self.draws, self.num_negatives, self.further = rows, draws, num_negatives, further or {}

    def with_rows(self, task: Sequence[dict[str, Any]], batch: int, *, skipped: bool) -> Iterator[dict[str, Any]]:
        """Adds the replay rows to a global batch; in a skipped batch, they are copies of a skipped row."""
        if skipped:
            return self.draws.mix(task, [task[0]] * self.draws.number)
        rows = read_replay(self.rows, self.draws.batch_rows(batch), STREAMED, self.num_negatives)
        return self.draws.mix(task, [{**row, **self.further, IMAGE_ID: streamed_id(row)} for row in rows])
