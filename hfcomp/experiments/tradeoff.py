"""Fine-grained accuracy against retrieval, concept by concept and over checkpoints: the study of Rösch et al. 2024.

The paper's section 5 asks what continued training gains on a concept (object, color, location, size) and what it costs
in retrieval: for the base, plain training and 1 to 3 hard negatives, at every tenth of an epoch (Fig. 4, Tables 3 to
5). A file such as `recipes/hard_negatives/tradeoff.yaml` says which concepts and numbers, and which lines of the
evaluation stand for accuracy and retrieval; the recipe says everything else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from datasets import Dataset
from tqdm import tqdm

from hfcomp import __version__
from hfcomp.data.columns import nearest
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.identity import identity
from hfcomp.experiments.controls import plain
from hfcomp.experiments.evaluate import ConceptEvaluation, prepare_concepts
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import FOLDER, evaluation_settings, read_stored, store
from hfcomp.experiments.program import base_model, load_rows, method_run, output_folder, prepare_base, run_facts
from hfcomp.experiments.recipes import Recipe, overridden_fields, read_recipe, split_options
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.stages import SUMMARY_FILE, Run, StageSummary
from hfcomp.experiments.tradeoff_report import print_tradeoff, write_tradeoff
from hfcomp.experiments.tradeoff_results import BASE_STEP, PLAIN, LineName, TradeoffPlan, summarize_tradeoff

REQUIRED = ("concepts", "accuracy", "retrieval")
KEYS = (*REQUIRED, "checkpoints_per_epoch", "visual", "further")
# What the study sets for each of its runs.
OWN_FIELDS = ("keyword_negatives", "num_negatives")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Tradeoff:
    """A checked study.

    Attributes:
        recipe: of the base, the evaluation and the folder.
        plan: concepts, numbers of negatives, lines.
        parts: the recipe of each concept and number of negatives.
    """

    recipe: Recipe
    plan: TradeoffPlan
    parts: dict[tuple[str, int], Recipe]


def read_tradeoff(name: str, arguments: Sequence[str], path: Path) -> Tradeoff:
    """Reads a study and the recipe that it is of.

    The file holds `concepts` (each with a list of numbers of negatives), `accuracy` and `retrieval`, and where wanted
    `visual` (each `{benchmark: ..., metric: ...}`), `further` (benchmarks that have accuracy's metric too) and
    `checkpoints_per_epoch` (10). A line of a concept is its benchmark's subset of that name.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line.
        path: of the file.

    Raises:
        ValueError: for an unknown or missing key, a value of the wrong kind, a recipe that trains for a number of
            steps, or a field that the study sets and the command line too.
    """
    plan = _plan(yaml.safe_load(path.read_text()), path)
    _, words = split_options(arguments)
    recipe = read_recipe(name, arguments)
    if int(recipe.trainer_arguments.get("max_steps") or -1) > 0:
        raise ValueError(f"{path}: checkpoints are shares of an epoch; set num_train_epochs and leave max_steps out.")
    if "output_dir" not in overridden_fields(words):
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    recipe.given["report"] = {"path": path.name, **yaml.safe_load(path.read_text())}
    parts = {}
    for concept, numbers in plan.concepts.items():
        for number in numbers:
            changes = {"keyword_negatives": [concept], "num_negatives": number}
            parts[concept, number] = read_recipe(name, arguments, changes=changes, where=str(path))
    return Tradeoff(recipe, plan, parts)


def _plan(values: Any, path: Path) -> TradeoffPlan:
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping with {', '.join(REQUIRED)}, found {type(values).__name__}.")
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{path}: unknown key {key!r}.{nearest(key, KEYS)} Known: {', '.join(KEYS)}.")
    missing = [key for key in REQUIRED if key not in values]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} is missing. A study has {', '.join(REQUIRED)}.")
    concepts = values["concepts"]
    if not isinstance(concepts, dict) or not concepts:
        raise ValueError(f"{path}: concepts: found {concepts!r}, expected names with numbers: object: [1, 2, 3].")
    for concept, numbers in concepts.items():
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n > 0 for n in numbers):
            raise ValueError(f"{path}: concepts: {concept}: found {numbers!r}, expected numbers such as [1, 2, 3].")
    per_epoch = values.get("checkpoints_per_epoch", 10)
    if type(per_epoch) is not int or per_epoch < 1:
        raise ValueError(f"{path}: checkpoints_per_epoch: found {per_epoch!r}, expected a whole number from 1.")
    return TradeoffPlan(
        concepts={concept: sorted(set(numbers)) for concept, numbers in concepts.items()},
        per_epoch=per_epoch,
        accuracy=_line(values["accuracy"], f"{path}: accuracy"),
        retrieval=_line(values["retrieval"], f"{path}: retrieval"),
        visual=_line(values["visual"], f"{path}: visual") if "visual" in values else None,
        further=list(values.get("further") or []),
    )


def _line(value: Any, where: str) -> LineName:
    if not isinstance(value, dict) or set(value) != {"benchmark", "metric"}:
        raise ValueError(f"{where}: found {value!r}, expected {{benchmark: ..., metric: ...}}.")
    return LineName(value["benchmark"], value["metric"])


def run_tradeoff(tradeoff: Tradeoff) -> Path:
    """Trains every concept's runs, evaluates all their checkpoints, and returns the folder.

    Accuracy and retrieval are scored at every checkpoint, the other lines at the ends of epochs.

    The folder holds `config.yaml`, `base/` (when it was made here), `<concept>/<run>/` with the last model,
    `evaluation/` with the outcomes at each checkpoint, `tradeoff.json`, `report.md`, `figure.png` and `finished`. A
    checkpoint's weights are removed once they are scored. Started again with the same values it goes on where it was
    killed: a run that was being trained begins anew.
    """
    plan, recipe = tradeoff.plan, tradeoff.recipe
    session = open_session(recipe.trainer_arguments)
    count = sum(1 + len(numbers) for numbers in plan.concepts.values())
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, {count} runs over checkpoints")
    prepare_base(recipe)
    main = (plan.accuracy.benchmark, plan.retrieval.benchmark)
    evaluate = prepare_concepts(recipe.experiment, tuple(plan.concepts), main=main, seed=0, tell=session.tell)
    for part in tradeoff.parts.values():
        method_run(part, None).check()
    with run_folder(output_folder(recipe), recipe.given, session.state) as folder:
        session.state.print(f"-> {folder}")
        base = base_model(recipe, folder)
        stages: list[StageSummary] = []
        outcomes = {}
        for concept in plan.concepts:
            study = _Study(tradeoff, concept, folder, base, evaluate, session)
            outcomes[concept] = study.run(stages)
        if session.state.is_main_process:
            results = summarize_tradeoff(outcomes, plan)
            write_tradeoff(folder, plan, results, stages=stages, facts=run_facts(recipe, session))
            print_tradeoff(plan, results, run_facts(recipe, session), folder)
            finish(folder)
        session.state.wait_for_everyone()
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

    def run(self, stages: list[StageSummary]) -> pd.DataFrame:
        """Outcomes of the base and of every checkpoint, with `run` and `step`; empty but for the main process."""
        numbers = self.tradeoff.plan.concepts[self.concept]
        most = self.tradeoff.parts[self.concept, numbers[-1]]
        rows = load_rows(most, self.session, part=self.concept)
        batch, per_epoch = most.experiment.batch_size, self.tradeoff.plan.per_epoch
        rows = whole_parts(rows, batch, per_epoch, lambda note: self.session.tell(f"{self.concept}: {note}"))
        every = len(rows) // batch // per_epoch
        first = self.tradeoff.parts[self.concept, numbers[0]]
        runs = [replace(plain(method_run(first, rows)), name=f"{self.concept}/{PLAIN}")]
        for number in numbers:
            part = self.tradeoff.parts[self.concept, number]
            runs.append(method_run(part, rows, name=f"{self.concept}/HN{number}"))
        tables = [self._of_base()]
        for run in runs:
            tables.append(self._of_run(run, every, stages))
        return pd.concat(tables, ignore_index=True)

    def _of_base(self) -> pd.DataFrame:
        if not self.session.state.is_main_process:
            return pd.DataFrame()
        stamp = self._stamp(identity(self.base))
        path = self.folder / FOLDER / self.concept / "base.parquet"
        table = read_stored(path, stamp, self.session.tell)
        if table is None:
            table = self._score(self.base).assign(run="base", step=BASE_STEP)
            store(path, table, stamp)
        return table

    def _of_run(self, run: Run, every: int, stages: list[StageSummary]) -> pd.DataFrame:
        """Trains with a checkpoint every `every` steps and scores each; scored checkpoints are removed."""
        folder, name = self.folder / run.name, run.name.rpartition("/")[2]
        path = self.folder / FOLDER / self.concept / f"{name}.parquet"
        kept = {"save_strategy": "steps", "save_steps": every, "save_only_model": True, "save_total_limit": None}
        state = self.session.state
        if state.is_main_process and self._must_train(folder, path):
            (folder / SUMMARY_FILE).unlink(missing_ok=True)
        state.wait_for_everyone()
        cost = replace(run, arguments={**run.arguments, **kept}).train(self.base, folder)
        stages.append(cost)
        table = pd.DataFrame()
        if state.is_main_process:
            stamp = self._stamp(identity(folder))
            found = read_stored(path, stamp, self.session.tell)
            if found is None:
                found = self._score_all(folder, run.name, range(every, cost.steps + 1, every)).assign(run=name)
                store(path, found, stamp)
            table = found
            for checkpoint in folder.glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        state.wait_for_everyone()
        return table

    def _must_train(self, folder: Path, path: Path) -> bool:
        """Whether a finished run lacks what has to be scored: another evaluation was asked for since."""
        if not (folder / SUMMARY_FILE).is_file() or any(folder.glob("checkpoint-*")):
            return False
        return read_stored(path, self._stamp(identity(folder)), self.session.tell) is None

    def _score_all(self, folder: Path, name: str, steps: range) -> pd.DataFrame:
        hidden = bool(self.tradeoff.recipe.trainer_arguments.get("disable_tqdm"))
        bar = tqdm(steps, desc=f"{name}: scoring checkpoints", disable=hidden, leave=False)
        epoch = steps.step * self.tradeoff.plan.per_epoch
        tables = [self._score(folder / f"checkpoint-{step}", brief=step % epoch > 0).assign(step=step) for step in bar]
        return pd.concat(tables, ignore_index=True)

    def _score(self, place: Path | str, *, brief: bool = False) -> pd.DataFrame:
        device = "cpu" if self.tradeoff.recipe.trainer_arguments.get("use_cpu") else None
        return self.evaluate(Embedder(place, device=device, cache=EmbeddingCache()), self.concept, brief)

    def _stamp(self, weights: str) -> dict[str, Any]:
        return {"weights": weights, "concept": self.concept, **evaluation_settings(self.tradeoff.recipe)}


def whole_parts(rows: Dataset, batch_size: int, parts: int, tell: Tell) -> Dataset:
    """As many rows as fill whole batches for that many equal parts of an epoch; the others are told.

    Args:
        rows: of training.
        batch_size: rows of a batch, over all processes.
        parts: of an epoch.
        tell: receives how many are left out.

    Raises:
        ValueError: when there are fewer batches than parts.
    """
    number = len(rows) // (batch_size * parts) * batch_size * parts
    if not number:
        raise ValueError(
            f"{len(rows):,} rows make {len(rows) // batch_size} batches of {batch_size}, fewer than the {parts} parts "
            "of an epoch after which a checkpoint is scored. Lower batch_size or checkpoints_per_epoch."
        )
    if number < len(rows):
        tell(f"{len(rows) - number} of {len(rows):,} rows are left out, so that an epoch has {parts} equal parts")
    return rows.select(range(number))
