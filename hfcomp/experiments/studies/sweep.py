"""Sweeps: variants of a method under several settings and seeds, each trained from the same base on the same rows.

The table of how embeddings move during training follows Table 5 of AHNPL (Huang et al. 2025, arXiv 2505.15576, section
4.6), which follows two examples from the zero-shot model to the middle and the end of training. This module follows a
set of held-out rows, and examples from it, at checkpoints that are kept for this purpose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset

from hfcomp import __version__
from hfcomp.data.columns import require_columns
from hfcomp.data.loading import load_training_set
from hfcomp.data.overlap import ScoredImages
from hfcomp.data.overlap.policy import ALLOW, check_own_split
from hfcomp.data.pair_table import choose_captions
from hfcomp.distributed import first_process_first, run_on_main_process
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.experiments.arm import Arm, Checkpoints, Scoring, check_rows, method_arm
from hfcomp.experiments.controls import CONTROLS, NotApplicable
from hfcomp.experiments.data import Log, load_rows, num_negatives, training_rows
from hfcomp.experiments.experiment_config import SANDBOX
from hfcomp.experiments.prepare import check_primary, declared_averages, prepare
from hfcomp.experiments.recipe_files import StudyKind
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.studies.embedding_distances import (
    BASE_STEP,
    HeldOutRows,
    Tables,
    distances,
    report_paths,
    select_rows,
)
from hfcomp.experiments.studies.plan_files import Sweep
from hfcomp.experiments.studies.plans import EmbeddingPlan
from hfcomp.experiments.studies.sweep_report import check_choice, part_name, publish_sweep, summarize_sweep
from hfcomp.experiments.study import Study
from hfcomp.statistics import Outcomes
from hfcomp.statistics.measures import headline_measures
from hfcomp.statistics.summary import BASE
from hfcomp.trainers.cost import StageSummary

FOLDER = "embeddings"


def run_sweep(sweep: Sweep, kind: type[Study] = Study) -> Path:
    """Trains and evaluates every part, and returns the folder.

    The folder contains `config.yaml`, `base/` (if it was created here), `<setting>/<seed>/<variant>/`, `evaluation/`
    with the outcomes of each, `sweep.json`, `report.md` and `finished`, and with `embeddings` also the files of
    `report_paths`. A killed sweep resumes if it is started again with the same values. With `DryRun` as the `kind` of
    study, the sweep leaves no files.
    """
    plan, recipe = sweep.plan, sweep.recipe
    session = open_session(recipe.trainer_arguments)
    sizes = f"settings {len(plan.settings)}, seeds {len(plan.seeds)}, variants {len(plan.variants)}"
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}, {len(sweep.parts)} runs ({sizes})")
    check_rows((method_arm(part, None, name=part_name(*key)) for key, part in sweep.parts.items()), session)
    how = {"column_names": recipe.column_names, "seed": plan.scenes, "log": session.log}
    evaluate = prepare(recipe.experiment, **how)
    if plan.benchmarks or plan.choose or recipe.experiment.primary:
        run_on_main_process(lambda: evaluate.check_names(partial(_check_names, sweep)))
    for note in sweep.notes:
        session.log(note)
    held_out = _held_out(sweep, session)
    first = first_rows(sweep, session, evaluate.images)
    with kind.open(recipe, session, evaluate) as study:
        study.check_base(lambda: _check_base(sweep, study, held_out))
        study.run(sweep_arms(sweep, study, first, evaluate.images, held_out), number=len(sweep.parts))
        study.write_report(lambda: _report(sweep, study, held_out))
    return study.folder


def _check_base(sweep: Sweep, study: Study, held_out: HeldOutRows | None) -> None:
    # A benchmark or endpoint that is not evaluated, or held-out rows that cannot be scored, must raise now.
    _check_names(sweep, study.outcomes([BASE]))
    if held_out is not None:
        score_base(study, held_out)


def _check_names(sweep: Sweep, outcomes: Outcomes) -> None:
    primary = check_primary(sweep.recipe.experiment, outcomes)
    declared = declared_averages(sweep.recipe.experiment)
    scored = headline_measures(outcomes, sweep.plan.benchmarks, primary, declared)
    if sweep.plan.choose is not None:
        check_choice(sweep.plan.choose, [measure.name for measure in scored], primary)


def _report(sweep: Sweep, study: Study, held_out: HeldOutRows | None) -> None:
    plan, folder, outcomes = sweep.plan, study.folder, study.outcomes()
    experiment, further, facts = sweep.recipe.experiment, [], study.facts(sweep.recipe.given, len(plan.seeds))
    if plan.embeddings is not None and held_out is not None:
        about = dict(zip(("setting", "seed"), plan.first, strict=True)) | {"plan": plan.embeddings.model_dump()}
        how = {"examples": plan.embeddings.examples, "caveat": study.caveat()}  # the caveat for a single run
        further = [report_paths(folder, read_paths(study, held_out), held_out, about, **how)]
    results = summarize_sweep(outcomes, plan, folder, declared_averages(experiment), experiment.primary)
    costs = list(study.costs.values())
    publish_sweep(folder, results, stages=costs, facts=facts, primary=experiment.primary, further=further)


def _held_out(sweep: Sweep, session: Session) -> HeldOutRows | None:
    """Rows whose embeddings are followed, generated or loaded like those of the first setting."""
    if sweep.plan.embeddings is None:
        return None
    part = max((sweep.first(variant) for variant in sweep.plan.variants), key=num_negatives)
    # Uses a seed that no run trains on; otherwise the rows would contain training scenes of the sandbox.
    settings = {"seed": max(sweep.plan.seeds) + 1, "num_negatives": num_negatives(part)}
    return held_out_rows(part, sweep.plan.embeddings.rows, **settings, session=session)


def sweep_arms(
    sweep: Sweep,
    study: Study,
    first: dict[str, dict[str, Any]],
    scored: Sequence[ScoredImages] = (),
    held_out: HeldOutRows | None = None,
) -> Iterator[Arm]:
    """Yields the arms by setting and seed, and loads the next rows after the current arms are trained.

    The rows of the first seed come from `first_rows`.
    """
    plan, session = sweep.plan, study.session
    for setting in plan.settings:
        for seed in plan.seeds:
            rows = first.pop(setting, None) or _rows(sweep, setting, seed, session, scored)
            session.overlap.check_and_write(study.folder)
            # Builds all arms before training the first: an arm that cannot be built must not waste the training of
            # others.
            arms = [_arm(sweep, setting, seed, variant, rows[variant]) for variant in plan.variants]
            if held_out is not None and (setting, seed) == plan.first:
                arms = [follow(arm, sweep.plan.embeddings, held_out, session) for arm in arms]
            yield from arms
            _log_unequal_steps([study.cost(arm.name) for arm in arms], session)


def first_rows(sweep: Sweep, session: Session, scored: Sequence[ScoredImages] = ()) -> dict[str, dict[str, Any]]:
    """Loads and checks the first seed's rows of all settings, by setting and variant, before anything is trained."""
    _, seed = sweep.plan.first
    by_setting = {setting: _rows(sweep, setting, seed, session, scored) for setting in sweep.plan.settings}
    arms = (
        _arm(sweep, setting, seed, variant, rows)
        for setting, by_variant in by_setting.items()
        for variant, rows in by_variant.items()
    )
    check_rows(arms, session)
    return by_setting


