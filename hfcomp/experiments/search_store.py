"""The trials of a search in its SQLite file, as Optuna keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hfcomp.experiments.plans import Range

FILE = "search.db"
STUDY = "search"
# What hfcomp writes beside a trial's values.
NUMBER, FAILURE, FACTS = "number", "failure", "facts"


@dataclass(frozen=True)
class Trial:
    """A trial that has ended.

    Attributes:
        number: in the order of the search, from 0.
        values: by field.
        value: of the measure; `None` for one that failed.
        facts: `low` and `high` of the value, `steps`, `seconds`; empty for one that failed.
        failure: why it failed.
    """

    number: int
    values: dict[str, Any]
    value: float | None
    facts: dict[str, float]
    failure: str | None


class SearchStore:
    """A search's file, of one process.

    Args:
        folder: of the search.
        direction: `maximize` or `minimize`.
        seed: of the values that are tried.
    """

    def __init__(self, folder: Path, direction: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # each trial has a line of its own
        self.direction, self.seed = direction, seed
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder.resolve() / FILE}")
        self.study = optuna.create_study(storage=storage, study_name=STUDY, direction=direction, load_if_exists=True)

    def begin(self, own_values: dict[str, Any] | None, tell: Callable[[str], None]) -> None:
        """Prepares a new search, or one that was stopped, whose unfinished trial is then tried again.

        Args:
            own_values: what the first trial has; drawn as the others without.
            tell: receives a line about an unfinished trial.
        """
        from optuna.trial import TrialState

        for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)
        trials, number = self.study.get_trials(), len(self.ended())
        if trials and (trials[-1].state == TrialState.WAITING or _has_ended(trials[-1])):
            return
        values = own_values if number == 0 and own_values else {}
        if trials:
            values = values | trials[-1].params
            tell(f"trial {number} was not finished; it goes on")
        if values:
            self.study.enqueue_trial(values)

    def ended(self) -> list[Trial]:
        """Trials that have a value or failed, in their order; those that were killed are none."""
        trials = [
            Trial(
                number=trial.user_attrs[NUMBER],
                values=dict(trial.params),
                value=None if FAILURE in trial.user_attrs else trial.value,
                facts=trial.user_attrs.get(FACTS, {}),
                failure=trial.user_attrs.get(FAILURE),
            )
            for trial in self.study.get_trials(deepcopy=False)
            if _has_ended(trial)
        ]
        return sorted(trials, key=lambda trial: trial.number)

    def best(self) -> Trial | None:
        """The trial with the best value, of equal ones the first."""
        sign = 1 if self.direction == "minimize" else -1
        return min(
            (one for one in self.ended() if one.value is not None), key=lambda one: sign * one.value, default=None
        )

    def ask(self, ranges: Mapping[str, Range]) -> tuple[int, dict[str, Any]]:
        """The number and the values of the next trial, or of the one that is tried again.

        The sampler's seed depends on the trial's number: a sampler that a second start seeded like the first would
        draw the first values again. So a search that was killed tries what it would have tried.

        Args:
            ranges: by field.
        """
        from optuna.samplers import TPESampler

        number = len(self.ended())
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        self.study.sampler = TPESampler(seed=seed)
        self.asked = self.study.ask()
        values = {name: space.suggest(self.asked, name) for name, space in ranges.items()}
        self.asked.set_user_attr(NUMBER, number)
        return number, values

    def tell(self, trial: Trial) -> None:
        """Keeps what the trial that was asked for came to."""
        from optuna.trial import TrialState

        if trial.value is None:
            self.asked.set_user_attr(FAILURE, trial.failure)
            self.study.tell(self.asked, state=TrialState.FAIL)
        else:
            self.asked.set_user_attr(FACTS, trial.facts)
            self.study.tell(self.asked, trial.value)


def _has_ended(trial: Any) -> bool:
    """Whether a trial of Optuna has a value or a failure of its own; one that was stopped has neither."""
    return trial.state.is_finished() and (trial.value is not None or FAILURE in trial.user_attrs)
