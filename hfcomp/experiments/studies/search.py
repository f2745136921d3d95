"""Searches for values of recipe fields that optimize a benchmark; a killed search resumes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hfcomp import __version__
from hfcomp.distributed import fail_together, run_on_main_process
from hfcomp.experiments.arm import check_rows, method_arm
from hfcomp.experiments.data import load_rows, num_negatives
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.prepare import prepare
from hfcomp.experiments.recipe_files import StudyKind
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.studies.plan_files import Search, values_text
from hfcomp.experiments.studies.plans import Range
from hfcomp.experiments.studies.search_report import SearchResults, Trial, publish_search, read_trials, trial_line
from hfcomp.experiments.study import Study
from hfcomp.statistics.measures import search_measure
from hfcomp.statistics.run import Score, score
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.stages import HISTORY_FILE, SUMMARY_FILE

FOLDER = "trials"
DATABASE = "search.db"
STUDY = "search"
# Attributes that hfcomp sets on an Optuna trial.
NUMBER, FAILURE, FACTS = "number", "failure", "facts"
# Files that are kept for all trials; only the best trial keeps everything.
KEPT = (SUMMARY_FILE, HISTORY_FILE)
MAX_REASON_CHARACTERS = 300
DATABASE_FIX = "Restore it from a copy, or choose another --output_dir for a new search."
# Seed of the sandbox's items during a search. Reports use seed 0, so the chosen trial is later scored on other items.
SEED_OF_ITEMS = 1
# If this many trials fail before any has a value, the values of a single trial are not the cause.
MAX_FIRST_FAILURES = 3


def run_search(search: Search, kind: type[Study] = Study) -> Path:
    """Trains and scores every trial, and returns the folder.

    The folder contains `config.yaml`, `base/` (if it was created here), `search.db` (the Optuna database),
    `trials/<number>/` (the best one keeps its model), `evaluation/` with the outcomes of each trial, `best.yaml` (a
    recipe), `trials.csv`, `search.json` and `report.md`, which are updated after every trial, and `finished`, written
    last. A killed search resumes if it is started again with the same values: finished trials are kept, and the
    unfinished trial resumes from its last checkpoint. If more trials are requested, a finished search runs the
    additional ones. With `DryRun` as the `kind` of study, the search leaves no files and only times a trial with the
    values at the first end of each range.

    Raises:
        ValueError: If the evaluation does not provide the measure, or if the first trials all fail.
    """
    plan, recipe = search.plan, search.recipe
    session = open_session(recipe.trainer_arguments)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, search with {plan.trials} trials")
    ends = {f"{search.path}: ranges: with {values}": part for values, part in search.parts.items()}
    check_rows((method_arm(part, None, name=name) for name, part in ends.items()), session)
    how = {"column_names": recipe.column_names, "seed": SEED_OF_ITEMS, "log": session.log}
    evaluate = prepare(recipe.experiment, **how)
    run_on_main_process(lambda: evaluate.check_names(partial(search_measure, name=plan.measure)))
    rows = load_rows(max(ends.values(), key=num_negatives), session, evaluate.images)
    check_rows((method_arm(part, *rows, name=name) for name, part in ends.items()), session)

    def wants_more(folder: Path) -> bool:
        return len(read_trials(folder)) < plan.trials

    with kind.open(recipe, session, evaluate, wants_more=wants_more) as study:
        base = study.check_base(lambda: _score(search, study, BASE))
        if issubclass(kind, DryRun):
            part = next(iter(ends.values()))
            study.run([method_arm(part, *rows, name=f"trial {number}") for number in range(plan.trials)], plan.trials)
        else:
            _run_trials(search, study, rows, base)
    return study.folder


def _score(search: Search, study: Study, name: str) -> Score:
    return score(study.outcomes([name]), search.plan.measure)


def _run_trials(search: Search, study: Study, rows: Any, base: Score) -> None:
    # Only the main process opens the search database. It asks Optuna for values and reports the results to it; all
    # processes train the trials that it receives.
    plan, session = search.plan, study.session
    with fail_together():
        store = _open_store(search, study) if session.state.is_main_process else None

    def ask() -> tuple[int, dict[str, Any]] | None:
        results = SearchResults(search, base, store.finished_trials())
        ended = len(results.trials) >= plan.trials
        # Published after every trial, so a killed search has its best recipe too.
        publish_search(study.folder, results, study.caveat(), session.notes, shown=ended)
        _drop_models(study.folder, results)
        if ended:
            return None
        _check_failures(results)
        return store.ask(plan.ranges)

    def tell(trial: Trial) -> None:
        store.tell(trial)
        session.state.print(trial_line(trial, SearchResults(search, base, store.finished_trials())))

    study.pace.stages = plan.trials
    while (proposal := run_on_main_process(ask)) is not None:
        trial = try_values(search, study, rows, *proposal)
        run_on_main_process(partial(tell, trial))


def try_values(search: Search, study: Study, rows: Any, number: int, values: dict[str, Any]) -> Trial:
    name, session = f"{FOLDER}/{number:04}", study.session
    study.pace.stage = number + 1
    try:
        cost = study.train(method_arm(search.trial(values), *rows, name=name))
    except _failures(session) as error:
        return Trial(number, values, None, {}, f"{type(error).__name__}: {error}"[:MAX_REASON_CHARACTERS])
    result = run_on_main_process(lambda: _score(search, study, name))
    if not math.isfinite(result.value):
        return Trial(number, values, None, {}, f"the value is {result.value}")
    facts = {"low": result.low, "high": result.high, "steps": cost.steps, "seconds": cost.seconds}
    return Trial(number, values, result.value, facts, None)


def _failures(session: Session) -> tuple[type[Exception], ...]:
    """Errors that end only a trial: non-finite numbers, incompatible values and, on one process, no memory left."""
    # With several processes, one could run out of memory while the others wait for it.
    is_single = session.state.num_processes == 1
    return (FloatingPointError, ValueError, *((torch.OutOfMemoryError,) if is_single else ()))


def _open_store(search: Search, study: Study) -> SearchStore:
    """Opens the store with the trials of earlier starts.

    Raises ValueError, naming the database, if it is damaged or lacks trials that `search.json` has.
    """
    path, written = study.folder / DATABASE, read_trials(study.folder)
    try:
        store = SearchStore(study.folder, search.plan.direction, search.plan.seed)
        ended = [(trial.number, trial.values, trial.value) for trial in store.finished_trials()]
    except Exception as error:  # a damaged database may raise anything
        raise ValueError(f"{path} is damaged: {type(error).__name__}. {DATABASE_FIX}") from error
    if ended[: len(written)] != [(trial["number"], trial["values"], trial["value"]) for trial in written]:
        raise ValueError(f"{path} is damaged: expected the {len(written)} trials of search.json. {DATABASE_FIX}")
    store.begin(_own_values(search, study.session), study.session.state.print)
    return store


def _own_values(search: Search, session: Session) -> dict[str, Any] | None:
    # These values are tried first, so a search shows whether it found anything better.
    own = search.own_values()
    outside = {name: value for name, value in own.items() if value not in search.plan.ranges[name]}
    if outside:
        session.log(f"the recipe's own values ({values_text(outside)}) are outside the ranges, so they are not tried")
    return None if outside else own


def _check_failures(results: SearchResults) -> None:
    failed = [trial for trial in results.trials if trial.failure]
    if results.best is None and len(failed) >= MAX_FIRST_FAILURES:
        last = failed[-1]
        raise ValueError(
            f"the first {len(failed)} trials failed. Fix the recipe or the ranges. "
            f"Last failure ({values_text(last.values)}): {last.failure}"
        )


def _drop_models(folder: Path, results: SearchResults) -> None:
    # Of possibly hundreds of trials, only the best keeps its model. Logs and costs are small and appear in the report.
    for trial in results.ranking[1 if results.best else 0 :]:
        for path in (folder / FOLDER / f"{trial.number:04}").glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in KEPT:
                path.unlink()


class SearchStore:
    """A search's database, opened by one process. `direction` is Optuna's; `seed` determines the values to try."""

    def __init__(self, folder: Path, direction: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # we print our own line for each trial
        self.seed = seed
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder.resolve() / DATABASE}")
        self.study = optuna.create_study(storage=storage, study_name=STUDY, direction=direction, load_if_exists=True)

    def begin(self, own_values: dict[str, Any] | None, log: Callable[[str], None]) -> None:
        """Prepares a new or stopped search; logs an unfinished trial and queues it again.

        The first trial uses `own_values`. Without them, its values are drawn like those of the others.
        """
        from optuna.trial import TrialState

        # Optuna cannot repeat a trial. The unfinished trial is marked as failed, without our failure attribute, so it
        # does not count. Its values are queued for a new trial, which gets the same number and so resumes the training
        # in that number's folder.
        for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)
        trials, number = self.study.get_trials(), len(self.finished_trials())
        if trials and (trials[-1].state == TrialState.WAITING or _has_ended(trials[-1])):
            return
        values = own_values if number == 0 and own_values else {}
        if trials:
            values = values | trials[-1].params
            log(f"resuming unfinished trial {number}")
        if values:
            self.study.enqueue_trial(values)

    def finished_trials(self) -> list[Trial]:
        """The trials that have a value or failed, in order, without trials that were killed."""
        trials = []
        for stored in filter(_has_ended, self.study.get_trials(deepcopy=False)):
            notes, failure = stored.user_attrs, stored.user_attrs.get(FAILURE)
            value = stored.value if failure is None else None
            trials.append(Trial(notes[NUMBER], dict(stored.params), value, notes.get(FACTS, {}), failure))
        return sorted(trials, key=lambda trial: trial.number)

    def ask(self, ranges: Mapping[str, Range]) -> tuple[int, dict[str, Any]]:
        """Returns the number of the next trial (or of the unfinished one) and its values by field."""
        from optuna.samplers import TPESampler

        # The sampler's seed depends on the trial number, so a killed search tries the same values that it would have
        # tried. With a fixed seed, a second start would draw the first values again.
        number = len(self.finished_trials())
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        self.study.sampler = TPESampler(seed=seed)
        self.current = self.study.ask()
        values = {name: space.suggest(self.current, name) for name, space in ranges.items()}
        self.current.set_user_attr(NUMBER, number)
        return number, values

    def tell(self, trial: Trial) -> None:
        """Stores the result of the current trial."""
        from optuna.trial import TrialState

        if trial.value is None:
            self.current.set_user_attr(FAILURE, trial.failure)
            self.study.tell(self.current, state=TrialState.FAIL)
        else:
            self.current.set_user_attr(FACTS, trial.facts)
            self.study.tell(self.current, trial.value)


def _has_ended(trial: Any) -> bool:
    # A trial that was killed has neither a value nor our failure attribute.
    return trial.state.is_finished() and (trial.value is not None or FAILURE in trial.user_attrs)


SEARCH = StudyKind("ranges", "search", "search", Search, run_search)