def _rows(
    sweep: Sweep, setting: str, seed: int, session: Session, scored: Sequence[ScoredImages] = ()
) -> dict[str, Any]:
    # Variants share their rows, with the largest number of negatives that any of them reads; otherwise they would also
    # differ in their data. Variants with other column names read other rows.
    kinds: dict[str, list[str]] = {}
    for variant in sweep.plan.variants:
        names = sweep.parts[setting, seed, variant].trainer_arguments.get("column_names")
        kinds.setdefault(json.dumps(names, sort_keys=True), []).append(variant)
    rows: dict[str, Any] = {}
    for variants in kinds.values():
        recipes = [sweep.parts[setting, seed, variant] for variant in variants]
        trainers = [recipe.trainer_class for recipe in recipes]
        shared = load_rows(max(recipes, key=num_negatives), session, scored, trainers=trainers)
        rows |= dict.fromkeys(variants, shared)
    return rows


def _arm(sweep: Sweep, setting: str, seed: int, variant: str, rows: Any) -> Arm:
    name, after = part_name(setting, seed, variant), sweep.plan.variants[variant].after
    start = part_name(setting, seed, after) if after else BASE
    arm, control = method_arm(sweep.parts[setting, seed, variant], *rows), sweep.plan.variants[variant].control
    try:
        arm = arm if control is None else CONTROLS[control](replace(arm, name=name))
    except NotApplicable as reason:
        raise ValueError(f"{name}: control {control} is not informative: {reason}") from None
    # No description, because a plan describes its variants itself.
    return replace(arm, name=name, start=start, description="")


