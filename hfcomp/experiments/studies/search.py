"""A search for the values of a recipe's fields, by the value of a benchmark, which resumes where it was killed."""

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
from hfcomp.experiments.studies.plan_files import Search, shown
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
# Files that are kept of a trial that is not the best.
KEPT = (SUMMARY_FILE, HISTORY_FILE)
LONGEST_REASON = 300
DATABASE_FIX = "Put it back from a copy, or choose another --output_dir for a new search."
# The items of a report are drawn with 0, so a chosen trial is later scored on other items.
SEED_OF_ITEMS = 1
# After this many failures without a first value, the problem is something other than a trial's values.
MOST_FAILURES = 3


def run_search(search: Search, kind: type[Study] = Study) -> Path:
    """Trains and scores every trial, and returns the folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `search.db` (Optuna's), `trials/<number>/`, of
    which the best keeps its model, `evaluation/` with the outcomes of each, after every trial `best.yaml` (a recipe),
    `trials.csv`, `search.json` and `report.md`, and `finished`, written last. Started again with the same values it
    resumes where it was killed: trials that have ended are kept, the unfinished one resumes from its last checkpoint.
    A finished search runs the rest when more trials are asked for. As a `kind` of study, `DryRun` leaves nothing: it
    times the first of the ends of the ranges.

    Raises:
        ValueError: for a measure that the evaluation does not give, or when the first trials all fail.
    """
    plan, recipe = search.plan, search.recipe
    session = open_session(recipe.trainer_arguments)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, a search of {plan.trials} trials")
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
            _try_all(search, study, rows, base)
    return study.folder


def _score(search: Search, study: Study, name: str) -> Score:
    return score(study.outcomes([name]), search.plan.measure)


def _try_all(search: Search, study: Study, rows: Any, base: Score) -> None:
    # Only the main process has the file of the search. It asks and tells, and the others train the trials that it
    # names.
    plan, session = search.plan, study.session
    with fail_together():
        store = _open_store(search, study) if session.state.is_main_process else None

    def ask() -> tuple[int, dict[str, Any]] | None:
        results = SearchResults(search, base, store.ended())
        ended = len(results.trials) >= plan.trials
        # Published after every trial, not only at the end: a search that is killed has its best recipe.
        publish_search(study.folder, results, study.caveat(), session.notes, shown=ended)
        _drop_models(study.folder, results)
        if ended:
            return None
        _check_failures(results)
        return store.ask(plan.ranges)

    def tell(trial: Trial) -> None:
        store.tell(trial)
        session.state.print(trial_line(trial, SearchResults(search, base, store.ended())))

    study.pace.stages = plan.trials
    while (asked := run_on_main_process(ask)) is not None:
        trial = try_values(search, study, rows, *asked)
        run_on_main_process(partial(tell, trial))


def try_values(search: Search, study: Study, rows: Any, number: int, values: dict[str, Any]) -> Trial:
    name, session = f"{FOLDER}/{number:04}", study.session
    study.pace.stage = number + 1
    try:
        cost = study.train(method_arm(search.trial(values), *rows, name=name))
    except _failures(session) as error:
        return Trial(number, values, None, {}, f"{type(error).__name__}: {error}"[:LONGEST_REASON])
    found = run_on_main_process(lambda: _score(search, study, name))
    if not math.isfinite(found.value):
        return Trial(number, values, None, {}, f"the value is {found.value}")
    facts = {"low": found.low, "high": found.high, "steps": cost.steps, "seconds": cost.seconds}
    return Trial(number, values, found.value, facts, None)


def _failures(session: Session) -> tuple[type[Exception], ...]:
    """Loss or weights that are no longer finite, values that do not go together, and on one process no memory."""
    # With several processes, one could run out of memory while the others wait for it.
    alone = session.state.num_processes == 1
    return (FloatingPointError, ValueError, *((torch.OutOfMemoryError,) if alone else ()))


