"""Arms: training runs described as data. Controls, methods, variants, trials and followed runs are all arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset, IterableDataset

from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.loading import TrainingRows
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.evaluator import DetailedScores
from hfcomp.experiments.recipes import BatchSize, Recipe
from hfcomp.experiments.session import Session
from hfcomp.run_folders import ADAPTER_FOLDER
from hfcomp.statistics.summary import BASE
from hfcomp.trainers._support.replay import check_replay
from hfcomp.trainers.config import OPTIMIZATION
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.hooks import ObjectiveHooks
from hfcomp.trainers.progress import Pace
from hfcomp.trainers.stages import stage_config, train_stage, world_size_at_launch
from hfcomp.trainers.trackers import TrackedRun


def fit_batch(batch: BatchSize, rows: Any, log: Callable[[str], None] = lambda note: None) -> int:
    """The rows per batch, lowered if the batch would show more than its allowed fraction of the training images.

    The batch stays as it is for streamed rows, whose images are not counted. `log` receives a line if it is lowered.
    """
    if batch.fraction is None or not isinstance(rows, Dataset):
        return batch.rows
    images, processes, images_per_row = count_images(rows), world_size_at_launch(), 1 + batch.neighbors
    # Rounded down to a multiple of the processes, because the trainer gives each of them the same number of rows.
    most = int(images * batch.fraction) // images_per_row // processes * processes
    if batch.rows <= most or not most:
        return batch.rows
    log(
        f"batch_size is lowered from {batch.rows} to {most}: the {images:,} training images would only make "
        f"{images / (batch.rows * images_per_row):.1f} batches per epoch. A --batch_size on the command line is kept."
    )
    return most


def count_images(rows: Dataset) -> int:
    """Counts distinct images; without image ids, every row counts as one image."""
    return len(set(rows[IMAGE_ID])) if IMAGE_ID in rows.column_names else len(rows)


@dataclass(frozen=True)
class Scoring:
    """The way a model is scored."""

    score: Callable[[Embedder], pd.DataFrame]  # one row per item and metric
    stamp: dict[str, Any]  # everything except the weights that identifies stored outcomes
    # The same with texts, cosines and the model's prior, if available.
    score_with_details: Callable[..., DetailedScores] | None = None


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of an arm that are scored and then removed. They contain only the model."""

    every: float  # steps between checkpoints, or a share of the arm's steps if below 1; the last step is always scored
    scoring: Callable[[int], Scoring]  # scoring at a step
    folder: str  # folder of their outcomes: `evaluation/<folder>/<step>.parquet` in the study folder

    def steps(self, total: int) -> list[int]:
        """The steps that are scored in a run of `total` steps."""
        # Rounded like transformers' `save_steps`; otherwise checkpoints would be expected that it did not write.
        every = math.ceil(total * self.every) if self.every < 1 else int(self.every)
        return [*range(every, total, every), total]


