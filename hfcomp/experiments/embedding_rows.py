"""The held-out rows of a recipe whose embeddings are followed through training."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from hfcomp.analysis.held_out_rows import HeldOutRows, select_rows
from hfcomp.data.columns import rename_columns, require_columns
from hfcomp.data.loading import load_training_set
from hfcomp.data.several_captions import longest_caption
from hfcomp.distributed import first_process_first
from hfcomp.experiments.data import Tell, training_rows
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.recipes import Recipe
from hfcomp.experiments.session import Session


def check_source(config: ExperimentConfig, *, where: str) -> None:
    """Refuses an experiment that has no held-out rows with negatives.

    Args:
        config: of the runs.
        where: what the error calls the place that asks for them.

    Raises:
        ValueError: for a data set other than the sandbox, unless the evaluation is the user's own set.
    """
    if config.dataset != SANDBOX and config.evaluation != "own":
        raise ValueError(
            f"{where}: evaluation={config.evaluation!r} of {config.dataset} brings no held-out rows with negative "
            "captions. Set evaluation: own with evaluation_split (and evaluation_dataset) of a set that has them, or "
            "leave embeddings out."
        )


def held_out_rows(recipe: Recipe, wanted: int, *, seed: int, num_negatives: int, session: Session) -> HeldOutRows:
    """Rows like those of training that are not among them.

    Of the sandbox: other scenes with the same kinds and number of negatives, without the noise of training, so that
    every caption is true and every negative false. Else the first rows with an image and a negative of the
    set that `evaluation: own` scores.

    Args:
        recipe: of the runs.
        wanted: number of rows, at most.
        seed: of the sandbox's scenes and of keyword negatives; one that no run trains on.
        num_negatives: of a row, where negatives are made here.
        session: is told how many rows there are.

    Raises:
        ValueError: for a set without the columns `image`, `caption` and `negative_captions`, or without a negative.
    """

    def tell(note: str) -> None:
        session.tell(f"embeddings: {note}")

    config, own_names = recipe.experiment, recipe.trainer_arguments.get("column_names")
    with first_process_first():  # the others find what it cached
        if config.dataset == SANDBOX:
            rows = _sandbox_rows(config, wanted, seed, num_negatives, tell)
            source = f"the sandbox (seed {seed})"
        else:
            rows = _own_rows(config, own_names, tell)
            source = f"{config.evaluation_dataset or config.dataset} ({config.evaluation_split})"
        found = select_rows(rows, wanted, source)
    tell(f"{len(found):,} rows of {source}, with {sum(map(len, found.negatives)):,} negatives")
    return found


def _sandbox_rows(config: ExperimentConfig, number: int, seed: int, num_negatives: int, tell: Tell) -> Dataset:
    clean = {"edit_noise": 0.0, "caption_noise": 0.0, "false_negatives": 0.0, "concreteness_ratings": None}
    return training_rows(
        config.model_copy(update={"dataset_rows": number, **clean}),
        column_names=None,
        seed=seed,
        tell=tell,
        num_negatives=num_negatives,
    )


def _own_rows(config: ExperimentConfig, column_names: Any, tell: Tell) -> Dataset:
    source = config.evaluation_dataset or config.dataset
    rows = load_training_set(source, split=config.evaluation_split, config=config.dataset_config)
    rows = rename_columns(rows, column_names)
    require_columns(rows, ("image", "caption", "negative_captions"), needed_by=f"embeddings, of {source},")
    return longest_caption(rows, tell)
