"""Training rows that are read during training, for a set that is too large to load or should not be copied."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Any, NoReturn

import torch
from datasets import IterableDataset
from torch.utils.data import get_worker_info

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.image_ids import IMAGE_ID, streamed_id
from hfcomp.data.loading import undecoded
from hfcomp.data.sampling.draws import CROP_BOX, columns_by_caption, draw_box, with_drawn_caption
from hfcomp.data.sampling.replay import StreamedReplay
from hfcomp.data.urls import add_repositories

SKIPPED = "skipped"
"""In a row of a stream: that it belongs to a batch which is passed over."""


def check_names(dataset: Any) -> None:
    if dataset.column_names is None:
        raise ValueError(
            "the streaming dataset does not declare its columns, as after map(). Declare them: map(..., "
            "features=datasets.Features({...})), or dataset.cast(features)."
        )


class StreamedRows(torch.utils.data.IterableDataset):
    """Rows of a streaming dataset, images undecoded, endlessly: after its last row the set starts again.

    Rows are drawn from a buffer, in another order in each pass. Only whole batches are given: what a pass has over is
    left out of it, so that no batch holds a row twice. Every process reads the whole stream and takes its part of each
    batch, so that the batches are those of one process; workers of a `DataLoader` share the shards of a process, and
    each makes batches of its own. A resumed run re-reads earlier rows, undecoded, and continues with the next batch.

    Args:
        dataset: a streaming `datasets.IterableDataset` that names its columns.
        columns: the columns to read.
        batch_size: rows over all processes.
        seed: of the order.
        buffer: rows that one is drawn from; 1 keeps the order.
        draw_captions: whether a row has a list of captions, one of which is drawn by seed and number of the row.
        random_crop: share of the area that a crop, drawn likewise, keeps at least; 1 draws none.

    Attributes:
        replay: replay rows that are added to each batch, if any.
        skip_batches: that a resumed run passes over: their rows are nothing but their number and `SKIPPED`, for
            [`SkippingCollator`]. With more workers than shards, whose turns are not known, they are whole.
        has_image_ids: whether rows have an `image_id`: the stream's own, else one made from the image.

    Raises:
        ValueError: when read, for a pass that has fewer rows than a batch.
    """

    def __init__(
        self,
        dataset: IterableDataset,
        columns: list[str],
        *,
        batch_size: int,
        seed: int,
        buffer: int,
        draw_captions: bool = False,
        random_crop: float = 1.0,
    ) -> None:
        kept = [name for name in (*columns, LEFT_OUT) if name in dataset.column_names]
        # Columns are selected first: the buffer below holds thousands of rows, which should not carry unread columns.
        self.dataset = undecoded(dataset.select_columns(kept))
        if buffer > 1:
            self.dataset = self.dataset.shuffle(seed=seed, buffer_size=buffer)
        self.has_image_ids = bool({IMAGE_ID, "image"} & {*self.dataset.column_names})
        self.batch_size, self.seed = batch_size, seed
        self.draw_captions, self.random_crop = draw_captions, random_crop
        self.replay: StreamedReplay | None = None
        self.skip_batches = 0

    def column(self, name: str) -> NoReturn:
        """Nothing: a stream has no column of all rows.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"this trainer reads the column {name!r} of all rows before the first step, and the dataset is streamed. "
            "Load it without streaming."
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows, each with a number under `row`, counted as they are read."""
        # Registered here and not on loading: rows are decoded in the process that reads them, which may be a worker.
        add_repositories(self.dataset._token_per_repo_id)
        # Selecting makes a dataset of its own: workers share the number of the pass, and two that increase it at the
        # same time would do so twice.
        dataset = self.dataset.select_columns(self.dataset.column_names)
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        read = made = 0
        skip = self._batches_to_skip(worker)
        for epoch in count():
            dataset.set_epoch(epoch)
            # What was in `batch` at the end of a pass is dropped. Filled up with rows of the next pass, it could hold
            # a row twice, and the row would be its own negative.
            rows = batches = 0
            batch: list[dict[str, Any]] = []
            for row in dataset:
                # Worker w of W numbers its rows w, w + W, ..., so the numbers are distinct without communication. The
                # draws for a row depend on this number.
                number = first + step * (read + rows)
                batch.append({"row": number, SKIPPED: True} if skip else self._drawn({"row": number, **row}))
                rows += 1
                if len(batch) == self.batch_size:
                    if self.replay is None:
                        yield from batch
                    else:
                        yield from self.replay.with_rows(batch, first + step * made, skipped=skip > 0)
                    batch, batches, skip, made = [], batches + 1, max(0, skip - 1), made + 1
            if not rows and worker:
                return  # more workers than shards
            if not batches:
                raise ValueError(self._too_few(rows, worker))
            read += rows

    def _batches_to_skip(self, worker: Any) -> int:
        if worker is None:
            return self.skip_batches
        # A `DataLoader` takes a batch from each worker in turn, so worker w made the batches w, w + W, ... But a
        # worker without a shard drops out at the first turn, and after that the turns are not known, so nothing is
        # skipped.
        if worker.num_workers > self.dataset.num_shards:
            return 0
        return max(0, -(-(self.skip_batches - worker.id) // worker.num_workers))

    def _drawn(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.has_image_ids:
            row[IMAGE_ID] = streamed_id(row)
        if self.random_crop < 1:
            row[CROP_BOX] = draw_box(self.random_crop, random.Random(f"crops {self.seed} {row['row']}"))
        if not self.draw_captions:
            return row
        columns = columns_by_caption(self.dataset.features or {})
        return with_drawn_caption(row, columns, random.Random(f"captions {self.seed} {row['row']}"))

    def _too_few(self, rows: int, worker: Any) -> str:
        where = f"the shards of worker {worker.id} of {worker.num_workers} have" if worker else "the streamed set has"
        way_out = "Lower batch_size or dataloader_num_workers." if worker else "Lower batch_size."
        return f"{where} {rows} rows, fewer than one batch of {self.batch_size} over all processes. {way_out}"


class SkippingCollator:
    """A collator for `StreamedRows`: of a batch that is passed over it gives the numbers of its rows only."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        # No image of a skipped batch is decoded, which is what makes a resume fast.
        if rows[0].get(SKIPPED):
            return {"row": torch.tensor([row["row"] for row in rows])}
        return self.collator(rows)
