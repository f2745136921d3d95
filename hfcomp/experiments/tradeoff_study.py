"""The runs of a study of concepts: trained with checkpoints, each of which is scored and then removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset
from tqdm import tqdm

from hfcomp import __version__
from hfcomp.distributed import fail_together
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.identity import identity
from hfcomp.evaluation.statistics.outcomes import write_table
from hfcomp.evaluation.statistics.summary import BASE
from hfcomp.experiments.controls import plain
from hfcomp.experiments.evaluate import ConceptEvaluation, prepare_concepts
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import FOLDER, evaluation_settings, read_stored
from hfcomp.experiments.overlap import check_same_rows
from hfcomp.experiments.program import (
    base_model,
    check_rows,
    load_rows,
    method_run,
    output_folder,
    prepare_base,
    run_facts,
)
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.stages import SUMMARY_FILE, Run, StageSummary, read_summary
from hfcomp.experiments.tradeoff import Tradeoff
from hfcomp.experiments.tradeoff_report import print_tradeoff, write_tradeoff
from hfcomp.experiments.tradeoff_results import BASE_STEP, PLAIN, check_lines, summarize_tradeoff

Tell = Callable[[str], None]


def run_tradeoff(tradeoff: Tradeoff) -> Path:
    """Trains every concept's runs, evaluates all their checkpoints, and returns the folder.

    Accuracy and retrieval are scored at every checkpoint, the other lines at the ends of epochs.

    The folder holds `config.yaml`, `base/` (when it was made here), `<concept>/<run>/` with the last model,
    `evaluation/<concept>/` with the outcomes of the base and of each checkpoint, `tradeoff.json`, `report.md`,
    `figure.png` and `finished`. A checkpoint is removed once it is scored. Started again with the same values it goes
    on where it was killed: a run that was being trained begins anew, a checkpoint that is scored is not scored again.
    """
    plan, recipe = tradeoff.plan, tradeoff.recipe
    session = open_session(recipe.trainer_arguments)
    count = sum(len(plan.runs(concept)) for concept in plan.concepts)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, {count} runs over checkpoints")
    prepare_base(recipe)
    main = (plan.accuracy.benchmark, plan.retrieval.benchmark)
    evaluate = prepare_concepts(recipe.experiment, tuple(plan.concepts), main=main, seed=0, tell=session.tell)
    for part in tradeoff.parts.values():
        method_run(part, None).check()
    with run_folder(output_folder(recipe), recipe.given, session.state) as folder:
        session.state.print(f"-> {folder}")
        base = base_model(recipe, folder)
        studies = [_Study(tradeoff, concept, folder, base, evaluate, session) for concept in plan.concepts]
        runs = {study.concept: study.load() for study in studies}
        before = {study.concept: study.of_base() for study in studies}
        with fail_together():
            if session.state.is_main_process:
                check_lines(before, plan)
        stages: list[StageSummary] = []
        outcomes = {
            study.concept: pd.concat(
                [before[study.concept], *study.run(*runs.pop(study.concept), stages)], ignore_index=True
            )
            for study in studies
        }
        with fail_together():
            if session.state.is_main_process:
                results, facts = summarize_tradeoff(outcomes, plan), run_facts(recipe, session)
                write_tradeoff(folder, plan, results, stages=stages, facts=facts)
                print_tradeoff(plan, results, stages, facts, folder)
                finish(folder)
    session.close()
    return folder


@dataclass
class _Study:
    """The runs of one concept."""

    tradeoff: Tradeoff
    concept: str
    folder: Path
    base: Path | str
    evaluate: ConceptEvaluation
    session: Session

    def of_base(self) -> pd.DataFrame:
        """Outcomes of the base, with `arm` and `step`; empty but for the main process."""
        return self._scored(self.base, identity(self.base), BASE, BASE_STEP)

    def load(self) -> tuple[list[Run], int]:
        """The runs with their rows, which are checked, and the steps between their checkpoints."""
        plan = self.tradeoff.plan
        parts = {number: self.tradeoff.parts[self.concept, number] for number in plan.concepts[self.concept]}
        first, most = parts[min(parts)], parts[max(parts)]
        rows = load_rows(most, self.session, self.evaluate.images, part=self.concept)
        check_same_rows(self.folder, self.session)
        size = most.experiment.batch_size * int(most.trainer_arguments.get("gradient_accumulation_steps") or 1)
        rows = whole_parts(rows, size, plan.per_epoch, lambda note: self.session.tell(f"{self.concept}: {note}"))
        every = len(rows) // size // plan.per_epoch
        runs = [replace(plain(method_run(first, rows)), name=f"{self.concept}/{PLAIN}")]
        runs += [method_run(part, rows, name=f"{self.concept}/HN{number}") for number, part in parts.items()]
        check_rows(runs, self.session)
        return runs, every

    def run(self, runs: list[Run], every: int, stages: list[StageSummary]) -> list[pd.DataFrame]:
        """Outcomes of every checkpoint, as those of the base; runs and steps as `load` gives them."""
        return [table for run in runs for table in self._of_run(run, every, stages)]

    def _of_run(self, run: Run, every: int, stages: list[StageSummary]) -> list[pd.DataFrame]:
        """Trains with a checkpoint every `every` steps and scores each; scored checkpoints are removed."""
        folder, name = self.folder / run.name, run.name.rpartition("/")[2]
        kept = {"save_strategy": "steps", "save_steps": every, "save_only_model": True, "save_total_limit": None}
        state = self.session.state
        if state.is_main_process and self._must_train_again(folder, name, every):
            (folder / SUMMARY_FILE).unlink()
        state.wait_for_everyone()
        cost = replace(run, arguments={**run.arguments, **kept}).train(self.base, folder)
        stages.append(cost)
        weights, tables = identity(folder), []
        hidden = bool(self.tradeoff.recipe.trainer_arguments.get("disable_tqdm")) or not state.is_main_process
        steps = range(every, cost.steps + 1, every)
        for step in tqdm(steps, desc=f"{run.name}: scoring checkpoints", disable=hidden, leave=False):
            checkpoint, ends = folder / f"checkpoint-{step}", step % (every * self.tradeoff.plan.per_epoch) == 0
            tables.append(self._scored(checkpoint, weights, name, step, brief=not ends))
            if state.is_main_process:
                _remove(checkpoint)
        return tables

    def _must_train_again(self, folder: Path, name: str, every: int) -> bool:
        """Whether a finished run lacks a checkpoint that is to be scored: another evaluation was asked for since."""
        if not (folder / SUMMARY_FILE).is_file():
            return False
        stamp, last = self._stamp(identity(folder)), read_summary(folder).steps
        return any(
            not (folder / f"checkpoint-{step}").is_dir()
            and read_stored(self._path(name, step), stamp, self.session.tell) is None
            for step in range(every, last + 1, every)
        )

    def _scored(self, place: Path | str, weights: str, name: str, step: int, *, brief: bool = False) -> pd.DataFrame:
        """Outcomes of a model, stored ones where there are; all processes wait for the main one, model by model."""
        table = pd.DataFrame()
        if self.session.state.is_main_process:
            path, stamp = self._path(name, step), self._stamp(weights)
            found = read_stored(path, stamp, self.session.tell)
            if found is None:
                device = "cpu" if self.tradeoff.recipe.trainer_arguments.get("use_cpu") else None
                embedder = Embedder(place, device=device, cache=EmbeddingCache())
                found = self.evaluate(embedder, self.concept, brief).assign(arm=name, step=step)
                write_table(path, found, stamp)
            table = found
        self.session.state.wait_for_everyone()
        return table

    def _path(self, name: str, step: int) -> Path:
        return self.folder / FOLDER / self.concept / name / f"{step}.parquet"

    def _stamp(self, weights: str) -> dict[str, Any]:
        return {"weights": weights, "concept": self.concept, **evaluation_settings(self.tradeoff.recipe)}


def _remove(checkpoint: Path) -> None:
    """Renamed first: one of which a killed process left a half would be taken for a checkpoint."""
    scored = checkpoint.with_name("scored")
    shutil.rmtree(scored, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.rename(scored)
        shutil.rmtree(scored)


def whole_parts(rows: Dataset, size: int, parts: int, tell: Tell) -> Dataset:
    """As many rows as fill whole steps for that many equal parts of an epoch; the others are told.

    Args:
        rows: of training.
        size: rows of a step, over all processes.
        parts: of an epoch.
        tell: receives how many are left out.

    Raises:
        ValueError: when there are fewer steps than parts.
    """
    number = len(rows) // (size * parts) * size * parts
    if not number:
        raise ValueError(
            f"{len(rows):,} rows make {len(rows) // size} steps of {size}, fewer than the {parts} parts of an epoch "
            "after which a checkpoint is scored. Lower batch_size or checkpoints_per_epoch."
        )
    if number < len(rows):
        tell(f"{len(rows) - number} of {len(rows):,} rows are left out, so that an epoch has {parts} equal parts")
    return rows.select(range(number))
