"""A stage: one training run in a folder of its own, kept when it is finished, continued when it is not."""

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
from hfcomp.distributed import fail_together, gather_objects, on_main_process, world_size
from hfcomp.modeling.adapters import write_merged
from hfcomp.run_folders import ADAPTER_FOLDER
from hfcomp.trainers.cost import Clock, PeakMemory, StageSummary, summarize_stage
from hfcomp.trainers.progress import Pace, show_progress
from hfcomp.trainers.trackers import TrackedRun, tracked
from hfcomp.writing import write_json, write_text

SUMMARY_FILE = "stage.json"
HISTORY_FILE = "history.json"
HASHES = "files"
TRAIN_AGAIN = f"Remove {SUMMARY_FILE} and start the run again: this stage resumes from its last checkpoint, if any."
CHECKSUMS_FILE = "checksums.json"
# Files that are written after the checksums, or again later, such as a card.
WITHOUT_HASH = (CHECKSUMS_FILE, SUMMARY_FILE, "README.md")


class CheckpointChecksums(TrainerCallback):
    """Writes into a checkpoint, last of all, what its files are: only such a one is continued."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.save_only_model:  # the model alone cannot be continued
            return
        with fail_together():
            # Waits for all processes, because each writes its random states into the folder itself.
            gather_objects(None)
            if state.is_world_process_zero:
                write_checksums(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def write_checksums(folder: Path) -> None:
    """Writes `checksums.json` into a folder with a model, for `damage`."""
    write_json(folder / CHECKSUMS_FILE, _hashes(folder))


def _hashes(folder: Path) -> dict[str, str]:
    # An adapter's files are in a folder of their own. Checkpoints, in further ones, have checksums of their own.
    paths = [*sorted(folder.iterdir()), *sorted(folder.glob(f"{ADAPTER_FOLDER}/*"))]
    kept = [path for path in paths if path.is_file() and path.name not in WITHOUT_HASH]
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in kept}


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
    """Trains, saves the plain model to `folder` and returns what it cost.

    The folder receives checkpoints, the model, every line of the log in `history.json` and, last of all, `stage.json`.
    Where an adapter is trained, the model is the merged one, and the adapter is in `adapter/`.

    Args:
        name: of the stage.
        trainer_class: the objective.
        model: Hub id, folder, or a module, which is trained in place.
        dataset: training set, in the column contract.
        folder: of the stage.
        arguments: fields of the trainer's config; those that it does not have are left out.
        batch_size: rows over all processes.
        resume: keep a finished stage, continue an unfinished one from its last whole checkpoint.
        pace: where it stands among the stages of its run, for the bar.
        run: what it is called in the trackers of `report_to`.
        replay_dataset: as for the trainer.
        processor: of a module; that of an id or folder is loaded with it.
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
    # The main process chooses, so all processes continue from the same checkpoint.
    start = on_main_process(lambda: last_checkpoint(folder, print)) if resume else None
    with tracked(trainer, run):
        trainer.train(resume_from_checkpoint=start)
    with fail_together():
        _save_plain(trainer, folder)
        result = summarize_stage(name, trainer, memory)
        if trainer.is_world_process_zero():
            write_text(folder / HISTORY_FILE, json.dumps(trainer.state.log_history, indent=1))
            # Written last: a stage that has this file is finished, with exactly these files.
            write_json(summary, {**asdict(result), HASHES: _hashes(folder)})
    return result


def training_sets(dataset: Any, replay_dataset: Any) -> dict[str, Any]:
    """Keyword arguments of a trainer; one without replay need not know the argument."""
    return {"train_dataset": dataset} | ({} if replay_dataset is None else {"replay_dataset": replay_dataset})


def _save_plain(trainer: Any, folder: Path) -> None:
    """The plain model; of an adapter the merged one, with the adapter in a folder of its own."""
    if not trainer.model.is_peft:
        trainer.save_model()
        return
    trainer.save_model(str(folder / ADAPTER_FOLDER))
    if trainer.is_world_process_zero():
        write_merged(folder / ADAPTER_FOLDER, folder)


