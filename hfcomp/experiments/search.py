"""A search for the values of a recipe's fields, by the value of a benchmark, which goes on where it was killed."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch

from hfcomp import __version__
from hfcomp.distributed import fail_together, on_main_process
from hfcomp.experiments.arm import check_rows, method_arm
from hfcomp.experiments.base import prepare
from hfcomp.experiments.data import load_rows, num_negatives
from hfcomp.experiments.evaluate import check_scored
from hfcomp.experiments.plan_files import Search, shown
from hfcomp.experiments.search_report import SearchReport, publish_search, read_trials, trial_line
from hfcomp.experiments.search_store import FILE as DATABASE
from hfcomp.experiments.search_store import SearchStore, Trial
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.study import Study
from hfcomp.statistics import Outcomes
from hfcomp.statistics.measures import search_measure
from hfcomp.statistics.score import Score, score
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.stages import HISTORY_FILE, SUMMARY_FILE

FOLDER = "trials"
# What stays of a trial that is not the best.
KEPT = (SUMMARY_FILE, HISTORY_FILE)
LONGEST_REASON = 300
DATABASE_FIX = "Put it back from a copy, or choose another --output_dir for a new search."
# A report's own items are drawn with 0: what was chosen is then scored on others.
SEED_OF_ITEMS = 1
# So many failures before the first value mean that something else is wrong than a trial's values.
MOST_FAILURES = 3


def run_search(search: Search) -> Path:
    """Trains and scores every trial, and returns the folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `search.db` (Optuna's), `trials/<number>/`, of
    which the best keeps its model, `evaluation/` with the outcomes of each, after every trial `best.yaml` (a recipe),
    `trials.csv`, `search.json` and `report.md`, and `finished`, written last. Started again with the same values it
    goes on where it was killed: trials that have ended are kept, the unfinished one goes on from its last checkpoint.
    A finished search goes on with the rest when more trials are asked for.

    Raises:
        ValueError: for a measure that the evaluation does not give, or when the first trials all fail.
    """
    plan, recipe = search.plan, search.recipe
    session = open_session(recipe.trainer_arguments)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, a search of {plan.trials} trials")
    ends = {f"{search.path}: ranges: with {values}": part for values, part in search.parts.items()}
    check_rows((method_arm(part, None, name=name) for name, part in ends.items()), session)
    evaluate = prepare(recipe, session, seed=SEED_OF_ITEMS)
    on_main_process(lambda: check_scored(evaluate, partial(_check_measure, plan.measure)))
    rows = load_rows(max(ends.values(), key=num_negatives), session, evaluate.images)
    check_rows((method_arm(part, rows, name=name) for name, part in ends.items()), session)

    def wants_more(folder: Path) -> bool:
        return len(read_trials(folder)) < plan.trials

    with Study.open(recipe, session, evaluate, wants_more=wants_more) as study:
        base = on_main_process(lambda: _score(search, study, BASE))  # what is not scored costs no training
        report = SearchReport(search, base)
        _try_all(search, study, rows, report)
    return study.folder


def _check_measure(measure: str, outcomes: Outcomes) -> None:
    search_measure(outcomes, measure)


def _score(search: Search, study: Study, name: str) -> Score:
    return score(study.outcomes([name]), search.plan.measure)


def _try_all(search: Search, study: Study, rows: Any, report: SearchReport) -> None:
    """Trials until there are as many as asked for, those of an earlier start among them."""
    plan, session = search.plan, study.session
    with fail_together():
        store = _open_store(search, study) if session.state.is_main_process else None

    def ask() -> tuple[int, dict[str, Any]] | None:
        report.trials, report.best = store.ended(), store.best()
        ended = len(report.trials) >= plan.trials
        publish_search(study.folder, report, session.notes, shown=ended)
        _drop_models(study.folder, report)
        if ended:
            return None
        _check_failures(report)
        return store.ask(plan.ranges)

    def tell(trial: Trial) -> None:
        store.tell(trial)
        session.state.print(trial_line(trial, plan, store.best()))

    study.pace.stages = plan.trials
    while (asked := on_main_process(ask)) is not None:
        trial = try_values(search, study, rows, *asked)
        on_main_process(partial(tell, trial))


def try_values(search: Search, study: Study, rows: Any, number: int, values: dict[str, Any]) -> Trial:
    """Trains and scores one trial.

    Args:
        search: that it is of.
        study: that trains it.
        rows: that all trials are trained on.
        number: in the order of the search, from 0.
        values: by field.
    """
    name, session = f"{FOLDER}/{number:04}", study.session
    study.pace.stage = number + 1
    try:
        cost = study.train(method_arm(search.trial(values), rows, name=name))
    except _failures(session) as error:
        return Trial(number, values, None, {}, f"{type(error).__name__}: {error}"[:LONGEST_REASON])
    found = on_main_process(lambda: _score(search, study, name))
    if not math.isfinite(found.value):
        return Trial(number, values, None, {}, f"the value is {found.value}")
    facts = {"low": found.low, "high": found.high, "steps": cost.steps, "seconds": cost.seconds}
    return Trial(number, values, found.value, facts, None)


def _failures(session: Session) -> tuple[type[Exception], ...]:
    """Loss or weights that are no longer finite, values that do not go together, and on one process no memory.

    Of several processes one alone may run out of memory, and the others would wait for it.
    """
    alone = session.state.num_processes == 1
    return (FloatingPointError, ValueError, *((torch.OutOfMemoryError,) if alone else ()))


def _open_store(search: Search, study: Study) -> SearchStore:
    """The trials of an earlier start among them, which `search.json` knows too.

    Raises:
        ValueError: naming the database, where it is damaged or lacks some.
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
    """The recipe's own values, which are tried first; none when the ranges leave one out."""
    own = search.own_values()
    outside = {name: value for name, value in own.items() if value not in search.plan.ranges[name]}
    if outside:
        session.log(f"the recipe's own {shown(outside)} is outside the ranges, so it is not among the trials")
    return None if outside else own


def _check_failures(report: SearchReport) -> None:
    failed = [trial for trial in report.trials if trial.failure]
    if report.best is None and len(failed) >= MOST_FAILURES:
        raise ValueError(
            f"the first {len(failed)} trials failed, the last with {shown(failed[-1].values)}: {failed[-1].failure} "
            "Fix the recipe or the ranges."
        )


def _drop_models(folder: Path, report: SearchReport) -> None:
    """Removes the weights and checkpoints of trials that have ended, but for the best."""
    for trial in report.trials:
        for path in (folder / FOLDER / f"{trial.number:04}").glob("*") if trial != report.best else ():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in KEPT:
                path.unlink()
