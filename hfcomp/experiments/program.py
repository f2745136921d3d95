"""What a recipe runs: the base, the controls and the method from it, then one evaluation and one report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from hfcomp import __version__
from hfcomp.data.overlap import COLUMNS as IMAGE_COLUMNS
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import first_process_first
from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.cache_files import default_folder
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.base import prepare_base, training_seed
from hfcomp.experiments.controls import EQUAL_IMAGES, NotApplicable, control_arms, equal_images
from hfcomp.experiments.data import Tell, training_rows
from hfcomp.experiments.evaluate import declared_averages, prepare_evaluation
from hfcomp.experiments.experiment_config import SAME_BATCH, SANDBOX, SANDBOX_MODELS
from hfcomp.experiments.outcomes import Scoring, evaluation_settings
from hfcomp.experiments.overlap import without_scored_rows
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.report import publish_run
from hfcomp.experiments.session import Session, open_session
from hfcomp.experiments.study import Study
from hfcomp.fields import columns_of
from hfcomp.generation.neighbours import with_neighbours
from hfcomp.sandbox.bases import base_folder
from hfcomp.statistics import Measure, Outcomes
from hfcomp.statistics.measures import primary_measure
from hfcomp.statistics.run import summarize_run
from hfcomp.statistics.summary import BASE

CAVEATS = {
    SANDBOX: "Synthetic: a drawn world and a tiny model. It shows the mechanism, not what a real CLIP would score.",
    "vit_b32": "Plumbing, not quality: the model started from random weights.",
}


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
    method = method_arm(recipe, load_rows(recipe, session, evaluate.images))
    check_rows([method], session)
    names = recipe.experiment.controls
    controls = control_arms(names, method, asked="controls" in recipe.given, log=session.tell)
    with Study.open(recipe, session, Scoring(evaluate, evaluation_settings(recipe))) as study:
        if recipe.experiment.primary is not None:  # one that is not evaluated costs no training
            session.on_main(lambda: check_primary(recipe, study.outcomes([BASE])))
        study.run(_arms(study, method, controls), number=len(controls) + 1 + (EQUAL_IMAGES in names))
        session.on_main(lambda: _report(study, method))
    return study.folder


def _arms(study: Study, method: Arm, controls: Sequence[Arm]) -> Iterator[Arm]:
    """The controls and the method, and last the control that waits for what the method cost."""
    yield from (replace(arm, folder=f"controls/{arm.name}") for arm in controls)
    yield replace(method, folder="method")
    if EQUAL_IMAGES in study.recipe.experiment.controls:
        try:
            arm = equal_images(method, study.costs[method.name])
        except NotApplicable as reason:
            study.session.tell(f"control {EQUAL_IMAGES} is skipped: {reason}")
        else:
            yield replace(arm, folder=f"controls/{arm.name}")


def check_rows(arms: Iterable[Arm], session: Session) -> None:
    """Checks the values and rows of arms before the first is trained, and keeps what they lack for the report.

    Args:
        arms: with their rows, or without to check their values alone.
        session: keeps the lines, which the trainers print.

    Raises:
        ValueError: naming the arm with a wrong value, or rows without the negative images that it needs.
    """
    for arm in arms:
        try:
            lacking = arm.check()
        except ValueError as error:
            raise ValueError(f"{arm.name}: {error}") from error
        if lacking:
            session.keep(lacking)


def prepare(recipe: Recipe, session: Session, seed: int = 0) -> Evaluator:
    """Looks for the base and loads what is evaluated, before anything is written.

    Args:
        recipe: of both.
        session: logs what was left out.
        seed: of the sandbox's scenes.
    """
    prepare_base(recipe)
    names = recipe.trainer_arguments.get("column_names")
    return prepare_evaluation(recipe.experiment, column_names=names, seed=seed, tell=session.tell)


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

    with first_process_first():  # the others find what it cached
        rows = training_rows(
            recipe.experiment,
            column_names=arguments.get("column_names"),
            seed=training_seed(recipe),
            tell=tell,
            num_negatives=num_negatives(recipe),
        )
    key = {"seed": training_seed(recipe), "columns": arguments.get("column_names"), "negatives": num_negatives(recipe)}
    bars = session.state.is_main_process and not arguments.get("disable_tqdm")
    read = {"image", *columns_of(name for one in (recipe.trainer_class, *trainers) for name in one.required_features)}
    columns = [name for name in IMAGE_COLUMNS if name in read]
    how = {"tell": tell, "key": key, "columns": columns, "progress": bars}
    rows = without_scored_rows(rows, scored, recipe.experiment, session, **how)
    with first_process_first():
        return _with_hard_images(recipe, rows, tell)


def _with_hard_images(recipe: Recipe, rows: Dataset, tell: Tell) -> Dataset:
    """The rows with each image's nearest by the base, where the recipe asks for them."""
    config = recipe.experiment
    if not config.hard_images:
        return rows
    place = config.model or base_folder(SANDBOX_MODELS[config.fresh_model])
    device = "cpu" if recipe.trainer_arguments.get("use_cpu") else None
    cache = EmbeddingCache(default_folder())
    return with_neighbours(rows, place=place, number=config.hard_images, log=tell, cache=cache, device=device)


def method_arm(recipe: Recipe, rows: Dataset | None, *, name: str | None = None) -> Arm:
    """The method's own arm, without rows only to be checked; its name is the method's unless another is given."""
    arguments = recipe.trainer_arguments
    own = {key: value for key, value in arguments.items() if key not in ("output_dir", "column_names")}
    return Arm(name or recipe.experiment.method, recipe.trainer_class, own, rows, recipe.experiment.batch_size)


def num_negatives(recipe: Recipe) -> int:
    """Entries of a row's negatives: as many as the trainer reads, and one for the controls of one that reads none."""
    default = {field.name: field.default for field in fields(recipe.trainer_class.config_class)}["num_negatives"]
    return max(1, int(recipe.trainer_arguments.get("num_negatives", default)))


def _report(study: Study, method: Arm) -> None:
    recipe, names = study.recipe, [*(name for name in study.models if name != method.name), method.name]
    outcomes, costs = study.outcomes(names), [study.costs[name] for name in names if name in study.costs]
    declared, primary = declared_averages(recipe.experiment), recipe.experiment.primary
    planned = [(method.name, SAME_BATCH)]
    lines, general = summarize_run(outcomes, names, primary=primary, declared=declared, planned=planned)
    facts = {**run_facts(recipe, study.session), "models": named_models(study), "general_average": general}
    facts["data"] = data_facts(recipe, method.rows, outcomes)
    publish_run(study.folder, items=outcomes.table, lines=lines, stages=costs, facts=facts)


def check_primary(recipe: Recipe, outcomes: Outcomes) -> Measure | None:
    """The primary endpoint, by the outcomes of the base.

    Raises:
        ValueError: for one that the evaluation does not have, naming those that it has.
    """
    return primary_measure(outcomes, recipe.experiment.primary, declared_averages(recipe.experiment))


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
        "items": outcomes.digest,
    }


def named_models(study: Study) -> dict[str, dict[str, str]]:
    """Where each model lies and what its weights are."""
    return {name: {"path": str(study.models[name]), "weights": found} for name, found in study.weights.items()}


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