def read_summary(folder: Path) -> StageSummary:
    """What a finished stage cost.

    Raises:
        ValueError: naming the file, where it is damaged, or one beside it that the stage left: model, processor, log.
    """
    content = read_checked(folder / SUMMARY_FILE, TRAIN_AGAIN)
    for name, expected in content.pop(HASHES, {}).items():
        _check(folder / name, expected)
    return StageSummary(**content)


def read_history(folder: Path) -> list[dict[str, float]]:
    """Every line of a finished stage's log, checked against its summary where there is one."""
    path, summary = folder / HISTORY_FILE, folder / SUMMARY_FILE
    if summary.is_file():
        _check(path, read_checked(summary, TRAIN_AGAIN)[HASHES][HISTORY_FILE])
    return json.loads(path.read_text())


def mean_logged(folders: Sequence[Path], metric: str) -> float:
    """The mean of a logged metric over the steps of some finished stages; NaN where none logged it.

    A line of the log is the mean over the steps since the line before, and a checkpoint brings a line of its own.
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
    found = file_hash(path) if path.is_file() else "no such file"
    if found != expected:
        raise ValueError(
            f"{path} is damaged: expected sha256 {expected} as {SUMMARY_FILE} says, found {found}. {TRAIN_AGAIN}"
        )


def stage_config(trainer_class: type, folder: Path, arguments: dict[str, Any], batch_size: int) -> Any:
    """A trainer's config, of those arguments that it has; `batch_size` counts the rows of all processes.

    A stage never pushes: the stages of a run would share one repository. A run pushes its result when it is finished.
    """
    known = {f.name for f in fields(trainer_class.config_class) if not is_of_push(f.name)}
    arguments = {key: value for key, value in arguments.items() if key in known}
    # A config may be made before the process group is, which it then sets up itself.
    size = batch_size // world_size_at_launch()
    return trainer_class.config_class(output_dir=str(folder), per_device_train_batch_size=size, **arguments)


def is_of_push(name: str) -> bool:
    """Whether a field of a trainer's config says what is pushed, and where."""
    return name == "push_to_hub" or name.startswith("hub_")


def last_checkpoint(folder: Path, log: Callable[[str], None] = lambda line: None) -> str | None:
    """The newest checkpoint of a folder that was written whole, is undamaged, and can be continued exactly.

    `log` receives a line where the newest of all is passed over.
    """
    reasons: list[str] = []
    numbered = {path: path.name.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*")}
    steps = {path: int(number) for path, number in numbered.items() if number.isdigit()}
    # Newest first: a run that was killed while it wrote a checkpoint resumes from the one before.
    for path in sorted(steps, key=steps.get, reverse=True):
        reason = damage(path)
        if reason is None:
            if reasons:
                log(f"{folder}: {reasons[0]}: training resumes from {path.name}")
            return str(path)
        reasons.append(f"{path.name} cannot be continued ({reason})")
    if reasons:
        log(f"{folder}: {reasons[0]}, and no earlier one can be: training begins anew")
    return None


def damage(folder: Path) -> str | None:
    """Why a folder is not as `write_checksums` found it; `None` where it is."""
    # transformers writes a checkpoint in place, file by file: a process that was killed leaves one without its end.
    path = folder / CHECKSUMS_FILE
    if not path.is_file():
        return "it was not written to its end, or holds the model alone"
    try:
        for name, expected in read_checked(path, "").items():
            if file_hash(folder / name) != expected:
                return f"{name} is damaged"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def world_size_at_launch() -> int:
    """Processes of this run, also before the process group exists."""
    # Launchers tell a process how many they are before any group connects them.
    return max(world_size(), int(os.environ.get("WORLD_SIZE", "1")))
