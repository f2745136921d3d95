"""A study: arms that are trained from one base in one folder, scored alike, and read against each other.

Everything that trains is one: a method with its controls, a sweep, the study of concepts, a search. What each of them
says of itself are its arms, its evaluation and its report; what is done with them stands here once:

    with Study.open(recipe, session, scoring) as study:
        session.on_main(lambda: check(study.outcomes([BASE])))  # what is not evaluated costs no training
        study.run(arms, number)
        session.on_main(lambda: write_report(study.outcomes()))

Arms may come from a generator. It goes on once an arm is trained, and may look at what the arms before cost and scored
(`costs`, `outcomes`) to make the next one.

A killed study goes on when it is opened again with the same values: finished arms are kept, an unfinished one
continues from its last whole checkpoint, stored outcomes are used while weights and evaluation are the same.

All processes open it, run it and train; the main one alone scores and writes, inside `Session.on_main`: there the
others wait for it, and fail with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from hfcomp.evaluation.identity import identity
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.base import base_model
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import Scoring, read_stored, score_model
from hfcomp.experiments.overlap import check_same_rows
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.stages import SUMMARY_FILE, read_summary
from hfcomp.statistics import Outcomes
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.progress import Pace

FOLDER = "evaluation"


@dataclass
class Study:
    """An open study.

    Attributes:
        recipe: of the base, the device and the folder.
        session: of all processes.
        scoring: of the base and of each arm's last model, where these are scored.
        folder: that it has taken.
        models: place by name, the base first, then the arms that are trained.
        weights: `identity` of those that are scored, by name; of the main process alone.
        costs: of these arms, by name.
        followed: outcomes of an arm's checkpoints by step; of the main process alone.
        pace: which stage is next, of how many.
    """

    recipe: Recipe
    session: Session
    scoring: Scoring | None
    folder: Path
    models: dict[str, Path | str]
    weights: dict[str, str] = field(default_factory=dict)
    costs: dict[str, StageSummary] = field(default_factory=dict)
    followed: dict[str, dict[int, pd.DataFrame]] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)

    @classmethod
    @contextmanager
    def open(
        cls,
        recipe: Recipe,
        session: Session,
        scoring: Scoring | None = None,
        *,
        wants_more: Callable[[Path], bool] = lambda folder: False,
    ) -> Iterator[Study]:
        """Takes a folder and writes the base to it where it is made here; at the end marks it as finished.

        Everything that may be mistyped is loaded before: such a mistake takes no folder.

        Args:
            recipe: of the study.
            session: is closed at the end.
            scoring: of the base and of each arm's last model; none where checkpoints alone are scored.
            wants_more: whether a finished study in a folder lacks something that is asked for now.

        Raises:
            ValueError: where the folder's study was begun on other rows.
        """
        with run_folder(recipe.folder, recipe.given, session.state, wants_more=wants_more) as folder:
            session.state.print(f"-> {folder}")
            check_same_rows(folder, session)
            yield cls(recipe, session, scoring, folder, {BASE: base_model(recipe, folder)})
            session.on_main(lambda: finish(folder))
        session.close()

    def run(self, arms: Iterable[Arm], number: int) -> None:
        """Trains arms, one after the other.

        Args:
            arms: a list, or a generator that makes each when those before it are trained.
            number: how many, for the bars; a generator that leaves one out lowers `pace.stages`.
        """
        self.pace.stages = number
        for arm in arms:
            self.train(arm)

    def train(self, arm: Arm) -> StageSummary:
        """Trains what is missing of an arm, and scores those of its checkpoints that are to be."""
        folder = self.folder / (arm.folder or arm.name)
        if arm.checkpoints is not None:
            self.session.on_main(lambda: self._forget_if_unscored(arm, folder))
        cost = arm.train(self.models[arm.start], folder, self.pace)
        self.pace.add(cost.steps, cost.seconds)
        self.models[arm.name], self.costs[arm.name] = folder, cost
        if arm.checkpoints is not None:
            self.session.on_main(lambda: self._score_checkpoints(arm, folder, cost.steps))
        return cost

    def outcomes(self, names: Sequence[str] | None = None) -> Outcomes:
        """Outcomes of models, scored where they are not stored; for the main process.

        Args:
            names: of the base and of arms that are trained, in their order in the table; by default all.
        """
        names, tables = list(self.models) if names is None else list(names), []
        with self._bar(names) as bar:
            for number, name in enumerate(bar, start=1):
                bar.set_description(f"scoring {number} of {len(names)}: {name}")
                self.weights[name] = identity(self.models[name])
                table = self.score(self.models[name], self.scoring, name, self.weights[name])
                tables.append(table.assign(arm=name))
        return Outcomes(pd.concat(tables, ignore_index=True))

    def score(self, place: Path | str, scoring: Scoring, name: str, weights: str | None = None) -> pd.DataFrame:
        """Outcomes of one model, scored where they are not stored; for the main process.

        Args:
            place: of the model.
            scoring: of it.
            name: of the stored outcomes.
            weights: the `identity` of the model, or of the arm that it is a checkpoint of.
        """
        device = "cpu" if self.recipe.trainer_arguments.get("use_cpu") else None
        path = self.folder / FOLDER / f"{name}.parquet"
        return score_model(place, weights or identity(place), path, scoring, self.session, device)

    def _score_checkpoints(self, arm: Arm, folder: Path, total: int) -> None:
        weights, found, kept = identity(folder), {}, arm.checkpoints
        with self._bar(kept.steps(total)) as bar:
            bar.set_description(f"scoring checkpoints: {arm.name}")
            for step in bar:
                checkpoint = folder / f"checkpoint-{step}"
                place = folder if step == total else checkpoint
                found[step] = self.score(place, kept.scoring(step), f"{kept.folder}/{step}", weights)
                remove_checkpoint(checkpoint)
        self.followed[arm.name] = found

    def _forget_if_unscored(self, arm: Arm, folder: Path) -> None:
        """A finished arm is trained again where a checkpoint is neither there nor scored: of another evaluation."""
        if not (folder / SUMMARY_FILE).is_file():
            return
        weights, kept = identity(folder), arm.checkpoints
        for step in kept.steps(read_summary(folder).steps)[:-1]:  # the last one is the arm's own model
            stamp = {"weights": weights, **kept.scoring(step).stamp}
            path = self.folder / FOLDER / kept.folder / f"{step}.parquet"
            if not (folder / f"checkpoint-{step}").is_dir() and read_stored(path, stamp, self.session.tell) is None:
                return (folder / SUMMARY_FILE).unlink()

    def _bar(self, of: Sequence[str | int]) -> tqdm:
        return tqdm(of, disable=bool(self.recipe.trainer_arguments.get("disable_tqdm")), leave=False)


def remove_checkpoint(checkpoint: Path) -> None:
    """Renamed first: one of which a killed process left a half would be taken for a checkpoint."""
    scored = checkpoint.with_name("scored")
    shutil.rmtree(scored, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.rename(scored)
        shutil.rmtree(scored)