def _log_unequal_steps(costs: list[StageSummary], session: Session) -> None:
    # An objective may leave out rows, so its epochs may have fewer steps than those of other variants.
    steps = {cost.name: cost.steps for cost in costs}
    if len(set(steps.values())) > 1:
        session.log(f"the runs differ in steps: {', '.join(f'{name} {number}' for name, number in steps.items())}")


def held_out_rows(recipe: Recipe, wanted: int, *, seed: int, num_negatives: int, session: Session) -> HeldOutRows:
    """Loads at most `wanted` held-out rows that resemble the training rows.

    For the sandbox, these are other scenes with the same kinds and number of negatives; no run may train on `seed`.
    Otherwise, these are the first rows with an image and a negative in `evaluation_split`.
    """

    def log(note: str) -> None:
        session.log(f"embeddings: {note}")

    config = recipe.experiment
    with first_process_first():  # the other processes then use its cache
        if config.dataset == SANDBOX:
            # Without the noise of training, every caption is true and every negative is false.
            clean = {"edit_noise": 0.0, "caption_noise": 0.0, "false_negatives": 0.0}
            clean |= {"ratings": "bands", "concreteness_ratings": None}  # not read
            config = config.model_copy(update={"dataset_rows": wanted, **clean})
            rows = training_rows(config, seed=seed, log=log, num_negatives=num_negatives)
            source = f"the sandbox (seed {seed})"
        else:
            rows = _own_rows(recipe, log)
            source = f"{config.evaluation_dataset or config.dataset} ({config.evaluation_split})"
        held_out = select_rows(rows, wanted, source)
    log(f"{len(held_out):,} rows of {source}, with {sum(map(len, held_out.negatives)):,} negatives")
    return held_out


def _own_rows(recipe: Recipe, log: Log) -> Dataset:
    config = recipe.experiment
    source = config.evaluation_dataset or config.dataset
    if config.evaluation != "own":  # else it has been checked
        training = config.dataset, config.dataset_split
        how = {"allow": config.overlap == ALLOW, "streaming": config.streaming, "log": log}
        check_own_split(*training, source, config.evaluation_split, **how)
    part = {"split": config.evaluation_split, "config": config.dataset_config}
    rows = load_training_set(source, **part, column_names=recipe.column_names)
    require_columns(rows, ("image", "caption", "negative_captions"), needed_by=f"embeddings ({source})")
    return choose_captions(rows, "longest", log)


def follow(arm: Arm, plan: EmbeddingPlan, rows: HeldOutRows, session: Session) -> Arm:
    """Adds checkpoints to an arm of a sweep if its variant is followed."""
    # Saving does not change weights. Until the arm ends, its checkpoints are on disk, each as large as the model. An
    # arm that is killed during training starts over, because checkpoints contain only the model. An arm that is killed
    # later resumes, and scored checkpoints are not scored again.
    variant = arm.name.rpartition("/")[2]
    if variant not in plan.variants:
        return arm
    scoring = _scoring(rows, session)
    return replace(arm, checkpoints=Checkpoints(plan.save_steps, lambda step: scoring, f"{FOLDER}/{variant}"))


def score_base(study: Study, rows: HeldOutRows) -> pd.DataFrame:
    return study.score(study.models[BASE], _scoring(rows, study.session), f"{FOLDER}/{BASE_STEP}")


def read_paths(study: Study, rows: HeldOutRows) -> dict[str, Tables]:
    """`distances` by variant and step, with the base at step 0; main process only."""
    base = {BASE_STEP: score_base(study, rows)}
    return {name.rpartition("/")[2]: base | tables for name, tables in study.checkpoint_outcomes.items()}


def _scoring(rows: HeldOutRows, session: Session) -> Scoring:
    def score(embedder: Embedder) -> pd.DataFrame:
        table, truncated = distances(embedder, rows)
        if truncated:
            session.log(f"embeddings: {truncated} texts exceed the text tower's maximum length and were truncated")
        return table

    return Scoring(score, {"rows": rows.digest, "hfcomp_version": __version__})


SWEEP = StudyKind("variants", "sweep", "report", Sweep, run_sweep)
