"""A stage: one training run in a folder of its own, kept when it is finished, continued when it is not."""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import AutoProcessor, TrainerCallback

from hfcomp.checksums import file_hash, read_checked
from hfcomp.data.loading import TrainingRows
from hfcomp.distributed import world_size
from hfcomp.experiments.memory import RESIDENT_SO_FAR, PeakMemory
from hfcomp.experiments.progress import show_progress
from hfcomp.fields import columns_of
from hfcomp.trainers._support.row_report import missing_negative_images
from hfcomp.writing import write_json, write_text

SUMMARY_FILE = "stage.json"
HISTORY_FILE = "history.json"
HISTORY_HASH = "history_sha256"
ELAPSED = "elapsed_seconds"
TRAIN_AGAIN = f"Remove {SUMMARY_FILE} and start the run again: this stage goes on from its last checkpoint, or anew."


@dataclass
class StageSummary:
    """What a run cost.

    Attributes:
        name: of the stage.
        steps: optimiser steps.
        images: images encoded, negative ones too, over all processes.
        texts: texts encoded, likewise.
        seconds: of training, without loading; of a resumed run without the steps that were lost.
        images_per_second: over all of it.
        peak_memory_gib: of this process.
        peak_memory_of: `GPU`, `resident`, or where the system cannot tell stages apart, `resident, of the whole run so
            far`.
        loss: the last logged one.
        truncated_text_share: texts longer than the text tower, as a share of all.
    """

    name: str
    steps: int
    images: int
    texts: int
    seconds: float
    images_per_second: float
    peak_memory_gib: float
    loss: float
    truncated_text_share: float
    peak_memory_of: str = RESIDENT_SO_FAR


