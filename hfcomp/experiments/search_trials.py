"""Trials of transformers' `hyperparameter_search`, each a whole run of a recipe."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from hfcomp.experiments.evaluate import Evaluation
from hfcomp.experiments.outcomes import evaluate_models
from hfcomp.experiments.program import method_run
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.search_goal import score
from hfcomp.experiments.search_store import FACTS, FAILURE, NUMBER
from hfcomp.experiments.session import Session
from hfcomp.experiments.stages import HISTORY_FILE, SUMMARY_FILE

FOLDER = "trials"
# What stays of a trial that is not the best.
KEPT = (SUMMARY_FILE, HISTORY_FILE)
FAILED = float("nan")
LONGEST_REASON = 300


class TrialTrainer(Trainer):
    """Stands where `hyperparameter_search` expects a trainer, and hands each trial to a run of its own.

    transformers sets a trial's values on the arguments of one living trainer. A config of hfcomp checks its values and
    derives others when it is made, and the sampler, the collator and the loss are made from it: a value that is set
    afterwards would be unchecked, or do nothing. Here a trial is a new recipe, config and trainer.

    Args:
        run_trial: takes a trial and its values by field, trains, and returns the value of the measure or NaN.
        folder: that exists.
        use_cpu: as the session has it.
    """

    def __init__(self, run_trial: Callable[[Any, dict[str, Any]], float], folder: Path, *, use_cpu: bool) -> None:
        self._run_trial = run_trial
        self._value = FAILED
        args = TrainingArguments(output_dir=str(folder), use_cpu=use_cpu, report_to="none", disable_tqdm=True)
        super().__init__(model_init=_no_model, args=args)

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, **kwargs: Any) -> None:
        """Runs a trial."""
        self._value = self._run_trial(trial, self.hp_space(trial))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """What the last trial came to, as `value`."""
        return {"value": self._value}


@dataclass
class TrialRun:
    """Trains and scores trials from one base, on the same rows, by the same items.

    Attributes:
        read: from values by field to the recipe of a trial.
        measure: what a model is judged by.
        folder: of the search.
        base: the model that all trials start from.
        rows: that all are trained on.
        evaluate: of `prepare_evaluation`.
        session: of the search.
        number: of the trial that is next.
        failure: why the last trial failed; empty when it did not.
    """

    read: Callable[[dict[str, Any]], Recipe]
    measure: str
    folder: Path
    base: Path | str
    rows: Any
    evaluate: Evaluation
    session: Session
    number: int = 0
    failure: str = field(default="", init=False)

    def __call__(self, trial: Any, values: dict[str, Any]) -> float:
        """The value of a trial, on the main process; NaN for one that failed, which is told and kept."""
        trial.set_user_attr(NUMBER, self.number)
        name, self.failure = trial_name(self.number), ""
        try:
            recipe = self.read(values)
            cost = method_run(recipe, self.rows, name=name).train(self.base, self.folder / name)
        except self._failures() as error:
            return self._failed(trial, f"{type(error).__name__}: {error}")
        if not self.session.state.is_main_process:
            return FAILED
        items = evaluate_models(recipe, self.folder, {name: self.folder / name}, self.evaluate, self.session).items
        found = score(items, self.measure)
        if not math.isfinite(found.value):
            return self._failed(trial, f"the value is {found.value}")
        facts = {"low": found.low, "high": found.high, "steps": cost.steps, "seconds": cost.seconds}
        trial.set_user_attr(FACTS, facts)
        return found.value

    def _failures(self) -> tuple[type[Exception], ...]:
        """Loss or weights that are no longer finite, values that do not go together, and on one process no memory.

        Of several processes one alone may run out of memory, and the others would wait for it.
        """
        alone = self.session.state.num_processes == 1
        return (FloatingPointError, ValueError, *((torch.OutOfMemoryError,) if alone else ()))

    def _failed(self, trial: Any, reason: str) -> float:
        self.failure = reason[:LONGEST_REASON]
        trial.set_user_attr(FAILURE, self.failure)
        return FAILED


def _no_model() -> nn.Module:
    """What the search's own trainer holds: it trains nothing itself."""
    return nn.Identity()


def trial_name(number: int) -> str:
    """The name of a trial's model and folder."""
    return f"{FOLDER}/{number:04}"


def drop_models(folder: Path, numbers: Iterable[int]) -> None:
    """Removes the weights and checkpoints of trials that have ended.

    Args:
        folder: of the search.
        numbers: of the trials.
    """
    for number in numbers:
        for path in (folder / trial_name(number)).glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in KEPT:
                path.unlink()
