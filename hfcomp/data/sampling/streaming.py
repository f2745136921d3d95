"""Training rows that are read during training, for datasets that are too large to load or should not be copied."""

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
"""Field that marks a streamed row as part of a skipped batch."""


def check_names(dataset: Any) -> None:
    if dataset.column_names is None:
        raise ValueError(
            "the streaming dataset does not declare its columns, for example after map(). Declare them with map(..., "
            "features=datasets.Features({...})) or dataset.cast(features)."
        )


class StreamedRows(torch.utils.data.IterableDataset):
    """Endless rows of a streaming dataset, with undecoded images: after its last row, the dataset starts again.

    Rows are drawn from a buffer, in a different order in each pass. Only whole batches are returned: the leftover rows
    of a pass are dropped, so no batch contains a row twice. Every process reads the whole stream and takes its part of
    each batch, so the batches are the same as with one process. `DataLoader` workers share the shards of a process,
    and each makes its own batches. A resumed run re-reads earlier rows, undecoded, and continues with the next batch.

    Args:
        dataset: A streaming `datasets.IterableDataset` that declares its columns.
        columns: Columns to read.
        batch_size: Rows per batch over all processes.
        seed: Random seed of the order.
        buffer: Number of rows from which each row is drawn; 1 keeps the order.
        draw_captions: Whether rows have lists of captions, one of which is drawn by seed and row number.
        random_crop: Minimum share of the area that a crop, also drawn by seed and row number, keeps; 1 draws none.

    Attributes:
        replay: Replay rows added to each batch, if any.
        skip_batches: Number of batches that a resumed run skips. Their rows contain only their number and `SKIPPED`,
            for [`SkippingCollator`]. With more workers than shards, the turns are unknown and rows are complete.
        has_image_ids: Whether rows have an `image_id`: the stream's own, otherwise one derived from the image.

    Raises:
        ValueError: When read, if a pass has fewer rows than a batch.
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
        # Select columns first, so the thousands of rows in the buffer below do not carry unread columns.
        self.dataset = undecoded(dataset.select_columns(kept))
        if buffer > 1:
            self.dataset = self.dataset.shuffle(seed=seed, buffer_size=buffer)
        self.has_image_ids = bool({IMAGE_ID, "image"} & {*self.dataset.column_names})
        self.batch_size, self.seed = batch_size, seed
        self.draw_captions, self.random_crop = draw_captions, random_crop
        self.replay: StreamedReplay | None = None
        self.skip_batches = 0

    def column(self, name: str) -> NoReturn:
        """Not supported: a stream has no column of all rows.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"this trainer reads the column {name!r} of all rows before the first step, but the dataset is streamed. "
            "Load it without streaming."
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields rows, each with a number under `row`, counted while they are read."""
        # Register here rather than on loading, because rows are decoded in the process that reads them, possibly a
        # worker.
        add_repositories(self.dataset._token_per_repo_id)
        # Selecting makes a separate dataset: workers share the number of the pass, and if two of them increased it at
        # the same time, it would increase twice.
        dataset = self.dataset.select_columns(self.dataset.column_names)
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        read = made = 0
        skip = self._batches_to_skip(worker)
        for epoch in count():
            dataset.set_epoch(epoch)
            # An unfinished `batch` at the end of a pass is dropped. Filled with rows of the next pass, it could
            # contain a row twice, and the row would be its own negative.
            rows = batches = 0
            batch: list[dict[str, Any]] = []
            for row in dataset:
                # Worker w of W numbers its rows w, w + W, ..., so numbers are distinct without communication. The
                # draws for a row depend on its number.
                number = first + step * (read + rows)
                batch.append({"row": number, SKIPPED: True} if skip else self._draw({"row": number, **row}))
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
        # A `DataLoader` takes a batch from each worker in turn, so worker w made batches w, w + W, ... But a worker
        # without a shard drops out at the first turn. After that the turns are unknown, so nothing is skipped.
        if worker.num_workers > self.dataset.num_shards:
            return 0
        return max(0, -(-(self.skip_batches - worker.id) // worker.num_workers))

    def _draw(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.has_image_ids:
            row[IMAGE_ID] = streamed_id(row)
        if self.random_crop < 1:
            row[CROP_BOX] = draw_box(self.random_crop, random.Random(f"crops {self.seed} {row['row']}"))
        if not self.draw_captions:
            return row
        columns = columns_by_caption(self.dataset.features or {})
        return with_drawn_caption(row, columns, random.Random(f"captions {self.seed} {row['row']}"))

    def _too_few(self, rows: int, worker: Any) -> str:
        shards = f"the shards of worker {worker.id} of {worker.num_workers} have" if worker else ""
        where = shards or "the streamed dataset has"
        advice = "Lower batch_size or dataloader_num_workers." if worker else "Lower batch_size."
        return f"{where} {rows} rows, fewer than one batch of {self.batch_size} over all processes. {advice}"


class SkippingCollator:
    """Collator for `StreamedRows`: for a skipped batch, it returns only the row numbers."""

    def __init__(self, collator: Any) -> None:
        self.collator = collator

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        # Images of skipped batches are not decoded, which makes resuming fast.
        if rows[0].get(SKIPPED):
            return {"row": torch.tensor([row["row"] for row in rows])}
        return self.collator(rows)
