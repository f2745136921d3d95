"""Runs a recipe: the base, the controls and the method trained from it, then a single evaluation and report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset

from hfcomp import __version__
from hfcomp.data.loading import read_commit
from hfcomp.data.overlap import ScoredImages
from hfcomp.data.sampling.replay import count_replay_rows
from hfcomp.distributed import run_on_main_process
from hfcomp.evaluation.blind.results import BlindResults
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.items.item_browser import ItemImages, item_browser
from hfcomp.experiments.arm import Arm, check_rows, method_arm
from hfcomp.experiments.controls import EQUAL_IMAGES, NotApplicable, compared_arms, equal_images
from hfcomp.experiments.data import TrainingSet, load_rows
from hfcomp.experiments.experiment_config import SAME_BATCH, SANDBOX, ExperimentConfig
from hfcomp.experiments.guard import Guard, guard_models, guarded_models, prepare_guard, wants_guard
from hfcomp.experiments.origin import default_facts, multi_process_command
from hfcomp.experiments.prepare import check_primary, declared_averages, prepare, published_effects, score_blind_rules
from hfcomp.experiments.pushing import RunPush
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.report import FIGURE, publish_run
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.study import Study
from hfcomp.experiments.tracking import track_results
from hfcomp.merging.sweep import ALPHAS
from hfcomp.reporting.cards.methods import class_names
from hfcomp.reporting.pages.items import ItemBrowser, PageOptions
from hfcomp.reporting.run_record import CONTROLS_FOLDER, METHOD_FOLDER, SEEDS_FOLDER
from hfcomp.statistics import Outcomes
from hfcomp.statistics.measures import missing_averages, usable_averages
from hfcomp.statistics.outcomes import NO_SEED
from hfcomp.statistics.run import summarize_run
from hfcomp.statistics.summary import BASE

FIRST_SEED = (
    "The model in method/, the items in report.html and the models' text priors come from seed {seed}; the models of "
    "the other seeds are in seeds/."
)


def run(recipe: Recipe, kind: type[Study] = Study) -> Path:
    """Runs an experiment and returns its folder.

    The folder contains `config.yaml`, `base/` (if it was created here), `controls/<name>/`, `method/` (plain models
    with a processor), `evaluation/<name>.parquet` (with `.prior.parquet` and `.scores.parquet`), `items.parquet`,
    `blind.parquet` (choices of the blind rules), `results.json`, `report.md`, `report.html`, `figure.png`, the model
    card `README.md` (with `.eval_results/` if Hub benchmarks were scored), `overlap.json` (images that are both
    trained on and scored) and `finished`, written last; with `forgetting_guard` also `method-guarded/` and
    `controls/same-batch-guarded/`. With several `seeds`, these models belong to the first seed; the others are in
    `seeds/<seed>/controls/<name>/` and `seeds/<seed>/method/`.
    A killed run resumes if it is started again with the same values: finished parts are not repeated, and the numbers
    are the same. With `push_to_hub`, the method is pushed when the run is finished; write access is checked before
    training. With `DryRun` as the `kind` of study, the run leaves no files and pushes nothing.
    """
    experiment = recipe.experiment
    push = RunPush.of(recipe.push, experiment.method) if kind is Study else None
    session = open_session(recipe.trainer_arguments)
    session.state.print(f"hfcomp {__version__}: {experiment.method}")
    evaluate = prepare(experiment, column_names=recipe.column_names, log=session.log)
    blind = run_on_main_process(partial(score_blind_rules, experiment, evaluate))
    guard = prepare_guard(experiment, session, evaluate, recipe.column_names)
    # Checks everything that may be mistyped before rows are loaded. A folder is created only after the rows pass too.
    published_effects(experiment)
    check_rows([method_arm(recipe, None)], session)
    if push is not None:
        run_on_main_process(push.check)
    check = partial(check_primary, experiment)
    if experiment.primary is not None:
        run_on_main_process(lambda: evaluate.check_names(check))
    scored = [*evaluate.images, *(guard.images if guard else ())]
    rows = load_rows(recipe, session, scored)
    first = _arms(recipe, rows, session)
    # Arms with other rows are the method itself on a view of its rows.
    check_rows([arm for arm in first if arm.rows is rows.rows], session)
    size = first[-1].batch_size
    # Later seeds, `config.yaml` and the report use the batch size that the first seed's rows allow.
    experiment = experiment.model_copy(update={"batch_size": size})
    given, batch = {**recipe.given, "batch_size": size}, recipe.batch._replace(rows=size)
    recipe = replace(recipe, experiment=experiment, given=given, batch=batch)

    def wants_more(folder: Path) -> bool:
        return wants_guard(experiment, folder) or (push is not None and push.is_missing(folder))

    with kind.open(recipe, session, evaluate, wants_more=wants_more) as study:
        study.keep_scores = experiment.page and experiment.page_items > 0
        study.keep_priors = True
        if experiment.primary is not None:
            study.check_base(lambda: check(study.outcomes([BASE])))
        rows_by_seed = {recipe.seeds[0]: rows}
        number = len(first) + (EQUAL_IMAGES in experiment.controls)
        study.run(_arms_of_seeds(study, recipe, first, scored, rows_by_seed), number=number * len(recipe.seeds))
        if guard is not None:
            study.plan_points(guard.evaluator, guarded_models(study, experiment.method), len(ALPHAS))
        study.write_report(lambda: _report(study, recipe, rows_by_seed, evaluate, guard, blind))
    if push is not None and session.state.is_main_process:
        push.push(study.folder, print)
    return study.folder


def _arms(recipe: Recipe, rows: TrainingSet, session: Session) -> list[Arm]:
    """The controls, then the method, without the control that depends on the cost of the method."""
    method, requested = method_arm(recipe, *rows), "controls" in recipe.given
    return [*compared_arms(recipe.experiment, method, requested=requested, log=session.log), method]


def _arms_of_seeds(
    study: Study,
    recipe: Recipe,
    arms: Sequence[Arm],
    scored: Sequence[ScoredImages],
    rows_by_seed: dict[int, TrainingSet],
) -> Iterator[Arm]:
    """Yields the arms seed by seed, and loads a seed's rows after the arms of the previous seed are trained.

    `arms` belong to the first seed; `rows_by_seed` receives the rows of the others.
    """
    for seed in recipe.seeds:
        if seed not in rows_by_seed:
            own = recipe.with_seed(seed)
            rows_by_seed[seed] = load_rows(own, study.session, scored)
            study.session.overlap.check_and_write(study.folder)
            arms = _arms(own, rows_by_seed[seed], study.session)
        method, place = arms[-1], _place(seed, recipe.seeds)
        for arm in _with_equal_images(study, arms, place):
            folder = METHOD_FOLDER if arm.name == method.name else f"{CONTROLS_FOLDER}/{arm.name}"
            yield replace(
                arm, name=f"{place}{arm.name}", folder=f"{SEEDS_FOLDER}/{place}{folder}" if place else folder
            )


def _with_equal_images(study: Study, arms: Sequence[Arm], place: str) -> Iterator[Arm]:
    """Yields the arms of a seed and then the control that depends on the cost of the method."""
    yield from arms
    if EQUAL_IMAGES in study.experiment.controls:
        method = arms[-1]
        try:
            yield equal_images(method, study.cost(f"{place}{method.name}"))
        except NotApplicable as reason:
            study.session.log(f"control {EQUAL_IMAGES} is skipped: {reason}")


def _place(seed: int, seeds: Sequence[int]) -> str:
    # Empty for the first seed, so a run with one seed has the same folders.
    return "" if seed == seeds[0] else f"{seed}/"


def _models(study: Study, seeds: Sequence[int]) -> dict[str, tuple[str, int]]:
    """Name and seed of each model in the report, the method last; leaves out controls that a seed lacks."""
    places, method = {_place(seed, seeds): seed for seed in seeds}, study.experiment.method
    models: dict[str, tuple[str, int]] = {}
    for name in sorted((model for model in study.models if "/" not in model), key=lambda model: model == method):
        if name == BASE or len(places) == 1:
            models[name] = name, NO_SEED
        elif absent := [seed for place, seed in places.items() if f"{place}{name}" not in study.models]:
            study.session.log(f"control {name} is left out of the report because it is missing for seed {absent[0]}")
        else:
            models |= {f"{place}{name}": (name, seed) for place, seed in places.items()}
    return models


def _report(
    study: Study,
    recipe: Recipe,
    rows_by_seed: Mapping[int, TrainingSet],
    evaluator: Evaluator,
    guard: Guard | None,
    blind: BlindResults,
) -> None:
    experiment, seeds, method = recipe.experiment, recipe.seeds, recipe.experiment.method
    if guard is not None:
        guard_models(study, guard, method)
    models = _models(study, seeds)
    names = list(dict.fromkeys(name for name, _ in models.values()))
    outcomes = study.outcomes(list(models)).relabel(models)
    outcomes = outcomes if guard is None else guard.reported_outcomes(outcomes)
    costs = [study.costs[name] for name in models if name in study.costs]
    declared, planned = declared_averages(experiment), [(method, SAME_BATCH)]
    lines, general = summarize_run(outcomes, names, primary=experiment.primary, declared=declared, planned=planned)
    for gap in missing_averages(outcomes, declared):
        study.session.log(f"{gap['benchmark']}: no {gap['average']}, which needs {', '.join(gap['absent'])}")
    if len(seeds) > 1:
        study.session.log(FIRST_SEED.format(seed=seeds[0]), show=False)
    replay = rows_by_seed[seeds[0]].replay
    data = {
        "training": _training_facts(experiment, [training_set.rows for training_set in rows_by_seed.values()]),
        **({} if replay is None else {"replay": _replay_facts(recipe, replay)}),
        "evaluation": {"name": experiment.evaluation, "dataset": experiment.evaluation_dataset},
        "items": outcomes.digest,
    }
    facts = {**study.facts(recipe.given, len(seeds)), **_card_facts(recipe, study.session, evaluator)}
    facts |= {"general_average": general, "data": data}
    # A model trained with another seed is named "43/plain". The report's table lists the models of the first seed.
    weights = facts["models"]
    facts["models"] = {name: weights[name] for name in weights if "/" not in name}
    further = {name: weights[name]["weights"] for name in weights if "/" in name}
    facts |= {"further_models": further} if further else {}
    blind = blind.with_priors(study.priors(names)).restrict_to(outcomes)
    facts |= {"blind": blind.to_json(usable_averages(outcomes, declared), outcomes, names)}
    facts |= {} if guard is None else {"guard": guard.facts()}
    effects = published_effects(experiment)
    facts |= {"published_effects": effects} if effects else {}
    swept = None if guard is None else guard.swept
    first = outcomes.select(seed=[NO_SEED, seeds[0]])
    shown = _shown_items(study, first, names, evaluator) if experiment.page else None
    page = {"page": experiment.page, "shown_items": shown, "blind": blind}
    publish_run(study.folder, items=outcomes.table, lines=lines, stages=costs, facts=facts, swept=swept, **page)
    track_results(recipe, study.folder, study.folder / FIGURE, lines)


def _shown_items(study: Study, outcomes: Outcomes, names: Sequence[str], evaluator: Evaluator) -> ItemBrowser | None:
    experiment = study.experiment
    return item_browser(
        outcomes.table,
        study.scores(names),
        ItemImages(evaluator.loaded),
        models=names,
        pair=(names[0], names[-1]),
        options=PageOptions(items=experiment.page_items, thumbnails=experiment.page_thumbnails),
    )


def _card_facts(recipe: Recipe, session: Session, evaluator: Evaluator) -> dict[str, Any]:
    """Facts for the card that the report does not need: the origin of each value and the scored data."""
    processes = session.state.num_processes
    return {
        "recipe": recipe.origin.recipe,
        "command": multi_process_command(recipe.origin.command, processes),
        "processes": processes,
        "sources": {name: recipe.origin.sources.get(name, "") for name in recipe.given},
        **default_facts(recipe.trainer_class.config_class, recipe.given),
        "trainer_classes": class_names(recipe.trainer_class),
        "benchmarks": {loaded.benchmark.name: loaded.facts() for loaded in evaluator.loaded},
        "skipped": evaluator.skipped,
    }


def _replay_facts(recipe: Recipe, rows: Dataset) -> dict[str, Any]:
    config = recipe.experiment
    fraction = float(
        recipe.trainer_arguments.get("replay_fraction", recipe.trainer_class.config_class.replay_fraction)
    )
    place = {"dataset": config.replay_dataset, "config": config.replay_config, "commit": read_commit(rows)}
    place |= {"split": None if config.replay_dataset == SANDBOX else config.replay_split}
    number = count_replay_rows(fraction, config.batch_size)
    return {name: value for name, value in place.items() if value is not None} | {
        "rows": len(rows),
        "rows_per_batch": number,
    }


def _training_facts(config: ExperimentConfig, rows_per_seed: Sequence[Any]) -> dict[str, Any]:
    """Facts about the training data of all seeds, with a hash of the captions unless they are streamed."""
    captions, rows = hashlib.sha256(), rows_per_seed[0]
    place = {"dataset": config.dataset, "config": config.dataset_config, "commit": read_commit(rows)}
    place |= {"split": None if config.dataset == SANDBOX else config.dataset_split}
    place = {name: value for name, value in place.items() if value is not None}
    if config.streaming:
        # A stream is not read a second time.
        return {**place, "streaming": True}
    for texts in (texts for own in rows_per_seed for texts in own["caption"]):
        for text in texts if isinstance(texts, list) else [texts]:
            captions.update((text or "").encode() + b"\n")
    digest = captions.hexdigest()[:16]
    return {**place, "rows": len(rows), "captions": f"sha256:{digest}"}
