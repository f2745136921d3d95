"""`hfcomp build neighbours`: NegCLIP's hard images as the column `neighbour_ids` of a set that stands alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from datasets import Dataset

from hfcomp.evaluation.cache import EmbeddingCache
from hfcomp.evaluation.cache_files import default_folder
from hfcomp.experiments.build_source import Tell, kept_columns, model_facts, read_rows
from hfcomp.experiments.neighbours import FEATURES, with_neighbours
from hfcomp.generation.shards import Batch, Stage

READS = tuple(FEATURES)


def with_found_neighbours(options: argparse.Namespace, tell: Tell) -> Dataset:
    """The source with its columns `image_id` and `neighbour_ids`.

    All images are compared with all, so this is no work of a stage. Embeddings and neighbours are kept in the cache of
    `hfcomp evaluate`, from which a killed build goes on.

    Args:
        options: of the command.
        tell: receives a line about what was read and compared.

    Raises:
        ValueError: for columns that are not there, or an image that cannot be read.
    """
    if options.number < 1:
        raise ValueError(f"--number: found {options.number}, expected 1 or more.")
    dataset = read_rows(options, tell)
    cache = EmbeddingCache(default_folder())
    dataset = with_neighbours(
        dataset,
        place=options.model,
        number=options.number,
        tell=tell,
        by=options.by,
        cache=cache,
        device=options.device,
    )
    return dataset.select_columns(list(dict.fromkeys([*kept_columns(dataset, options.columns), *READS])))


def neighbour_stages(options: argparse.Namespace) -> list[Stage]:
    """One stage that changes nothing; it says whose neighbours the column holds."""
    facts = {"model": model_facts(options.model), "number": options.number, "by": options.by}
    return [Stage("neighbours", make_unchanged, {}, facts)]


def make_unchanged() -> Callable[[Batch], Batch]:
    """The stage that hands every batch on as it is."""
    return _unchanged


def _unchanged(batch: Batch) -> Batch:
    return batch
