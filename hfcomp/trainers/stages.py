"""A stage: one training run in its own folder, which is kept if finished and continued if not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from transformers import TrainerCallback

from hfcomp.checksums import file_hash, read_checked
from hfcomp.distributed import fail_together, gather_objects, run_on_main_process, world_size
from hfcomp.modeling.adapters import write_merged
from hfcomp.run_folders import ADAPTER_FOLDER
from hfcomp.trainers.cost import Clock, PeakMemory, StageSummary, summarize_stage
from hfcomp.trainers.progress import Pace, show_progress
from hfcomp.trainers.trackers import TrackedRun, track_run
from hfcomp.writing import write_json, write_text

SUMMARY_FILE = "stage.json"
HISTORY_FILE = "history.json"
HASHES = "files"
TRAIN_AGAIN = f"Remove {SUMMARY_FILE} and start the run again: this stage resumes from its last checkpoint, if any."
CHECKSUMS_FILE = "checksums.json"
# Files that are written after the checksums or rewritten later, such as a card.
WITHOUT_HASH = (CHECKSUMS_FILE, SUMMARY_FILE, "README.md")


class CheckpointChecksums(TrainerCallback):
    """Writes a checkpoint's checksums after all its other files. Only a checkpoint with checksums is resumed."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.save_only_model:  # a model on its own cannot be resumed
            return
        with fail_together():
            # Wait for all processes, because each writes its own random states into the folder.
            gather_objects(None)
            if state.is_world_process_zero:
                write_checksums(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def write_checksums(folder: Path) -> None:
    """Writes `checksums.json` into a model's folder, for `damage`."""
    write_json(folder / CHECKSUMS_FILE, _hashes(folder))


def _hashes(folder: Path) -> dict[str, str]:
    # An adapter's files are in a subfolder. Checkpoints, in other subfolders, have their own checksums.
    paths = [*sorted(folder.iterdir()), *sorted(folder.glob(f"{ADAPTER_FOLDER}/*"))]
    files = [path for path in paths if path.is_file() and path.name not in WITHOUT_HASH]
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in files}


def train_stage(
    name: str,
    trainer_class: type,
    model: str | Path | nn.Module,
    dataset: Any,
    folder: Path,
    arguments: dict[str, Any],
    *,
    batch_size: int,
    resume: bool,
    pace: Pace | None = None,
    run: TrackedRun | None = None,
    replay_dataset: Any = None,
    processor: Any = None,
) -> StageSummary:
    """Trains, saves the plain model to `folder` and returns the training cost.

    The folder receives checkpoints, the model, every log line in `history.json` and, as the last file, `stage.json`.
    If an adapter is trained, the model is the merged one, and the adapter is in `adapter/`.

    Args:
        name: Name of the stage.
        trainer_class: Trainer of the objective.
        model: Hub id, folder, or a module, which is trained in place.
        dataset: Training set in the column contract.
        folder: Folder of the stage.
        arguments: Config fields of the trainer. Fields that the config does not have are dropped.
        batch_size: Rows over all processes.
        resume: Keep a finished stage, and resume an unfinished one from its last complete checkpoint.
        pace: Position among the stages of the run, for the progress bar.
        run: Name of the run in the trackers of `report_to`.
        replay_dataset: Passed on to the trainer.
        processor: Processor for a module. For an id or folder, it is loaded with the model.
    """
    summary = folder / SUMMARY_FILE
    if resume and summary.is_file():
        return read_summary(folder)
    memory = PeakMemory()
    arguments = arguments if run is None else {**arguments, **run.arguments()}
    config = stage_config(trainer_class, folder, arguments, batch_size)
    model = str(model) if isinstance(model, Path) else model
    sets = training_sets(dataset, replay_dataset)
    trainer = trainer_class(model, config, processing_class=processor, **sets)
    show_progress(trainer, name, pace)
    trainer.add_callback(Clock())
    trainer.add_callback(CheckpointChecksums())
    # The main process chooses, so all processes resume from the same checkpoint.
    start = run_on_main_process(lambda: last_checkpoint(folder, print)) if resume else None
    with track_run(trainer, run):
        trainer.train(resume_from_checkpoint=start)
    with fail_together():
        _save_plain(trainer, folder)
        result = summarize_stage(name, trainer, memory)
        if trainer.is_world_process_zero():
            write_text(folder / HISTORY_FILE, json.dumps(trainer.state.log_history, indent=1))
            # Written last: a stage with this file is finished and has exactly these files.
            write_json(summary, {**asdict(result), HASHES: _hashes(folder)})
    return result