@dataclass(frozen=True)
class Arm:
    """One training run, named as its model in the results."""

    name: str
    trainer_class: type
    arguments: dict[str, Any]  # fields of the trainer's config; fields that it does not have are ignored
    rows: Dataset | IterableDataset | TrainingRows | None  # `None` for an arm that is only checked
    batch_size: int  # task rows per batch over all processes
    replay: Dataset | None = None  # general dataset, some of whose rows are added to every batch
    folder: str = ""  # subfolder of the study, if it differs from the name
    start: str = BASE  # name of the arm whose model it starts from, or the base
    checkpoints: Checkpoints | None = None  # checkpoints to score, if training is followed
    description: str = ""  # explanation for reports, if the name is not enough

    def check(self) -> str | None:
        """Builds the config and checks the rows, before any training time is spent.

        Returns a line about rows without a negative image, if the objective reads them and some rows have none.

        Raises:
            ValueError: If the config is invalid, the rows lack a column, negatives or negative images, or there are
                fewer rows than a batch needs.
        """
        # The folder is only a name; building a config does not create it.
        config = stage_config(self.trainer_class, Path("unused"), self.arguments, self.batch_size)
        if self.rows is None:
            return None
        check_replay(self.replay, config)
        lacking = self.trainer_class.check_rows(self.rows, config)
        # A trainer with its own epoch check may fill a batch from fewer rows.
        whole_batches = config.dataloader_drop_last and self.trainer_class.check_epoch is ObjectiveHooks.check_epoch
        if whole_batches and not isinstance(self.rows, IterableDataset) and len(self.rows) < self.batch_size:
            raise ValueError(
                f"the training set has {len(self.rows)} rows, fewer than one batch of {self.batch_size}. Pass "
                f"--batch_size {len(self.rows)} or less, or use more rows."
            )
        return lacking

    def train(
        self, start: Path | str, folder: Path, pace: Pace | None = None, run: TrackedRun | None = None
    ) -> StageSummary:
        """Trains in `folder`, starting from the model `start`, or resumes an earlier attempt."""
        arguments = self.arguments
        if self.checkpoints is not None:
            # Keeps all checkpoints until they are scored. Without optimizer states, a killed arm starts over, but the
            # checkpoints of a long run fit on the disk.
            arguments = {**arguments, "save_strategy": "steps", "save_steps": self.checkpoints.every}
            arguments |= {"save_only_model": True, "save_total_limit": None}
        how = {"batch_size": self.batch_size, "resume": True, "pace": pace, "run": run, "replay_dataset": self.replay}
        return train_stage(self.name, self.trainer_class, start, self.rows, folder, arguments, **how)


def method_arm(recipe: Recipe, rows: Dataset | None, replay: Dataset | None = None, *, name: str | None = None) -> Arm:
    """The method's own arm. Without rows, it can only be checked."""
    config, arguments = recipe.trainer_class.config_class, recipe.trainer_arguments
    # Optimization values come from the method's objective: a control of another class has other defaults, and its
    # result would then be due to the learning rate.
    chosen = {field.name: field.default for field in fields(config) if field.name in OPTIMIZATION}
    own = chosen | {key: value for key, value in arguments.items() if key not in ("output_dir", "column_names")}
    fraction = own.get("replay_fraction", config.replay_fraction)
    _check_replay(recipe.experiment.replay_dataset, fraction, given="replay_fraction" in own)
    # With a fraction of 0, a trainer rejects replay rows.
    replay = replay if fraction else None
    name = name or recipe.experiment.method
    return Arm(name, recipe.trainer_class, own, rows, fit_batch(recipe.batch, rows), replay)


def _check_replay(dataset: str | None, fraction: float, *, given: bool) -> None:
    """Raises for a replay set without a fraction, or the reverse; a fraction of 0 switches the set off."""
    if dataset and not given:
        raise ValueError(
            f"replay_dataset={dataset} needs replay_fraction. Pass --replay_fraction 0.5 for as many replay rows as "
            "task rows in each batch, or leave replay_dataset out."
        )
    if fraction and not dataset:
        raise ValueError(
            f"replay_fraction={fraction:g} needs rows to replay. Pass --replay_dataset (a folder, a file, a Hub id "
            "or sandbox), or leave replay_fraction out."
        )


def check_rows(arms: Iterable[Arm], session: Session) -> None:
    """Checks the values and rows of all arms before the first is trained, and notes what rows lack in the report."""
    for arm in arms:
        try:
            lacking = arm.check()
        except ValueError as error:
            raise ValueError(f"{arm.name}: {error}") from error
        for note in _model_notes(arm.arguments):
            session.log(note)
        if lacking:
            # Not printed here, because every trainer prints it when it starts.
            session.log(lacking, show=False)


def _model_notes(arguments: dict[str, Any]) -> Iterator[str]:
    """Notes about trained models that are not simply the last weights."""
    if arguments.get("peft"):
        yield (
            f"Training uses adapters ({arguments['peft']}). Each model folder contains the merged, plain model, and "
            f"the adapter in {ADAPTER_FOLDER}/."
        )
    if arguments.get("weight_average_decay") is not None:
        start = arguments.get("weight_average_start", 0)
        yield (
            "Each trained model is an average of its weights over training "
            f"(decay {arguments['weight_average_decay']:g}, from step {start} on)."
        )
