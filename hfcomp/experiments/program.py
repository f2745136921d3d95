"""What a recipe runs: the base, the controls and the method from it, then one evaluation and one report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate import PartialState
from datasets import Dataset

from hfcomp import __version__
from hfcomp.data.overlap import COLUMNS as IMAGE_COLUMNS
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import fail_together
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.cache_files import default_folder
from hfcomp.evaluation.statistics import Measure
from hfcomp.evaluation.statistics import Outcomes as ItemTable
from hfcomp.experiments.base import check_vocabulary, copy_sandbox_base, make_base, write_vit_b32
from hfcomp.experiments.controls import Control, NotApplicable, applicable
from hfcomp.experiments.data import Tell, training_rows
from hfcomp.experiments.evaluate import Evaluation, declared_averages, prepare_evaluation
from hfcomp.experiments.experiment_config import SANDBOX, SANDBOX_MODELS
from hfcomp.experiments.folders import finish, run_folder
from hfcomp.experiments.outcomes import Outcomes, evaluate_models
from hfcomp.experiments.overlap import check_same_rows, without_scored_rows
from hfcomp.experiments.primary import find_primary, summarize_run
from hfcomp.experiments.recipe_files import check_place
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.report import print_report, write_results
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.stages import Run, StageSummary
from hfcomp.fields import columns_of
from hfcomp.generation.neighbours import with_neighbours
from hfcomp.modeling import load_config, load_processor
from hfcomp.sandbox.bases import base_folder

CAVEATS = {
    SANDBOX: "Synthetic: a drawn world and a tiny model. It shows the mechanism, not what a real CLIP would score.",
    "vit_b32": "Plumbing, not quality: the model started from random weights.",
}
Models = dict[str, Path | str]


def run(recipe: Recipe) -> Path:
    """Runs an experiment and returns its folder.

    The folder holds `config.yaml`, `base/` (when it was made here), `controls/<name>/`, `method/` (plain models with
    their processor), `evaluation/<name>.parquet`, `items.parquet`, `results.json`, `report.md`, `figure.png`,
    `README.md`, the model card, `overlap.json`, what was found of images that are both trained on and scored, and
    `finished`, written last. A run that was killed goes on when it is started again
    with the same values: what is finished is not repeated, and the numbers are the same.
    """
    session = open_session(recipe.trainer_arguments)
    session.state.print(f"hfcomp {__version__}: {recipe.experiment.method}")
    evaluate = prepare(recipe, session)
    method = method_run(recipe, load_rows(recipe, session, evaluate.images))
    check_rows([method], session)
    controls = applicable(recipe.experiment.controls, method, asked="controls" in recipe.given, tell=session.tell)
    # not before everything is loaded: a mistyped path takes no folder
    with run_folder(output_folder(recipe), recipe.given, session.state) as folder:
        session.state.print(f"-> {folder}")
        check_same_rows(folder, session)
        stages: list[StageSummary] = []
        models: Models = {"base": base_model(recipe, folder)}
        named = recipe.experiment.primary is not None
        with fail_together():
            if named and session.state.is_main_process:  # one that is not evaluated costs no training
                check_primary(recipe, evaluate_models(recipe, folder, models, evaluate, session).items)
        _train(method, controls, folder, stages, models, session)
        with fail_together():
            if session.state.is_main_process:
                _report(recipe, folder, stages, models, evaluate, session, method.rows)
                finish(folder)
    session.close()
    return folder


def check_rows(runs: Iterable[Run], session: Session) -> None:
    """Checks the rows of runs before the first is trained, and keeps what they lack for the report.

    Args:
        runs: with their rows.
        session: keeps the lines, which the trainers print.

    Raises:
        ValueError: naming the run whose objective needs negative images that its rows do not have.
    """
    for run in runs:
        try:
            lacking = run.check()
        except ValueError as error:
            raise ValueError(f"{run.name}: {error}") from error
        if lacking:
            session.keep(lacking)


def output_folder(recipe: Recipe) -> Path:
    """The folder that a recipe asks for."""
    return Path(recipe.trainer_arguments.get("output_dir") or f"runs/{recipe.experiment.method}".lower())


def prepare(recipe: Recipe, session: Session) -> Evaluation:
    """Looks for the base and loads what is evaluated, before anything is written."""
    prepare_base(recipe)
    names = recipe.trainer_arguments.get("column_names")
    return prepare_evaluation(recipe.experiment, column_names=names, seed=0, tell=session.tell)


def prepare_base(recipe: Recipe) -> None:
    """Looks for the base and the files of a recipe, so that a mistyped name costs nothing.

    Raises:
        OSError: for a path without a file or folder, or a Hub id that cannot be loaded.
        ValueError: for a model that is not a supported dual encoder, or whose weights are incomplete.
    """
    config = recipe.experiment
    for name in ("model", "dataset", "evaluation_dataset", "captions_file", "concreteness_ratings"):
        check_place(name, getattr(config, name))
    if config.model:
        try:
            load_config(config.model)
            load_processor(config.model, argument="--model")
        except OSError as error:
            place = "" if Path(config.model).is_dir() else "no such folder here, and from the Hub: "
            raise OSError(f"model={config.model}: {place}{error}") from error
    elif config.fresh_model not in SANDBOX_MODELS:
        check_vocabulary(config.clip_vocabulary)


def load_rows(
    recipe: Recipe,
    session: Session,
    scored: Sequence[ScoredImages],
    *,
    part: str = "",
    trainers: Sequence[type] = (),
) -> Dataset:
    """The rows that the method and its controls train on, of which those with a scored image are left out, as asked.

    Args:
        recipe: of the rows.
        session: reports notes about them and keeps what was found of scored images.
        scored: the images of the evaluation.
        part: what lines about them begin with.
        trainers: that train on these rows beside the recipe's own.
    """
    arguments = recipe.trainer_arguments

    def tell(note: str) -> None:
        session.tell(f"{part}: {note}" if part else note)

    with PartialState().main_process_first():  # the others find what it cached
        rows = training_rows(
            recipe.experiment,
            column_names=arguments.get("column_names"),
            seed=_seed(recipe),
            tell=tell,
            num_negatives=num_negatives(recipe),
        )
    key = {"seed": _seed(recipe), "columns": arguments.get("column_names"), "negatives": num_negatives(recipe)}
    bars = session.state.is_main_process and not arguments.get("disable_tqdm")
    read = {"image", *columns_of(name for one in (recipe.trainer_class, *trainers) for name in one.required_features)}
    columns = [name for name in IMAGE_COLUMNS if name in read]
    how = {"tell": tell, "key": key, "columns": columns, "progress": bars}
    rows = without_scored_rows(rows, scored, recipe.experiment, session, **how)
    with PartialState().main_process_first():
        return _with_hard_images(recipe, rows, tell)


def _with_hard_images(recipe: Recipe, rows: Dataset, tell: Tell) -> Dataset:
    """The rows with each image's nearest by the base, where the recipe asks for them."""
    config = recipe.experiment
    if not config.hard_images:
        return rows
    place = config.model or base_folder(SANDBOX_MODELS[config.fresh_model])
    device = "cpu" if recipe.trainer_arguments.get("use_cpu") else None
    cache = EmbeddingCache(default_folder())
    return with_neighbours(rows, place=place, number=config.hard_images, tell=tell, cache=cache, device=device)


