"""The arms of a sweep as they would be trained, and rows as many as a paper has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hfcomp.experiments.arm import Arm
from hfcomp.experiments.data import TrainingSet
from hfcomp.experiments.session import open_session
from hfcomp.experiments.studies.plan_files import Sweep
from hfcomp.experiments.studies.sweep import first_rows, sweep_arms
from hfcomp.experiments.study import Study
from hfcomp.trainers.cost import StageSummary


def repeat_rows(rows: TrainingSet, number: int) -> TrainingSet:
    """Repeats stand-in rows until there are as many as a paper has."""
    return rows._replace(rows=rows.rows.select([row % len(rows.rows) for row in range(number)]))


def arms_of(sweep: Sweep, folder: Path, steps: Callable[[str], int] = lambda name: 1) -> tuple[list[Arm], list[str]]:
    """The arms, none of which is trained, and the notes of the session; `steps` says what each arm would take."""
    study, arms = Study(sweep.recipe.experiment, open_session({}), None, folder, {"base": "any"}), []
    for arm in sweep_arms(sweep, study, first_rows(sweep, study.session)):
        arms.append(arm)
        study.costs[arm.name] = StageSummary(arm.name, steps(arm.name), 1, 1, 1.0, 1.0, 1.0, 1.0, 0.0)
    return arms, study.session.notes
