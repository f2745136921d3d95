"""Replay in a trainer: reads the replay rows and adds them to every global batch of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from torch.utils.data import Sampler

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.formats.image_files import Folders, with_image_files
from hfcomp.data.image_ids import IMAGE_ID, photographs
from hfcomp.data.loading import TrainingRows
from hfcomp.data.pair_table import has_lists
from hfcomp.data.row_checks import check_contents
from hfcomp.data.sampling.draws import DrawnCaptions, DrawnCrops, DrawnRows
from hfcomp.data.sampling.replay import (
    STREAMED,
    ReplayDraws,
    ReplayedRows,
    ReplayOrder,
    StreamedReplay,
    count_replay_rows,
)
from hfcomp.data.sampling.streaming import StreamedRows
from hfcomp.data.transforms import TransformedRows
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.config import sampling_seed

COLUMNS = ("image", "caption")


def check_replay(dataset: Any, args: Any) -> None:
    """Checks the replay dataset before a model is loaded."""
    if dataset is None and not args.replay_fraction:
        return
    if dataset is None:
        raise ValueError(
            f"replay_fraction={args.replay_fraction:g} needs rows to replay. Pass a replay_dataset (--replay_dataset)."
        )
    if not args.replay_fraction:
        raise ValueError("replay_dataset has no effect with replay_fraction=0. Set a fraction such as 0.5.")
    number = replay_rows(args, args.per_device_train_batch_size)
    if isinstance(dataset, IterableDataset):
        raise TypeError("replay_dataset is streamed, but must be in memory. Load it without streaming=True.")
    if not isinstance(dataset, Dataset):
        raise TypeError(f"replay_dataset: expected a datasets.Dataset, found {type(dataset).__name__}.")
    missing = [name for name in COLUMNS if name not in dataset.column_names]
    if missing:
        raise ValueError(
            f"replay_dataset has no column {missing[0]!r}; its columns are {', '.join(dataset.column_names)}. Rename: "
            f"dataset.rename_column('<its name>', {missing[0]!r}); in a recipe, use --replay_column_names "
            f"{missing[0]}='<its name>'."
        )
    if dataset.format["type"] == "custom":
        raise ValueError("replay_dataset has a transform. Pass it without the transform: dataset.with_format(None).")
    check_contents(dataset, COLUMNS, lists=args.draw_captions)
    ids = photographs(dataset) if IMAGE_ID in dataset.column_names else None
    ReplayDraws(len(dataset), ids, number=number, seed=0)  # raises


def add_replay(rows: Any, dataset: Any, args: Any) -> Any:
    """Adds the rows of a replay dataset to the task's training rows. `replay_order` samples them."""
    if dataset is None or rows is None:
        return rows
    if isinstance(rows, TransformedRows):
        raise ValueError(
            "replay_dataset with a train_dataset that has a transform: replay rows would not go through it. Pass the "
            "dataset without the transform: dataset.with_format(None)."
        )
    seed = sampling_seed(args)
    dataset = with_image_files(dataset.with_format(None), Folders((Path.cwd(),)))
    replay = TrainingRows(dataset, [*COLUMNS, IMAGE_ID])
    if args.draw_captions and has_lists(replay.features):
        replay = DrawnCaptions(replay, seed=seed)
    if not isinstance(rows, StreamedRows):
        return ReplayedRows(rows, replay, num_negatives=args.num_negatives)
    # In-memory task rows get their crops later, together with the replay rows; a stream draws crops while reading.
    if args.random_crop < 1:
        replay = DrawnCrops(replay, seed=seed, smallest=args.random_crop)
    number = replay_rows(args, args.per_device_train_batch_size)
    draws = ReplayDraws(len(replay), photographs(dataset), number=number, seed=seed)
    further = {LEFT_OUT: 0} if LEFT_OUT in rows.dataset.column_names else {}
    rows.replay = StreamedReplay(replay, draws, num_negatives=args.num_negatives, further=further)
    return rows


def find_replay(rows: Any) -> ReplayedRows | None:
    """Finds the rows of both datasets within rows that also draw captions or crops; None without replay."""
    while isinstance(rows, DrawnRows) and not isinstance(rows, ReplayedRows):
        rows = rows.rows
    return rows if isinstance(rows, ReplayedRows) else None


def replay_rows(args: Any, batch_size: int) -> int:
    """Returns the number of replay rows in a global batch with `batch_size` task rows per process."""
    return count_replay_rows(args.replay_fraction, batch_size * args.world_size, args.world_size)


def replay_order(trainer: Any, order: Sampler, rows: ReplayedRows) -> Sampler:
    """Adds replay rows to every global batch of the order of task rows."""
    args, size = trainer.args, train_batch_size(trainer)
    number, group_size = replay_rows(args, size), trainer.rows_together(args)
    seed = sampling_seed(args)
    draws = ReplayDraws(len(rows.replay), rows.replay_ids, number=number, seed=seed, group_size=group_size)
    batch_size = trainer.rows_per_batch(size * args.world_size)
    return ReplayOrder(order, draws, first=len(rows), batch_size=batch_size)


def replay_line(trainer: Any) -> str | None:
    """Returns the number of replayed rows, for the model card; None without replay."""
    replay = find_replay(trainer.train_dataset) or getattr(trainer.train_dataset, "replay", None)
    if replay is None:
        return None
    size = len(replay.replay if isinstance(replay, ReplayedRows) else replay.rows)
    number = replay_rows(trainer.args, train_batch_size(trainer))
    return f"{size:,} general rows, {number:,} per batch in addition to the task rows"


def batch_row_numbers(trainer: Any, rows: list[int]) -> dict[str, list[int]]:
    """Returns the row numbers of a batch. Replay rows are listed separately, by position in the replay dataset."""
    if not trainer.args.replay_fraction:
        return {"rows": rows}
    both = find_replay(trainer.train_dataset)
    # Replay rows are numbered after all task rows.
    first = STREAMED if both is None else len(both)
    return {
        "rows": [row for row in rows if row < first],
        "replay_rows": [row - first for row in rows if row >= first],
    }
