"""Replay in a trainer: reads its rows, and adds them to every global batch of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from torch.utils.data import Sampler

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.epoch_draws import DrawnCaptions, DrawnCrops
from hfcomp.data.formats.image_files import Folders, with_image_files
from hfcomp.data.image_ids import IMAGE_ID, photographs
from hfcomp.data.loading import TrainingRows
from hfcomp.data.pair_table import has_lists
from hfcomp.data.replay import (
    STREAMED,
    ReplayDraws,
    ReplayedRows,
    ReplayOrder,
    StreamedReplay,
    count_replay_rows,
)
from hfcomp.data.row_checks import check_contents
from hfcomp.data.streaming import StreamedRows
from hfcomp.data.transforms import TransformedRows
from hfcomp.trainers._support.own_order import seed_of_order

COLUMNS = ("image", "caption")


def check_replay(dataset: Any, args: Any) -> None:
    """Checks a replay set before a model is loaded.

    Args:
        dataset: In the column contract; None without replay.
        args: Config of the trainer.

    Raises:
        ValueError: for a set without a fraction or the reverse, a missing column, a row without caption or image, or
            fewer images than a batch needs.
        TypeError: for anything but a `datasets.Dataset`.
    """
    if dataset is None and not args.replay_fraction:
        return
    if dataset is None:
        raise ValueError(
            f"replay_fraction={args.replay_fraction:g} needs rows to replay. Pass replay_dataset (--replay_dataset)."
        )
    if not args.replay_fraction:
        raise ValueError("replay_dataset has no effect with replay_fraction=0. Set a fraction such as 0.5.")
    number = count_replay_rows(
        args.replay_fraction, args.per_device_train_batch_size * args.world_size, args.world_size
    )
    if isinstance(dataset, IterableDataset):
        raise TypeError("replay_dataset is streamed: it must fit in memory. Load it without streaming=True.")
    if not isinstance(dataset, Dataset):
        raise TypeError(f"replay_dataset: expected a datasets.Dataset, found {type(dataset).__name__}.")
    missing = [name for name in COLUMNS if name not in dataset.column_names]
    if missing:
        raise ValueError(
            f"replay_dataset has no column {missing[0]!r}; it has: {', '.join(dataset.column_names)}. Rename it: "
            f"dataset.rename_column('<its name>', {missing[0]!r}); in a recipe --replay_column_names "
            f"{missing[0]}='<its name>'."
        )
    if dataset.format["type"] == "custom":
        raise ValueError("replay_dataset has a transform. Pass it without: dataset.with_format(None).")
    check_contents(dataset, COLUMNS, lists=args.draw_captions)
    ids = photographs(dataset) if IMAGE_ID in dataset.column_names else None
    ReplayDraws(len(dataset), ids, number=number, seed=0)  # raises


class Replay:
    """Adds replay rows to the batches of a trainer."""

    _replay: ReplayedRows | None = None
    _replay_size = 0

    def with_replay(self, rows: Any, dataset: Any, args: Any) -> Any:
        """Training rows of the task with the rows of a replay set, which the order of `replay_order` draws.

        Args:
            rows: Training rows or a stream; None without a training set.
            dataset: The replay set, or None.
            args: Config of the trainer.
        """
        if dataset is None or rows is None:
            return rows
        if isinstance(rows, TransformedRows):
            raise ValueError(
                "replay_dataset with a train_dataset that has a transform: replay rows would not pass it. Pass "
                "the data set without the transform: dataset.with_format(None)."
            )
        seed = seed_of_order(args)
        dataset = with_image_files(dataset.with_format(None), Folders((Path.cwd(),)))
        replay = TrainingRows(dataset, [*COLUMNS, IMAGE_ID])
        self._replay_size = len(replay)
        if args.draw_captions and has_lists(replay.features):
            replay = DrawnCaptions(replay, seed=seed)
        if not isinstance(rows, StreamedRows):
            self._replay = ReplayedRows(rows, replay, num_negatives=args.num_negatives)
            return self._replay
        if args.random_crop < 1:
            replay = DrawnCrops(replay, seed=seed, smallest=args.random_crop)
        ids = photographs(dataset)
        draws = ReplayDraws(len(replay), ids, number=self.replay_rows(args), seed=seed)
        further = {LEFT_OUT: 0} if LEFT_OUT in rows.dataset.column_names else {}
        rows.replay = StreamedReplay(replay, draws, num_negatives=args.num_negatives, further=further)
        return rows

    def replay_rows(self, args: Any, batch_size: int | None = None) -> int:
        """Number of replay rows in a global batch.

        Args:
            args: Config of the trainer.
            batch_size: Rows of the task on each process. Defaults to `per_device_train_batch_size`.
        """
        size = args.per_device_train_batch_size if batch_size is None else batch_size
        return count_replay_rows(args.replay_fraction, size * args.world_size, args.world_size)

    def all_rows_per_batch(self, batch_size: int) -> int:
        """Rows of a training batch on each process, with those that rows bring along and replay rows.

        Args:
            batch_size: Rows of the task on each process, `per_device_train_batch_size`.
        """
        return self.rows_per_batch(batch_size) + self.replay_rows(self.args, batch_size) // self.args.world_size

    def replay_order(self, order: Sampler) -> Sampler:
        """The order of the task's rows with replay rows in every global batch.

        Args:
            order: With `set_epoch` if epochs differ.
        """
        view, size = self._replay, self._train_batch_size
        number, together = self.replay_rows(self.args, size), self.rows_together(self.args)
        draws = ReplayDraws(
            len(view.replay), view.replay_ids, number=number, seed=seed_of_order(self.args), group_size=together
        )
        batch_size = self.rows_per_batch(size * self.args.world_size)
        return ReplayOrder(order, draws, first=len(view), batch_size=batch_size)

    def replay_line(self) -> str | None:
        """How many rows are replayed, for the model card; None without replay."""
        if not self._replay_size:
            return None
        number = self.replay_rows(self.args, self._train_batch_size)
        return f"{self._replay_size:,} general rows, {number:,} in each batch beside those of the task"

    def named_rows(self, rows: list[int]) -> dict[str, list[int]]:
        """Row numbers of a batch, those of replay rows apart and as places in the replay set.

        Args:
            rows: As the batch has them.
        """
        if not self.args.replay_fraction:
            return {"rows": rows}
        first = STREAMED if self._replay is None else len(self._replay)
        return {
            "rows": [row for row in rows if row < first],
            "replay_rows": [row - first for row in rows if row >= first],
        }