def method_run(recipe: Recipe, rows: Dataset | None, *, name: str | None = None) -> Run:
    """The method's own run, without rows only to be checked; its name is the method's unless another is given."""
    arguments = recipe.trainer_arguments
    own = {key: value for key, value in arguments.items() if key not in ("output_dir", "column_names")}
    return Run(name or recipe.experiment.method, recipe.trainer_class, own, rows, recipe.experiment.batch_size)


def base_model(recipe: Recipe, folder: Path) -> Path | str:
    """The model that all runs start from: the recipe's, or one written to `folder`."""
    config = recipe.experiment
    if config.model:
        return config.model
    base = folder / "base"
    if config.fresh_model in SANDBOX_MODELS:
        make_base(base, partial(copy_sandbox_base, architecture=SANDBOX_MODELS[config.fresh_model]))
    else:
        make_base(base, partial(write_vit_b32, vocabulary=config.clip_vocabulary, seed=_seed(recipe)))
    return base


def num_negatives(recipe: Recipe) -> int:
    """Entries of a row's negatives: as many as the trainer reads, and one for the controls of one that reads none."""
    default = {field.name: field.default for field in fields(recipe.trainer_class.config_class)}["num_negatives"]
    return max(1, int(recipe.trainer_arguments.get("num_negatives", default)))


