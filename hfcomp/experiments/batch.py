"""The contrastive batch of a recipe against the rows it trains on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from datasets import Dataset

from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.neighbours import check_batch_images
from hfcomp.experiments.recipes import Recipe
from hfcomp.trainers.stages import world_size_at_launch


def fit_batch(recipe: Recipe, rows: Any, log: Callable[[str], None] = lambda note: None) -> Recipe:
    """The recipe with its `batch_size` lowered to `max_batch_fraction` of the training images.

    A batch_size that the command line or a plan sets is kept, as is any batch_size if the rows are streamed.

    Args:
        recipe: The recipe.
        rows: The rows it trains on.
        log: Receives a line if the batch is lowered.
    """
    config = recipe.experiment
    if "batch_size" in recipe.chosen or config.max_batch_fraction is None or not isinstance(rows, Dataset):
        return recipe
    images, processes = _count_images(rows), world_size_at_launch()
    most = int(images * config.max_batch_fraction) // (1 + _num_neighbours(recipe)) // processes * processes
    if config.batch_size <= most or not most:
        return recipe
    log(
        f"batch_size is {most} instead of {config.batch_size}: the {images:,} training images would make "
        f"{_batches(images, recipe)} batches per epoch. --batch_size sets another."
    )
    lowered = {"batch_size": most}
    return replace(recipe, experiment=config.model_copy(update=lowered), given={**recipe.given, **lowered})


def check_batch(recipe: Recipe, rows: Any) -> None:
    """Raises for fewer images than one batch with the neighbors of its rows needs, before any image is encoded.

    Raises:
        ValueError: naming both numbers.
    """
    number = _num_neighbours(recipe)
    if number and isinstance(rows, Dataset):
        check_batch_images(_count_images(rows), fit_batch(recipe, rows).experiment.batch_size, number, "--batch_size")


def _num_neighbours(recipe: Recipe) -> int:
    return int(recipe.trainer_arguments.get("num_neighbours") or 0)


def _count_images(rows: Dataset) -> int:
    """Number of distinct images; rows without an id count as one image each."""
    return len(set(rows[IMAGE_ID])) if IMAGE_ID in rows.column_names else len(rows)


def _batches(images: int, recipe: Recipe) -> str:
    per_batch = recipe.experiment.batch_size * (1 + _num_neighbours(recipe))
    return f"{images / per_batch:.1f}"
