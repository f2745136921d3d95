"""A stage: one training run in a folder of its own, kept when it is finished, continued when it is not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from transformers.trainer_utils import get_last_checkpoint

from hfcomp.distributed import world_size
from hfcomp.experiments.memory import RESIDENT_SO_FAR, PeakMemory
from hfcomp.experiments.progress import show_progress

SUMMARY_FILE = "stage.json"
HISTORY_FILE = "history.json"


@dataclass
class StageSummary:
    """What a run cost.

    Attributes:
        name: of the stage.
        steps: optimiser steps.
        images: images encoded, negative ones too, over all processes.
        texts: texts encoded, likewise.
        seconds: of training, without loading; of the last part of a resumed run.
        images_per_second: of the last part.
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
        resume: keep a finished stage, continue an unfinished one from its last checkpoint.
    """
    summary = folder / SUMMARY_FILE
    if resume and summary.is_file():
        return StageSummary(**json.loads(summary.read_text()))
    memory = PeakMemory()
    model, processor, dataset = build()
    known = {f.name for f in fields(trainer_class.config_class)}
    arguments = {key: value for key, value in arguments.items() if key in known}
    config = trainer_class.config_class(
        output_dir=str(folder), per_device_train_batch_size=batch_size // world_size_at_launch(), **arguments
    )
    trainer = trainer_class(model, config, train_dataset=dataset, processing_class=processor)
    show_progress(trainer, name)
    checkpoint = get_last_checkpoint(folder) if resume and folder.is_dir() else None
    started = time.perf_counter()
    trainer.train(resume_from_checkpoint=checkpoint)
    seconds = time.perf_counter() - started
    trainer.save_model()
    result = _summarize(name, trainer, seconds, memory)
    if trainer.is_world_process_zero():
        _write(folder, trainer.state.log_history, result)
    trainer.accelerator.wait_for_everyone()
    return result


def _write(folder: Path, history: list[dict[str, float]], result: StageSummary) -> None:
    (folder / HISTORY_FILE).write_text(json.dumps(history, indent=1))
    partial = (folder / SUMMARY_FILE).with_suffix(".part")
    partial.write_text(json.dumps(asdict(result), indent=2))
    os.replace(partial, folder / SUMMARY_FILE)


def world_size_at_launch() -> int:
    """Processes of this run, also before the process group exists."""
    return max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))


def _summarize(name: str, trainer: Any, seconds: float, memory: PeakMemory) -> StageSummary:
    lines = [line for line in trainer.state.log_history if "images_encoded" in line]
    images = int(sum(line["images_encoded"] for line in lines))
    texts = int(sum(line["texts_encoded"] for line in lines))
    truncated = sum(line["truncated_text_share"] * line["texts_encoded"] for line in lines)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    trained = trainer.state.log_history[-1].get("train_runtime", seconds)
    steps_now = trainer.state.global_step - trainer._initial_global_step
    peak, peak_of = memory.read(trainer.args.device)
    return StageSummary(
        name=name,
        steps=trainer.state.global_step,
        images=images,
        texts=texts,
        seconds=round(trained, 2),
        images_per_second=round(images * steps_now / max(trainer.state.global_step, 1) / max(trained, 1e-9), 2),
        peak_memory_gib=round(peak / 2**30, 3),
        peak_memory_of=peak_of,
        loss=losses[-1] if losses else trainer.state.log_history[-1].get("train_loss", float("nan")),
        truncated_text_share=truncated / max(texts, 1),
    )
