"""A search for the values of a recipe's fields, by the value of a benchmark, which goes on where it was killed."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from hfcomp import __version__
from hfcomp.distributed import fail_together
from hfcomp.experiments.evaluate import Evaluation, prepare_evaluation
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import evaluate_models
from hfcomp.experiments.overlap import check_same_rows
from hfcomp.experiments.plans import SearchPlan
from hfcomp.experiments.program import (
    base_model,
    check_rows,
    load_rows,
    method_run,
    num_negatives,
    output_folder,
    prepare_base,
)
from hfcomp.experiments.search_file import Search, shown
from hfcomp.experiments.search_goal import Score, score
from hfcomp.experiments.search_report import SearchReport, print_search, trial_line, trials_written, write_search
from hfcomp.experiments.search_store import SearchStore
from hfcomp.experiments.search_trials import TrialRun, TrialTrainer, drop_models
from hfcomp.experiments.session import Session, open_session

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
    prepare_base(recipe)
    names = recipe.trainer_arguments.get("column_names")
    evaluate = prepare_evaluation(recipe.experiment, column_names=names, seed=SEED_OF_ITEMS, tell=session.tell)
    most = max(map(search.trial, search.ends()), key=num_negatives)
    rows = load_rows(most, session, evaluate.images)
    check_rows((method_run(search.trial(values), rows) for values in search.ends()), session)
    with run_folder(
        output_folder(recipe),
        recipe.given,
        session.state,
        wants_more=lambda folder: trials_written(folder) < plan.trials,
    ) as folder:
        session.state.print(f"-> {folder}")
        check_same_rows(folder, session)
        base = base_model(recipe, folder)
        base_score = _base_score(search, folder, base, evaluate, session)
        run = TrialRun(search.trial, plan.measure, folder, base, rows, evaluate, session)
        report = SearchReport(plan, recipe, search.path, search.result, base_score)
        _try_all(search, run, report)
        with fail_together():
            if session.state.is_main_process:
                print_search(report, folder)
                finish(folder)
    session.close()
    return folder


def _base_score(
    search: Search, folder: Path, base: Path | str, evaluate: Evaluation, session: Session
) -> Score | None:
    """Of the base, on the main process: a measure that does not exist costs no training."""
    found = None
    with fail_together():
        if session.state.is_main_process:
            items = evaluate_models(search.recipe, folder, {"base": base}, evaluate, session).items
            found = score(items, search.plan.measure)
    return found


def _try_all(search: Search, run: TrialRun, report: SearchReport) -> None:
    """Trials until there are as many as asked for, those of an earlier start among them."""
    plan, state = search.plan, run.session.state
    store = SearchStore(run.folder, plan.direction, plan.seed) if state.is_main_process else None
    if store is not None:
        store.begin(_own_values(search, run.session), state.print)
    trainer = TrialTrainer(run, run.folder, use_cpu=state.device.type == "cpu")
    while True:
        if store is not None:
            report.update(store.ended(), store.best())
            write_search(run.folder, report, run.session.notes)
            drop_models(run.folder, (trial.number for trial in report.trials if trial != report.best))
        run.number = _shared(len(report.trials), state)
        if run.number >= plan.trials:
            return
        _check_failures(report)
        _try_one(trainer, run, plan, store)
        if store is not None:
            state.print(trial_line(store.ended()[-1], plan, store.best()))


def _try_one(trainer: TrialTrainer, run: TrialRun, plan: SearchPlan, store: SearchStore | None) -> None:
    try:
        trainer.hyperparameter_search(
            partial(_values, plan),
            itemgetter("value"),
            n_trials=1,
            direction=plan.direction,
            backend="optuna",
            **(store.settings(run.number) if store is not None else {}),
        )
    except ValueError:
        # transformers asks for the best trial at the end; there is none as long as all have failed
        if not run.failure:
            raise
    run.session.state.wait_for_everyone()


def _values(plan: SearchPlan, trial: Any) -> dict[str, Any]:
    return {name: space.suggest(trial, name) for name, space in plan.ranges.items()}


def _own_values(search: Search, session: Session) -> dict[str, Any] | None:
    """The recipe's own values, which are tried first; none when the ranges leave one out."""
    own = search.own_values()
    outside = {name: value for name, value in own.items() if value not in search.plan.ranges[name]}
    if outside:
        session.tell(f"the recipe's own {shown(outside)} is outside the ranges, so it is not among the trials")
    return None if outside else own


def _check_failures(report: SearchReport) -> None:
    failed = [trial for trial in report.trials if trial.failure]
    if report.best is None and len(failed) >= MOST_FAILURES:
        raise ValueError(
            f"the first {len(failed)} trials failed, the last with {shown(failed[-1].values)}: {failed[-1].failure} "
            "Fix the recipe or the ranges."
        )


def _shared(number: int, state: Any) -> int:
    """The main process's number."""
    return broadcast_object_list([number])[0] if state.num_processes > 1 else number