def _seed(recipe: Recipe) -> int:
    return int(recipe.trainer_arguments.get("seed", 42))


def _train(
    method: Run, controls: list[Control], folder: Path, stages: list[StageSummary], models: Models, session: Session
) -> None:
    """Trains controls and method and adds them to `stages` and `models`, the method last."""
    base = models["base"]
    for control in (control for control in controls if not control.after_method):
        models[control.name] = folder / "controls" / control.name
        stages.append(control.run(method, None).train(base, models[control.name]))
    cost = method.train(base, folder / "method")
    for control in (control for control in controls if control.after_method):
        try:
            later = control.run(method, cost)
        except NotApplicable as reason:
            session.tell(f"control {control.name} is skipped: {reason}")
            continue
        models[control.name] = folder / "controls" / control.name
        stages.append(later.train(base, models[control.name]))
    models[method.name] = folder / "method"
    stages.append(cost)


def _report(
    recipe: Recipe,
    folder: Path,
    stages: list[StageSummary],
    models: Models,
    evaluate: Evaluation,
    session: Session,
    rows: Dataset,
) -> None:
    outcomes = evaluate_models(recipe, folder, models, evaluate, session)
    declared, primary = declared_averages(recipe.experiment), recipe.experiment.primary
    lines, general = summarize_run(outcomes.items, list(models), primary=primary, declared=declared)
    facts = {**run_facts(recipe, session), "models": named_models(models, outcomes), "general_average": general}
    facts["data"] = data_facts(recipe, rows, outcomes)
    write_results(folder, items=outcomes.items, lines=lines, stages=stages, facts=facts)
    print_report(lines, stages, facts, folder)


def check_primary(recipe: Recipe, items: pd.DataFrame) -> Measure | None:
    """The primary endpoint, by the outcomes of the base.

    Raises:
        ValueError: for one that the evaluation does not have, naming those that it has.
    """
    return find_primary(items, recipe.experiment.primary, declared_averages(recipe.experiment))


def data_facts(recipe: Recipe, rows: Dataset, outcomes: Outcomes) -> dict[str, Any]:
    """What was trained on and what was scored, with hashes of the outcomes and, unless streamed, of the captions."""
    config, captions = recipe.experiment, hashlib.sha256()
    training: dict[str, Any] = {"dataset": config.dataset}
    if config.streaming:
        training["streaming"] = True
    else:
        for caption in rows["caption"]:
            captions.update(caption.encode() + b"\n")
        training |= {"rows": len(rows), "captions": f"sha256:{captions.hexdigest()[:16]}"}
    return {
        "training": training,
        "evaluation": {"name": config.evaluation, "dataset": config.evaluation_dataset},
        "items": ItemTable(outcomes.items).digest,
    }


def named_models(models: Models, outcomes: Outcomes) -> dict[str, dict[str, str]]:
    """Where each model lies and what its weights are."""
    return {name: {"path": str(place), "weights": outcomes.weights[name]} for name, place in models.items()}


def run_facts(recipe: Recipe, session: Session) -> dict[str, Any]:
    """What a report says beside its numbers."""
    config = recipe.experiment
    made_here = None if config.model else config.fresh_model
    on_drawn = config.dataset == SANDBOX or config.evaluation.startswith(SANDBOX)
    drawn = on_drawn or made_here in SANDBOX_MODELS
    one_seed = "One seed: differences between seeds are not shown."
    return {
        "hfcomp_version": __version__,
        "method": config.method,
        "caveat": CAVEATS.get(SANDBOX if drawn else made_here or "", one_seed),
        "notes": session.notes,
        "overlap": list({facts["note"]: facts for facts in session.overlaps.values()}.values()),
        "config": recipe.given,
    }
