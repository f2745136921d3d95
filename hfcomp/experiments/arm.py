"""An arm: one training run as data. Controls, methods, variants, trials and runs that are followed are all arms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import AutoProcessor

from hfcomp.data.loading import TrainingRows
from hfcomp.experiments.outcomes import Scoring
from hfcomp.experiments.stages import stage_config, train_stage
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.progress import Pace


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of an arm that are scored, and removed once they are; they hold the model alone.

    Attributes:
        every: steps between two of them, or below 1 the share of the arm's steps; its end is always among them.
        scoring: of the model at a step.
        folder: of their outcomes, below `evaluation/` of the study: `<folder>/<step>.parquet`.
    """

    every: float
    scoring: Callable[[int], Scoring]
    folder: str

    def steps(self, total: int) -> list[int]:
        """The steps that are scored of so many, as transformers counts them: a share of steps is rounded up."""
        every = math.ceil(total * self.every) if self.every < 1 else int(self.every)
        return [*range(every, total, every), total]

    def arguments(self) -> dict[str, Any]:
        """Of the trainer's config, so that these checkpoints are written and none is removed."""
        return {
            "save_strategy": "steps",
            "save_steps": self.every,
            "save_only_model": True,
            "save_total_limit": None,
        }


@dataclass(frozen=True)
class Arm:
    """One training run.

    Attributes:
        name: of the model in the results, and of its folder in that of the study.
        trainer_class: the objective.
        arguments: fields of the trainer's config; those that it does not have are left out.
        rows: in the column contract; `None` for an arm that is only checked.
        batch_size: rows over all processes.
        folder: where it differs from the name.
        start: the arm whose model it starts from, or the base.
        setting: what else it is compared within: of a sweep the setting, of a trade-off study the concept.
        seed: of rows and training, where a study has several.
        checkpoints: that are scored, where training is followed.
    """

    name: str
    trainer_class: type
    arguments: dict[str, Any]
    rows: Dataset | IterableDataset | TrainingRows | None
    batch_size: int
    folder: str = ""
    start: str = BASE
    setting: str = ""
    seed: int | None = None
    checkpoints: Checkpoints | None = None

    def check(self) -> str | None:
        """Builds the config and looks for what the rows lack, so that neither costs training.

        Returns:
            A line about rows without a negative image, where the objective reads them and some have none.

        Raises:
            ValueError: of the config, or for a column, negatives or negative images that the rows lack.
        """
        config = stage_config(self.trainer_class, Path("unused"), self.arguments, self.batch_size)
        return None if self.rows is None else self.trainer_class.check_rows(self.rows, config)

    def train(self, start: Path | str, folder: Path, pace: Pace | None = None) -> StageSummary:
        """Trains in `folder`, from where an earlier attempt stopped.

        Args:
            start: Hub id or folder of the model to start from.
            folder: as in `train_stage`.
            pace: likewise.
        """

        def build() -> tuple[Any, Any, Any]:
            return str(start), AutoProcessor.from_pretrained(start, trust_remote_code=False), self.rows

        return train_stage(
            self.name,
            self.trainer_class,
            build,
            folder,
            self.arguments | (self.checkpoints.arguments() if self.checkpoints else {}),
            batch_size=self.batch_size,
            resume=True,
            pace=pace,
        )