def training_sets(dataset: Any, replay_dataset: Any) -> dict[str, Any]:
    """Returns keyword arguments of a trainer. Without replay, it does not have to accept `replay_dataset`."""
    return {"train_dataset": dataset} | ({} if replay_dataset is None else {"replay_dataset": replay_dataset})


def _save_plain(trainer: Any, folder: Path) -> None:
    """Saves the plain model. For an adapter, saves the merged model, and the adapter in its own folder."""
    if not trainer.model.is_peft:
        trainer.save_model()
        return
    trainer.save_model(str(folder / ADAPTER_FOLDER))
    if trainer.is_world_process_zero():
        write_merged(folder / ADAPTER_FOLDER, folder)


def read_summary(folder: Path) -> StageSummary:
    """Reads the cost of a finished stage.

    Raises:
        ValueError: If the file, or a file of the stage next to it (model, processor, log), is damaged. Names the file.
    """
    content = read_checked(folder / SUMMARY_FILE, TRAIN_AGAIN)
    for name, expected in content.pop(HASHES, {}).items():
        _check(folder / name, expected)
    return StageSummary(**content)


def read_history(folder: Path) -> list[dict[str, float]]:
    """Reads every log line of a finished stage and checks the file against the summary, if any."""
    path, summary = folder / HISTORY_FILE, folder / SUMMARY_FILE
    if summary.is_file():
        _check(path, read_checked(summary, TRAIN_AGAIN)[HASHES][HISTORY_FILE])
    return json.loads(path.read_text())


def mean_logged(folders: Sequence[Path], metric: str) -> float:
    """Computes the mean of a logged metric over the steps of finished stages; NaN if none logged it.

    A log line is the mean over the steps since the previous line, and every checkpoint adds a line.
    """
    values: list[float] = []
    steps: list[int] = []
    for folder in folders:
        before = 0
        for line in read_history(folder):
            step = int(line.get("step", before + 1))
            if metric in line:
                values.append(line[metric])
                steps.append(step - before)
            before = step
    return float(np.average(values, weights=steps)) if sum(steps) else float("nan")


def _check(path: Path, expected: str) -> None:
    actual = file_hash(path) if path.is_file() else "no such file"
    if actual != expected:
        raise ValueError(
            f"{path} is damaged: expected sha256 {expected} as in {SUMMARY_FILE}, found {actual}. {TRAIN_AGAIN}"
        )


def stage_config(trainer_class: type, folder: Path, arguments: dict[str, Any], batch_size: int) -> Any:
    """Builds a trainer's config from the arguments that it has. `batch_size` counts the rows of all processes.

    A stage never pushes, because the stages of a run would share one repository. The run pushes its result at the end.
    """
    known = {f.name for f in fields(trainer_class.config_class) if not is_push_field(f.name)}
    arguments = {key: value for key, value in arguments.items() if key in known}
    # A config may be created before the process group, which it then sets up itself.
    size = batch_size // world_size_at_launch()
    return trainer_class.config_class(output_dir=str(folder), per_device_train_batch_size=size, **arguments)


def is_push_field(name: str) -> bool:
    """Whether a field of a trainer's config sets what is pushed, or where."""
    return name == "push_to_hub" or name.startswith("hub_")


def last_checkpoint(folder: Path, log: Callable[[str], None] = lambda line: None) -> str | None:
    """Finds the newest checkpoint of a folder that is complete, undamaged, and can be resumed exactly.

    `log` receives a line if the newest checkpoint is skipped.
    """
    reasons: list[str] = []
    numbered = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    steps = {path: int(number) for path, number in numbered.items() if number.isdigit()}
    # Newest first: a run that was killed while writing a checkpoint resumes from the previous one.
    for path in sorted(steps, key=steps.get, reverse=True):
        reason = damage(path)
        if reason is None:
            if reasons:
                log(f"{folder}: {reasons[0]}: training resumes from {path.name}")
            return str(path)
        reasons.append(f"{path.name} cannot be resumed ({reason})")
    if reasons:
        log(f"{folder}: {reasons[0]}, nor can any earlier checkpoint: training starts from the beginning")
    return None


def damage(folder: Path) -> str | None:
    """Describes how a folder differs from its checksums; `None` if it does not."""
    # transformers writes a checkpoint in place, file by file, so a killed process leaves an incomplete one.
    path = folder / CHECKSUMS_FILE
    if not path.is_file():
        return "it is incomplete, or contains only the model"
    try:
        for name, expected in read_checked(path, "").items():
            if file_hash(folder / name) != expected:
                return f"{name} is damaged"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def world_size_at_launch() -> int:
    """Returns the number of processes of this run, even before the process group exists."""
    # Launchers set the number of processes before a group connects them.
    return max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))
