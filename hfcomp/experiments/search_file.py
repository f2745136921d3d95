"""The file of a search: where it lies, and what it may say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

from hfcomp.data.columns import nearest
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.search_space import Range, read_range
from hfcomp.experiments.sweep_file import SHARED_FIELDS, SHARED_PREFIXES, find_beside, read_mapping

NEEDED = ("trials", "ranges")
DIRECTIONS = ("maximize", "minimize")
KEYS = (*NEEDED, *DIRECTIONS, "products", "only_in_search", "seed")
SEED = 42
# The best of several seeds is luck.
SEEDS = ("seed", "data_seed")
# What a recipe's experiment is made of stays the same, but for the rows of a batch.
FIELDS_OF_EXPERIMENT = {f.name for f in fields(ExperimentConfig)} - {"batch_size"}
NOT_IN_SEARCH = ("objective", "method", "controls", "column_names", "output_dir")


@dataclass(frozen=True)
class SearchPlan:
    """What a search tries, and how it judges.

    Attributes:
        measure: name of a measure as sweeps have it, or a pattern of names whose mean counts (`sandbox levels: *`).
        direction: `maximize` or `minimize`.
        trials: how many.
        ranges: values to try, by field of the trainer's config or `batch_size`.
        products: field to the fields whose product it is.
        only_in_search: fields of the recipe that hold for the trials, not for the recipe that comes out.
        seed: of the values that are tried; training has the recipe's own.
    """

    measure: str
    direction: str
    trials: int
    ranges: dict[str, Range]
    products: dict[str, list[str]]
    only_in_search: dict[str, Any]
    seed: int

    def with_products(self, values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
        """The values of a trial and what follows from them.

        Args:
            values: by field.
            usual: of the fields that the search leaves alone.

        Raises:
            ValueError: for a factor that is no number.
        """
        known = usual | values
        for name, factors in self.products.items():
            for factor in factors:
                if type(known.get(factor)) not in (int, float):
                    raise ValueError(f"products: {name}: {factor} is {known.get(factor)!r}, expected a number.")
        products = {name: prod(known[factor] for factor in factors) for name, factors in self.products.items()}
        # a whole number may come as 4.0, and a batch has no 12.0 rows
        return values | {name: int(value) if value == int(value) else value for name, value in products.items()}


def find_search(recipe: str, name: str) -> Path:
    """The YAML file of a search: a path, or a name beside the recipe's files.

    Raises:
        FileNotFoundError: naming the searches of the recipe.
    """
    return find_beside(recipe, name, what="search", keys={"ranges"})


def read_search_file(path: Path, *, known: Collection[str], overridden: Collection[str]) -> SearchPlan:
    """What a file of a search says, checked but for the values of `only_in_search`.

    Args:
        path: of the file.
        known: fields of the experiment and of the trainer's config.
        overridden: fields that the command line sets.

    Raises:
        ValueError: naming the file, and the place in it.
    """
    form = "a search is a mapping with trials, ranges, and maximize or minimize"
    values = read_mapping(path, NEEDED, KEYS, form=form)
    directions = [key for key in DIRECTIONS if key in values]
    if len(directions) != 1 or not isinstance(values[directions[0]], str):
        raise ValueError(f"{path}: expected maximize: MEASURE or minimize: MEASURE, one of them, with a name.")
    _check_whole(values["trials"], f"{path}: trials", least=1)
    seed = values.get("seed", SEED)
    _check_whole(seed, f"{path}: seed", least=0)
    ranges = _mapping(values["ranges"], f"{path}: ranges", "{learning_rate: {low: 1e-5, high: 1e-2, log: true}}")
    if not ranges:
        raise ValueError(f"{path}: ranges: found none, expected at least one field.")
    read = {name: read_range(found, f"{path}: ranges: {name}") for name, found in ranges.items()}
    products = _products(values.get("products"), read, f"{path}: products", known)
    only = _mapping(values.get("only_in_search"), f"{path}: only_in_search", "{max_steps: 200}")
    _check_only_in_search(only, {*read, *products}, f"{path}: only_in_search", known)
    _check_searched(read, f"{path}: ranges", known)
    for name in overridden:
        if name in {*read, *products, *only}:
            raise ValueError(f"command line: --{name} is set by {path}. Leave it out, or change it there.")
    return SearchPlan(values[directions[0]], directions[0], values["trials"], read, products, only, seed)


def _check_whole(found: Any, where: str, *, least: int) -> None:
    if type(found) is not int or found < least:
        raise ValueError(f"{where}: found {found!r}, expected a whole number of at least {least}.")


def _mapping(found: Any, where: str, example: str) -> dict[str, Any]:
    if not isinstance(found or {}, dict):
        raise ValueError(f"{where}: found {found!r}, expected a mapping: {example}.")
    return found or {}


def _check_known(name: Any, where: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{where}: unknown field {name!r}.{nearest(str(name), known)}")


def _check_searched(names: Collection[str], where: str, known: Collection[str]) -> None:
    for name in names:
        _check_known(name, where, known)
        if name in SEEDS:
            raise ValueError(f"{where}: {name}: the best of several seeds is luck. Compare seeds with --report.")
        if name in FIELDS_OF_EXPERIMENT or name in SHARED_FIELDS or name.startswith(SHARED_PREFIXES):
            raise ValueError(
                f"{where}: {name} is the same for all trials, which are trained on the same rows and judged alike. "
                "Set it for the recipe."
            )


def _check_only_in_search(only: dict[str, Any], taken: Collection[str], where: str, known: Collection[str]) -> None:
    for name in only:
        _check_known(name, where, known)
        if name in NOT_IN_SEARCH:
            raise ValueError(f"{where}: {name} is the recipe's. Set it there, or on the command line.")
        if name in taken:
            raise ValueError(f"{where}: {name} is searched. Leave one of the two out.")


def _products(found: Any, ranges: Collection[str], where: str, known: Collection[str]) -> dict[str, list[str]]:
    products = _mapping(found, where, "{batch_size: [groups_per_batch, pairs_per_group]}")
    for name, factors in products.items():
        _check_searched([name], where, known)
        if name in ranges:
            raise ValueError(f"{where}: {name} has a range of its own. Leave one of the two out.")
        if not isinstance(factors, list) or not factors:
            raise ValueError(f"{where}: {name}: found {factors!r}, expected a list of fields.")
        for factor in factors:
            _check_known(factor, f"{where}: {name}", known)
    return products