class Clock(TrainerCallback):
    """Seconds of training in every line of the log, which a resumed run finds in its checkpoint and goes on from."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts, where the lines before ended."""
        self.started = time.perf_counter() - elapsed(state.log_history)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Adds to the line that was just written."""
        state.log_history[-1][ELAPSED] = round(time.perf_counter() - self.started, 2)


def elapsed(history: list[dict[str, float]]) -> float:
    """Seconds at the last line of a training log; 0 before any."""
    return next((line[ELAPSED] for line in reversed(history) if ELAPSED in line), 0.0)


@dataclass(frozen=True)
class Run:
    """What is trained from a base.

    Attributes:
        name: of the stage and of the model in the results.
        trainer_class: the objective.
        arguments: fields of the trainer's config; those that it does not have are left out.
        rows: in the column contract; `None` for a run that is only checked.
        batch_size: rows over all processes.
    """

    name: str
    trainer_class: type
    arguments: dict[str, Any]
    rows: Dataset | IterableDataset | TrainingRows | None
    batch_size: int

    def check(self) -> str | None:
        """Builds the config, so that a wrong value costs no training, and looks for the negative images that it needs.

        Returns:
            A line about rows without a negative image, where the objective reads them and some have none.

        Raises:
            ValueError: of the config, or for rows without any negative image where the objective needs them.
        """
        config = _config(self.trainer_class, Path("unused"), self.arguments, self.batch_size)
        if self.rows is None or "negative_image" not in columns_of(self.trainer_class.required_features):
            return None
        return missing_negative_images(self.rows, self.trainer_class, config)

    def train(self, base: Path | str, folder: Path) -> StageSummary:
        """Trains in `folder`, from where an earlier attempt stopped.

        Args:
            base: Hub id or folder of the model to start from.
            folder: as in `train_stage`.
        """

        def build() -> tuple[Any, Any, Any]:
            return str(base), AutoProcessor.from_pretrained(base, trust_remote_code=False), self.rows

        return train_stage(
            self.name, self.trainer_class, build, folder, self.arguments, batch_size=self.batch_size, resume=True
        )


def train_stage(
    name: str,
    trainer_class: type,
    build: Callable[[], tuple[Any, Any, Any]],
    folder: Path,
    arguments: dict[str, Any],
    *,
    batch_size: int,
    resume: bool,
) -> StageSummary:
    """Trains, saves the plain model to `folder` and says what it cost.

    Args:
        name: of the stage.
        trainer_class: the objective.
        build: returns model (or its id), processor (or `None`) and training set.
        folder: receives checkpoints, the model, every line of the log in `history.json`, and `stage.json`, which is
            written last.
        arguments: fields of the trainer's config.
        batch_size: rows over all processes.
        resume: keep a finished stage, continue an unfinished one from its last whole checkpoint.
    """
    summary = folder / SUMMARY_FILE
    if resume and summary.is_file():
        return read_summary(folder)
    memory = PeakMemory()
    model, processor, dataset = build()
    config = _config(trainer_class, folder, arguments, batch_size)
    trainer = trainer_class(model, config, train_dataset=dataset, processing_class=processor)
    show_progress(trainer, name)
    trainer.add_callback(Clock())
    trainer.train(resume_from_checkpoint=last_checkpoint(folder) if resume else None)
    trainer.save_model()
    result = _summarize(name, trainer, memory)
    if trainer.is_world_process_zero():
        write_text(folder / HISTORY_FILE, json.dumps(trainer.state.log_history, indent=1))
        written = {**asdict(result), HISTORY_HASH: file_hash(folder / HISTORY_FILE)}
        write_json(summary, written)
    trainer.accelerator.wait_for_everyone()
    return result


def read_summary(folder: Path) -> StageSummary:
    """What a finished stage cost.

    Raises:
        ValueError: naming the file, where it is damaged.
    """
    content = read_checked(folder / SUMMARY_FILE, TRAIN_AGAIN)
    content.pop(HISTORY_HASH, None)
    return StageSummary(**content)


def read_history(folder: Path) -> list[dict[str, float]]:
    """Every line of a finished stage's log, checked against its summary where that lies beside it.

    Raises:
        ValueError: naming the file, where it or the summary is damaged.
    """
    path, summary = folder / HISTORY_FILE, folder / SUMMARY_FILE
    expected = read_checked(summary, TRAIN_AGAIN).get(HISTORY_HASH) if summary.is_file() else None
    if expected not in (None, file_hash(path)):
        raise ValueError(f"{path} is damaged: expected sha256 {expected} as {SUMMARY_FILE} says. {TRAIN_AGAIN}")
    return json.loads(path.read_text())


def _config(trainer_class: type, folder: Path, arguments: dict[str, Any], batch_size: int) -> Any:
    known = {f.name for f in fields(trainer_class.config_class)}
    arguments = {key: value for key, value in arguments.items() if key in known}
    size = batch_size // world_size_at_launch()
    return trainer_class.config_class(output_dir=str(folder), per_device_train_batch_size=size, **arguments)


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint of a folder that was written whole and can be continued exactly.

    transformers writes a checkpoint in place: the model, the optimiser, each process's random state, and
    `trainer_state.json` last. A process that was killed leaves one without its end.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        if _is_whole(path):
            return str(path)
    return None


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.removeprefix("checkpoint-")
    return int(number) if number.isdigit() else -1


def _is_whole(checkpoint: Path) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    random_states = list(checkpoint.glob("rng_state*.pth"))  # another process may still have been writing its own
    return (
        state.get("global_step") == _step(checkpoint)
        and (checkpoint / "optimizer.pt").is_file()
        and bool(random_states)
        and all(zipfile.is_zipfile(path) for path in random_states)
    )


def world_size_at_launch() -> int:
    """Processes of this run, also before the process group exists."""
    return max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))


def _summarize(name: str, trainer: Any, memory: PeakMemory) -> StageSummary:
    lines = [line for line in trainer.state.log_history if "images_encoded" in line]
    images = int(sum(line["images_encoded"] for line in lines))
    texts = int(sum(line["texts_encoded"] for line in lines))
    truncated = sum(line.get("truncated_text_share", 0.0) * line["texts_encoded"] for line in lines)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    seconds = elapsed(trainer.state.log_history)
    peak, peak_of = memory.read(trainer.args.device)
    return StageSummary(
        name=name,
        steps=trainer.state.global_step,
        images=images,
        texts=texts,
        seconds=seconds,
        images_per_second=round(images / max(seconds, 1e-9), 2),
        peak_memory_gib=round(peak / 2**30, 3),
        peak_memory_of=peak_of,
        loss=losses[-1] if losses else trainer.state.log_history[-1].get("train_loss", float("nan")),
        truncated_text_share=truncated / max(texts, 1),
    )
