"""Studies: arms that are trained from one base in one folder, scored the same way, and compared with each other.

Every command that trains runs a study: a method with its controls, a sweep, the tradeoff study of concepts, or a
search. Each of them only defines its arms, its evaluation and its report:

    with Study.open(recipe, session, evaluate) as study:
        study.check_base(lambda: check(study.outcomes([BASE])))  # finds missing evaluations before training
        study.run(arms, number)
        study.write_report(lambda: write(study.outcomes()))

Arms may come from a generator. It continues after an arm is trained, and may use the costs and outcomes of earlier
arms (`costs`, `outcomes`) to build the next one.

A killed study resumes when it is opened again with the same values: finished arms are kept, an unfinished arm
continues from its last complete checkpoint, and stored outcomes are used while weights and evaluation are the same.

All processes open the study, run it and train. Only the main process scores and writes, in `check_base` and
`write_report`; the others wait for it there and fail with it. A `DryRun` is a study that times its arms and scores
nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
from tqdm import tqdm

from hfcomp import __version__
from hfcomp.distributed import run_on_main_process
from hfcomp.evaluation.blind.outcomes import prior_outcomes
from hfcomp.evaluation.blind.results import prior_of
from hfcomp.evaluation.blind.rules import PRIOR
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.item_scores import SCORES_FILE, read_scores, write_scores
from hfcomp.experiments.arm import Arm, Scoring
from hfcomp.experiments.experiment_config import RANDOM_MODELS, SANDBOX, SANDBOX_MODELS, ExperimentConfig
from hfcomp.experiments.prepare import base_model
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.tracking import tracked_arm
from hfcomp.experiments.workers import Workers, arms_at_once, open_workers
from hfcomp.run_folders import WantsMore, finish, run_folder
from hfcomp.statistics import Outcomes
from hfcomp.statistics.outcomes import label_items, read_table, write_table
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.progress import Pace
from hfcomp.trainers.stages import SUMMARY_FILE, read_summary

T = TypeVar("T")
FOLDER = "evaluation"
CAVEATS = {
    SANDBOX: "Synthetic: computer-drawn scenes, a tiny model. Shows the mechanism, not what a real CLIP would score.",
    **dict.fromkeys(RANDOM_MODELS, "A plumbing test, not a quality result: the model started from random weights."),
}
ONE_SEED = "One seed: intervals and p-values apply to other images with this seed, not to other seeds."
SEVERAL_SEEDS = "{seeds} seeds: the lowest and the highest are shown next to each mean."

# Fields that do not change the training, so a run may resume with other values of them. Evaluation fields are among
# them, because stored outcomes record which evaluation they belong to.
FREE_FIELDS = {
    *("output_dir", "mini_batch_size", "disable_tqdm", "save_strategy", "save_steps", "save_total_limit", "report_to"),
    *("use_cpu", "allow_urls", "url_timeout", "pixel_cache", "ddp_timeout", "run_name", "project", "push_to_hub"),
    *("blind_captions", "profile", "arms_at_once"),
    *("forgetting_guard", "guard_benchmarks", "guard_data", "guard_rule", "guard_tolerance"),
}
FREE_PREFIXES = ("dataloader_", "logging_", "evaluation", "page", "published_", "trackio_", "hub_")
# Fields with a free prefix that do change the training: they determine which rows are in a batch.
BINDING_FIELDS = {"dataloader_drop_last"}


@dataclass
class Study:
    """An open study. Only the main process has the scored outcomes."""

    experiment: ExperimentConfig
    session: Session
    scoring: Scoring | None  # scoring of the base and of each arm's last model, if these are scored
    folder: Path
    models: dict[str, Path | str]  # paths of the models: first the base, then the trained arms
    weights: dict[str, str] = field(default_factory=dict)  # `identity` of the scored models
    costs: dict[str, StageSummary] = field(default_factory=dict)
    checkpoint_outcomes: dict[str, dict[int, pd.DataFrame]] = field(default_factory=dict)  # by arm and step
    meanings: dict[str, str] = field(default_factory=dict)  # explanations of arms whose names are not enough
    pace: Pace = field(default_factory=Pace)
    keep_scores: bool = False  # whether to keep texts and cosines with the outcomes of the base and the arms
    keep_priors: bool = False  # whether to keep what these models choose if they do not see the image
    workers: Workers | None = None  # set while several arms train at the same time
    pending: dict[str, Future[StageSummary]] = field(default_factory=dict)  # arms in training, by name

    @classmethod
    @contextmanager
    def open(
        cls,
        recipe: Recipe,
        session: Session,
        evaluate: Evaluator | None = None,
        *,
        wants_more: WantsMore = lambda folder: False,
    ) -> Iterator[Study]:
        """Opens a folder, writes the base to it if one is created, and marks the folder as finished at the end.

        Callers first load everything that may be mistyped, so a mistake does not leave a folder behind. Without
        `evaluate`, only checkpoints are scored. A finished study in a folder resumes if it `wants_more`.
        """
        scoring = None if evaluate is None else evaluation_scoring(recipe.experiment, evaluate, recipe.column_names)
        how = {"may_change": may_change_on_resume, "wants_more": wants_more}
        with run_folder(recipe.folder, recipe.given, session.state.print, **how) as folder:
            session.state.print(f"-> {folder}")
            session.overlap.check_and_write(folder)
            models = {BASE: base_model(recipe.experiment, folder, recipe.seed)}
            yield cls(recipe.experiment, session, scoring, folder, models)
            run_on_main_process(lambda: finish(folder))
        session.close()

    def check_base(self, check: Callable[[], T]) -> T:
        """Runs a check on the outcomes of the base, so a benchmark that is not scored is found before training."""
        return run_on_main_process(check)

    def plan_points(self, evaluate: Evaluator, names: Sequence[str], points: int) -> None:
        """Announces the number of points that the report scores for each of these models; a dry run counts them."""

    def write_report(self, write: Callable[[], Any]) -> None:
        """Runs the function that reads the outcomes and writes the results."""
        run_on_main_process(write)

    def run(self, arms: Iterable[Arm], number: int) -> None:
        """Trains arms, `arms_at_once` at a time. `number` is used for progress bars; a generator may yield fewer."""
        self.pace.stages = number
        num_parallel = self.num_parallel
        if num_parallel == 1:
            for arm in arms:
                self.train(arm)
            return
        with open_workers(self.session, self.folder, num_parallel, number) as self.workers:
            for arm in arms:
                self._train_in_worker(arm, max_in_training=2 * num_parallel)
            for name in [*self.pending]:
                self.cost(name)
        # Restores the order of the arms; they may have ended in another order.
        self.costs = {name: self.costs[name] for name in self.models if name in self.costs}

    @property
    def num_parallel(self) -> int:
        return arms_at_once(self.experiment.arms_at_once, self.session)

    def _train_in_worker(self, arm: Arm, max_in_training: int) -> None:
        """Trains an arm in a worker; first waits while `max_in_training` arms, or the arm it starts from, train."""
        folder = self.folder / (arm.folder or arm.name)
        if arm.start in self.pending:
            self.cost(arm.start)
        if arm.checkpoints is not None or (folder / SUMMARY_FILE).is_file():
            # This process does the scoring itself, and a finished arm only needs to be read.
            self.train(arm)
            return
        # A generator of arms loads the rows of the next seed for its next arm. Waiting here for the oldest arms limits
        # the number of seeds whose rows are in memory.
        for name in [*self.pending][: len(self.pending) + 1 - max_in_training]:
            self.cost(name)
        self._note_meaning(arm)
        self.pending[arm.name] = self.workers.submit(arm, self.models[arm.start], folder)
        self.models[arm.name] = folder

    def _note_meaning(self, arm: Arm) -> None:
        self.meanings |= {arm.name: arm.description} if arm.description else {}

    def cost(self, name: str) -> StageSummary:
        """The cost of an arm; waits for the arm if it is in training."""
        if name in self.pending:
            self.costs[name] = self.workers.result(self.pending.pop(name))
        return self.costs[name]

    def train(self, arm: Arm) -> StageSummary:
        """Trains an arm, or the rest of it if it was interrupted, and scores the checkpoints that it asks for."""
        folder = self.folder / (arm.folder or arm.name)
        if arm.checkpoints is not None:
            run_on_main_process(lambda: self._reopen_if_unscored(arm, folder))
        cost = arm.train(self.models[arm.start], folder, self.pace, tracked_arm(self.folder, arm))
        self.pace.add(cost.steps, cost.seconds)
        self.models[arm.name], self.costs[arm.name] = folder, cost
        self._note_meaning(arm)
        if arm.checkpoints is not None:
            run_on_main_process(lambda: self._score_checkpoints(arm, folder, cost.steps))
        return cost

    def outcomes(self, names: Sequence[str] | None = None) -> Outcomes:
        """Outcomes of the base and the arms (by default all), in the order of `names`; main process only."""
        names, tables = list(self.models) if names is None else list(names), []
        with self._bar(names) as bar:
            for number, name in enumerate(bar, start=1):
                bar.set_description(f"scoring {number} of {len(names)}: {name}")
                self.weights[name] = identity(self.models[name])
                table = self.score(self.models[name], self.scoring, name, self.weights[name])
                tables.append(table.assign(arm=name))
        return Outcomes(pd.concat(tables, ignore_index=True))

    def score(self, place: Path | str, scoring: Scoring, name: str, weights: str | None = None) -> pd.DataFrame:
        """Returns the outcomes of a model: reads the file `name` if it is current, otherwise scores and writes it.

        Main process only. `weights` is the `identity` of the model (the default) or, for a checkpoint, of its arm.
        """
        # A file counts only if its stamp has the same weights and the same evaluation: a folder may contain outcomes
        # of an earlier evaluation, or of weights that a resumed run replaced.
        path, notes = self.folder / FOLDER / f"{name}.parquet", self.session.notes
        stamp, log = {"weights": weights or identity(place), **scoring.stamp}, self.session.log
        keep_priors = self.keep_priors and scoring.score_with_details is not None
        complete = not keep_priors or read_stored(self._prior_file(name), stamp, log) is not None
        table = read_stored(path, stamp, log) if complete else None
        if table is None:
            # Messages logged during scoring are stored with the outcomes and logged again when these are read.
            before, embedder = len(notes), Embedder(place, device=self.session.device, cache=EmbeddingCache())
            if scoring.score_with_details is not None and (self.keep_scores or keep_priors):
                how = {"keep_scores": self.keep_scores, "prior": prior_outcomes if keep_priors else None}
                full = scoring.score_with_details(embedder, **how)
                table = full.items
                if self.keep_scores:
                    write_scores(self._scores_file(name), full.scores)
                if keep_priors:
                    write_table(self._prior_file(name), full.prior, stamp)
            else:
                table = scoring.score(embedder)
            write_table(path, table, {**stamp, "notes": notes[before:]})
        return table

    def priors(self, names: Sequence[str]) -> list[pd.DataFrame]:
        """Outcomes of the arms without the image, with names from `prior_of` as `arm`; call after `outcomes`."""
        return [read_table(self._prior_file(name))[0].assign(arm=prior_of(name)) for name in names]

    def scores(self, names: Sequence[str]) -> pa.Table | None:
        """Texts and cosines of arms, if they were kept; main process only, call after `outcomes`."""
        tables = []
        for name in names:
            try:
                scores = read_scores(self._scores_file(name))
            except ValueError as error:
                # The page works without them, and the numbers of the report come from other files.
                self.session.log(str(error))
                continue
            tables += [] if scores is None else [label_items(scores, name)]
        return pa.concat_tables(tables) if tables else None

    def _scores_file(self, name: str) -> Path:
        return self.folder / FOLDER / f"{name}.{SCORES_FILE}"

    def _prior_file(self, name: str) -> Path:
        return self.folder / FOLDER / f"{name}.{PRIOR}.parquet"

    def caveat(self, seeds: int = 1) -> str:
        """Sentences about everything that limits the numbers."""
        config = self.experiment
        fresh = None if config.model else config.fresh_model
        uses_scenes = config.dataset == SANDBOX or config.evaluation.startswith(SANDBOX)
        kinds = [SANDBOX] if uses_scenes or fresh in SANDBOX_MODELS else []
        kinds += [fresh] if fresh in RANDOM_MODELS else []
        caveats = [CAVEATS[kind] for kind in kinds]
        caveats.append(ONE_SEED if seeds == 1 else SEVERAL_SEEDS.format(seeds=seeds))
        return " ".join(caveats)

    def facts(self, given: Mapping[str, Any], seeds: int = 1) -> dict[str, Any]:
        """Facts of a report other than its numbers; `given` contains the fields of the recipe."""
        models = {name: {"path": str(self.models[name]), "weights": weights} for name, weights in self.weights.items()}
        return {
            "hfcomp_version": __version__,
            "method": self.experiment.method,
            "caveat": self.caveat(seeds),
            "notes": self.session.notes,
            # Listed once for all seeds whose rows overlap in the same way.
            "overlap": list({facts["note"]: facts for facts in self.session.overlap.facts.values()}.values()),
            "config": given,
            **({"models": models} if models else {}),
            **({"meanings": self.meanings} if self.meanings else {}),
        }

    def _score_checkpoints(self, arm: Arm, folder: Path, total: int) -> None:
        weights, outcomes, kept = identity(folder), {}, arm.checkpoints
        with self._bar(kept.steps(total)) as bar:
            bar.set_description(f"scoring checkpoints: {arm.name}")
            for step in bar:
                checkpoint = folder / f"checkpoint-{step}"
                place = folder if step == total else checkpoint
                outcomes[step] = self.score(place, kept.scoring(step), f"{kept.folder}/{step}", weights)
                remove_checkpoint(checkpoint)
        self.checkpoint_outcomes[arm.name] = outcomes

    def _reopen_if_unscored(self, arm: Arm, folder: Path) -> None:
        # Checkpoints are removed after they are scored. If the evaluation has changed since, only training can
        # recreate them: without its summary, the arm counts as unfinished.
        if not (folder / SUMMARY_FILE).is_file():
            return
        weights, kept = identity(folder), arm.checkpoints
        for step in kept.steps(read_summary(folder).steps)[:-1]:  # the last step is the arm's own model
            stamp = {"weights": weights, **kept.scoring(step).stamp}
            path = self.folder / FOLDER / kept.folder / f"{step}.parquet"
            if not (folder / f"checkpoint-{step}").is_dir() and read_stored(path, stamp, self.session.log) is None:
                return (folder / SUMMARY_FILE).unlink()

    def _bar(self, items: Sequence[str | int]) -> tqdm:
        return tqdm(items, disable=self.session.quiet, leave=False)


def evaluation_scoring(config: ExperimentConfig, evaluate: Evaluator, column_names: Any, **stamp: Any) -> Scoring:
    """Makes a `Scoring` on loaded benchmarks; `stamp` is added to the facts that identify its outcomes."""
    # The stamp includes a digest of the items, because a file may have been edited since they were scored.
    items = {loaded.benchmark.name: loaded.digest for loaded in evaluate.loaded}
    settings = {**stamp, **evaluation_settings(config, column_names), "items": items}
    return Scoring(evaluate, settings, evaluate.score_with_details)


def evaluation_settings(config: ExperimentConfig, column_names: Any) -> dict[str, Any]:
    """Settings that, with the weights, identify stored outcomes; a different evaluation or version scores again."""
    items = {"dataset", "dataset_config"}  # these determine the scored items, together with the evaluation fields
    fields = config.model_dump()
    chosen = {name: value for name, value in fields.items() if name in items or name.startswith("evaluation")}
    return {**chosen, "column_names": column_names, "hfcomp_version": __version__}


def read_stored(path: Path, stamp: dict[str, Any], log: Callable[[str], None]) -> pd.DataFrame | None:
    """Reads the outcomes from a file if their stamp matches, and repeats the messages logged when they were scored."""
    if not path.is_file():
        return None
    try:
        table, stored_stamp = read_table(path)
    except ValueError:
        log(f"{path} is damaged: scoring its outcomes again")
        return None
    notes = stored_stamp.pop("notes", [])
    if stored_stamp != stamp:
        return None
    for note in notes:
        log(note)
    return table


def remove_checkpoint(checkpoint: Path) -> None:
    # Renames the folder first: a process killed during removal would otherwise leave a part that looks complete.
    scored = checkpoint.with_name("scored")
    shutil.rmtree(scored, ignore_errors=True)
    if checkpoint.is_dir():
        checkpoint.rename(scored)
        shutil.rmtree(scored)


def may_change_on_resume(name: str) -> bool:
    """Whether a run may resume with another value of this field."""
    return name in FREE_FIELDS or (name.startswith(FREE_PREFIXES) and name not in BINDING_FIELDS)