def _open_store(search: Search, study: Study) -> SearchStore:
    """The store, with the trials of an earlier start, which `search.json` knows too.

    ValueError, naming the database, where it is damaged or lacks some.
    """
    path, written = study.folder / DATABASE, read_trials(study.folder)
    try:
        store = SearchStore(study.folder, search.plan.direction, search.plan.seed)
        ended = [(one.number, one.values, one.value) for one in store.ended()]
    except Exception as error:  # a damaged database raises whatever its readers run into
        raise ValueError(f"{path} is damaged: {type(error).__name__}. {DATABASE_FIX}") from error
    if ended[: len(written)] != [(one["number"], one["values"], one["value"]) for one in written]:
        raise ValueError(f"{path} is damaged: expected the {len(written)} trials of search.json. {DATABASE_FIX}")
    store.begin(_own_values(search, study.session), study.session.state.print)
    return store


def _own_values(search: Search, session: Session) -> dict[str, Any] | None:
    # Tried first, so a search shows whether it found anything better than these values.
    own = search.own_values()
    outside = {name: value for name, value in own.items() if value not in search.plan.ranges[name]}
    if outside:
        session.log(f"the recipe's own {shown(outside)} is outside the ranges, so it is not among the trials")
    return None if outside else own


def _check_failures(results: SearchResults) -> None:
    failed = [trial for trial in results.trials if trial.failure]
    if results.best is None and len(failed) >= MOST_FAILURES:
        raise ValueError(
            f"the first {len(failed)} trials failed, the last with {shown(failed[-1].values)}: {failed[-1].failure} "
            "Fix the recipe or the ranges."
        )


def _drop_models(folder: Path, results: SearchResults) -> None:
    # Among hundreds of trials only the best keeps its model. Logs and costs are small, and the report shows them.
    for trial in results.ranking[1 if results.best else 0 :]:
        for path in (folder / FOLDER / f"{trial.number:04}").glob("*"):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in KEPT:
                path.unlink()


class SearchStore:
    """The file of a search in its folder, of one process; the direction is Optuna's, the seed that of the values."""

    def __init__(self, folder: Path, direction: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # each trial has a line of its own
        self.seed = seed
        storage = optuna.storages.RDBStorage(f"sqlite:///{folder.resolve() / DATABASE}")
        self.study = optuna.create_study(storage=storage, study_name=STUDY, direction=direction, load_if_exists=True)

    def begin(self, own_values: dict[str, Any] | None, log: Callable[[str], None]) -> None:
        """Prepares a new search, or one that was stopped, whose unfinished trial is then tried again and logged.

        The first trial has `own_values`; without, its values are drawn as those of the others.
        """
        from optuna.trial import TrialState

        # Optuna cannot repeat a trial: the unfinished trial fails without a failure of ours, which does not count, and
        # its values are queued for a new one. What it had trained is in the folder of its number, and resumes.
        for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
            self.study.tell(trial.number, state=TrialState.FAIL)
        trials, number = self.study.get_trials(), len(self.ended())
        if trials and (trials[-1].state == TrialState.WAITING or _has_ended(trials[-1])):
            return
        values = own_values if number == 0 and own_values else {}
        if trials:
            values = values | trials[-1].params
            log(f"trial {number} was not finished; it resumes")
        if values:
            self.study.enqueue_trial(values)

    def ended(self) -> list[Trial]:
        """Trials that have a value or failed, in their order; not those that were killed."""
        trials = []
        for one in filter(_has_ended, self.study.get_trials(deepcopy=False)):
            notes, failure = one.user_attrs, one.user_attrs.get(FAILURE)
            value = one.value if failure is None else None
            trials.append(Trial(notes[NUMBER], dict(one.params), value, notes.get(FACTS, {}), failure))
        return sorted(trials, key=lambda trial: trial.number)

    def ask(self, ranges: Mapping[str, Range]) -> tuple[int, dict[str, Any]]:
        """The number and the values by field of the next trial, or of the one that is tried again."""
        from optuna.samplers import TPESampler

        # The sampler's seed depends on the trial's number: a sampler that a second start seeded like the first would
        # draw the first values again. So a search that was killed tries what it would have tried.
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
    # A trial that was stopped has neither a value nor a failure of its own.
    return trial.state.is_finished() and (trial.value is not None or FAILURE in trial.user_attrs)


SEARCH = StudyKind("ranges", "search", "search", Search, run_search)
