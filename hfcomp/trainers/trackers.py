"""Experiment trackers: TensorBoard, Weights & Biases and Trackio runs, as requested with transformers' `report_to`.

transformers sends the training log to them. This module raises for a tracker that is not installed before anything is
trained, makes each arm of a study a run of its own, and sends pictures and tables to all trackers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback

from hfcomp.data.images import decode_image
from hfcomp.reading import nearest
from hfcomp.trainers._support.transformers_internals import KNOWN_TRACKERS

TENSORBOARD, WANDB, TRACKIO = "tensorboard", "wandb", "trackio"
TRACKERS = (TENSORBOARD, WANDB, TRACKIO)
"""Trackers that get one run per arm, pictures and tables. Other trackers of transformers get only the log."""
TENSORBOARD_FOLDER = "tensorboard"
PROJECT = "hfcomp"
_UNSET_PROJECT = "huggingface"  # transformers' default for `project`
Pictures = Mapping[str, bytes]
Table = tuple[Sequence[str], list[list]]  # header and rows


@dataclass(frozen=True)
class TrackedRun:
    """Identity of a training run in the trackers.

    Attributes:
        project: Project in Trackio, and in Weights & Biases unless WANDB_PROJECT is set.
        group: Group of runs that belong together. TensorBoard and Trackio show it as a prefix of the run's name.
        name: Name of this run within the group.
        folder: Folder for TensorBoard's files; its subfolders are TensorBoard's runs.
        pictures: Function that returns the PNG files to send at the start, by name. Called only if a tracker is used.
    """

    project: str
    group: str
    name: str
    folder: Path
    pictures: Callable[[], Pictures] = dict

    @property
    def full_name(self) -> str:
        """Group and name, the name of the run in trackers without groups."""
        return f"{self.group}/{self.name}"

    def with_name(self, name: str) -> TrackedRun:
        """Returns another run of the group, without pictures."""
        return replace(self, name=name, pictures=dict)

    def arguments(self) -> dict[str, str]:
        return {"run_name": self.full_name, "project": self.project}


def check_trackers(names: Iterable[str]) -> None:
    """Raises for trackers that transformers does not support or that are not installed."""
    for name in names:
        if name not in KNOWN_TRACKERS:
            raise ValueError(
                f"report_to: unknown tracker {name!r}.{nearest(name, KNOWN_TRACKERS)} hfcomp is tested with "
                f"{', '.join(TRACKERS)}. Pass none to turn tracking off."
            )
        if name in TRACKERS and not _is_installed(name):
            raise ImportError(
                f"report_to: {name} is not installed. Run pip install 'hfcomp[trackers]' (or pip install {name}), or "
                "remove report_to."
            )


def project_name(setting: str | None) -> str:
    return PROJECT if setting in (None, _UNSET_PROJECT) else setting


@contextmanager
def track_run(trainer: Any, run: TrackedRun | None) -> Iterator[None]:
    """Makes the training within the block a single run in the trackers, with pictures at its start."""
    if run is None or not trainer.args.report_to or not trainer.is_world_process_zero():
        yield
        return
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback):
            # TensorBoard's runs are folders, so this names the run and its group.
            callback.logging_dir = str(run.folder / run.name)
    started = WANDB in trainer.args.report_to and _start_wandb(run)
    trainer.add_callback(PicturesAtStart(trainer, run.pictures))
    try:
        yield
    # Includes an interrupt: otherwise Weights & Biases shows the run as still running.
    except BaseException:
        _finish_wandb(started, status=1)
        raise
    _finish_wandb(started, status=0)


class PicturesAtStart(TrainerCallback):
    """Sends pictures to the trackers when training starts. A resumed training has already sent them."""

    def __init__(self, trainer: Any, pictures: Callable[[], Pictures]) -> None:
        self._trainer, self._pictures = trainer, pictures

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Sent here because transformers opens the trackers when training begins, before this callback, which was added
        # last.
        if state.is_world_process_zero and state.global_step == 0:
            callbacks = self._trainer.callback_handler.callbacks
            boards = (callback.tb_writer for callback in callbacks if isinstance(callback, TensorBoardCallback))
            writer = next(boards, None)
            for name, content in self._pictures().items():
                _send(_Sinks(args.report_to, writer), name, picture=content)


def send_results(names: Sequence[str], run: TrackedRun, *, pictures: Pictures, tables: Mapping[str, Table]) -> None:
    """Sends pictures and tables as a separate run."""
    names = [name for name in names if name in TRACKERS]
    if not names:
        return
    with _open_sinks(names, run) as sinks:
        for name, content in pictures.items():
            _send(sinks, name, picture=content)
        for name, table in tables.items():
            _send(sinks, name, table=table)


@dataclass(frozen=True)
class _Sinks:
    """The open trackers, and TensorBoard's writer."""

    names: Sequence[str]
    writer: Any = None


@contextmanager
def _open_sinks(names: Sequence[str], run: TrackedRun) -> Iterator[_Sinks]:
    writer, started = None, False
    if TENSORBOARD in names:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(log_dir=str(run.folder / run.name))
    if WANDB in names:
        started = _start_wandb(run)
    if TRACKIO in names:
        import trackio

        trackio.init(project=run.project, name=run.full_name, resume="allow")
    try:
        yield _Sinks(names, writer)
    finally:
        if writer is not None:
            writer.close()
        if TRACKIO in names:
            trackio.finish()
        _finish_wandb(started, status=0)


def _send(sinks: _Sinks, name: str, *, picture: bytes = b"", table: Table | None = None) -> None:
    """Sends a picture or table to each tracker in its own format."""
    image = decode_image(picture) if picture else None
    header, rows = table or ((), [])
    if sinks.writer is not None and image is not None:
        import numpy as np

        sinks.writer.add_image(name, np.asarray(image), dataformats="HWC")
    elif sinks.writer is not None:
        sinks.writer.add_text(name, _as_markdown(header, rows))
    if WANDB in sinks.names:
        import wandb

        wandb.log({name: wandb.Image(image) if image else wandb.Table(columns=list(header), data=rows)})
    if TRACKIO in sinks.names:
        import pandas as pd
        import trackio

        frame = None if image else pd.DataFrame(rows, columns=list(header))
        trackio.log({name: trackio.Image(image) if image else trackio.Table(dataframe=frame)})


def _as_markdown(header: Sequence[str], rows: list[list]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in line)} |" for line in cells)


def _start_wandb(run: TrackedRun) -> bool:
    """Opens a Weights & Biases run. If the user has one open, that run gets everything instead."""
    import wandb

    if wandb.run is not None:
        return False
    # transformers' callback reuses this run. A run of its own would have no group and never end.
    wandb.init(project=os.environ.get("WANDB_PROJECT", run.project), group=run.group, name=run.full_name)
    return True


def _finish_wandb(started: bool, *, status: int) -> None:
    if started:
        import wandb

        wandb.finish(exit_code=status)


def _is_installed(name: str) -> bool:
    return find_spec(name) is not None
