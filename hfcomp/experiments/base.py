"""What a study starts from: its base and its evaluation, looked for before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from hfcomp.distributed import fail_together, rank
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.experiments.evaluate import prepare_evaluation
from hfcomp.experiments.experiment_config import SANDBOX_MODELS
from hfcomp.experiments.recipes import Recipe, check_place
from hfcomp.experiments.session import Session
from hfcomp.modeling import load_config, load_processor
from hfcomp.modeling.random_clip import check_vocabulary, write_vit_b32
from hfcomp.sandbox.bases import base_folder
from hfcomp.trainers.stages import damage, write_checksums
from hfcomp.writing import replacing_folder


def prepare(recipe: Recipe, session: Session, seed: int = 0) -> Evaluator:
    """Looks for the base and loads what is evaluated; `seed` is that of the sandbox's scenes."""
    prepare_base(recipe)
    return prepare_evaluation(recipe.experiment, column_names=recipe.column_names, seed=seed, log=session.log)


def prepare_base(recipe: Recipe) -> None:
    """Looks for the base and the files of a recipe, so that a mistyped name costs nothing.

    Raises OSError for a path without a file or folder or a Hub id that cannot be loaded, and ValueError for a model
    that is not a supported dual encoder or whose weights are incomplete.
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


def base_model(recipe: Recipe, folder: Path) -> Path | str:
    """The model that all arms start from: the recipe's, or one written to `base/` in a folder."""
    config = recipe.experiment
    if config.model:
        return config.model
    base = folder / "base"
    if config.fresh_model in SANDBOX_MODELS:
        shipped = SANDBOX_MODELS[config.fresh_model]
        make_base(base, lambda part: shutil.copytree(base_folder(shipped), part, dirs_exist_ok=True))
    else:
        make_base(base, lambda part: write_vit_b32(part, config.clip_vocabulary, seed=recipe.seed))
    return base


def make_base(folder: Path, write: Callable[[Path], object]) -> None:
    """Lets the main process write a model that is missing or damaged, while the others wait for it."""
    with fail_together():
        if rank() == 0 and damage(folder) is not None:
            with replacing_folder(folder) as part:
                write(part)
                write_checksums(part)
    if not (folder / "config.json").is_file():
        raise RuntimeError(f"{folder}: the main process wrote a model that this one does not see. Share the disk.")
