"""A search: its file, and the recipes that its trials make."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.outcomes import evaluation_settings
from hfcomp.experiments.plans import SearchPlan
from hfcomp.experiments.program import method_arm
from hfcomp.experiments.recipe_files import find_search
from hfcomp.experiments.recipes import (
    Recipe,
    field_hints,
    overridden_fields,
    read_recipe,
    refuse_overridden,
    split_options,
)
from hfcomp.experiments.study import output_folder
from hfcomp.experiments.sweep_file import SHARED_FIELDS, SHARED_PREFIXES
from hfcomp.reading import nearest, read_yaml
from hfcomp.schemas import parse

SEEDS = ("seed", "data_seed")
# What a recipe's experiment is made of stays the same, but for the rows of a batch.
FIELDS_OF_EXPERIMENT = ExperimentConfig.model_fields.keys() - {"batch_size"}
NOT_IN_SEARCH = ("objective", "method", "controls", "column_names", "output_dir")


@dataclass(frozen=True)
class Search:
    """A search that is read.

    Attributes:
        recipe: of the base, the rows, the evaluation and the folder.
        plain: the same without what holds for the search alone.
        plan: what it tries.
        path: of its file.
        name: of the recipe.
        arguments: of the command line.
    """

    recipe: Recipe
    plain: Recipe
    plan: SearchPlan
    path: Path
    name: str
    arguments: Sequence[str]

    def trial(self, values: dict[str, Any]) -> Recipe:
        """The recipe of a trial."""
        return self._read(self.plan.only_in_search | self.plan.with_products(values, _values_of(self.recipe)))

    def result(self, values: dict[str, Any]) -> Recipe:
        """The recipe that a trial's values make, without what holds for the search alone."""
        return self._read(self.plan.with_products(values, _values_of(self.plain)))

    def own_values(self) -> dict[str, Any]:
        """What the recipe itself says of the fields that are searched."""
        usual = _values_of(self.plain)
        return {name: usual.get(name) for name in self.plan.ranges}

    def ends(self) -> list[dict[str, Any]]:
        """For each field its ends, and each choice, the other fields being at their first end."""
        first = {name: space.ends()[0] for name, space in self.plan.ranges.items()}
        others = [{**first, name: end} for name, space in self.plan.ranges.items() for end in space.ends()[1:]]
        return [first, *others]

    def _read(self, changes: dict[str, Any]) -> Recipe:
        return read_recipe(self.name, self.arguments, changes=changes, where=str(self.path))


def _values_of(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says of every field, or leaves at its default."""
    members = fields(recipe.trainer_class.config_class)
    return {f.name: f.default for f in members if f.default is not MISSING} | dict(recipe.experiment) | recipe.given


def read_search(name: str, arguments: Sequence[str]) -> Search:
    """Reads the search that `--search` names and the recipe that it is of, and builds the config at every end.

    Args:
        name: of the recipe, used unless `arguments` holds `--config`.
        arguments: of the command line, with `--search name-or-path`.

    Raises:
        ValueError: for a wrong file, a value that the trainer's config refuses, or without Optuna.
        FileNotFoundError: naming the searches that exist.
    """
    if find_spec("optuna") is None:
        raise ValueError("--search needs Optuna. Install it with: pip install 'hfcomp[search]'.")
    options, words = split_options(arguments)
    path, overridden = find_search(name, options.search), overridden_fields(words)
    plain, values = read_recipe(name, arguments), read_yaml(path)
    plan = parse(SearchPlan, values, str(path))
    _check_fields(plan, str(path), field_hints(plain.trainer_class.config_class))
    refuse_overridden([*plan.ranges, *plan.products, *plan.only_in_search], overridden, str(path))
    recipe = read_recipe(name, arguments, changes=plan.only_in_search, where=f"{path}: only_in_search")
    if "output_dir" not in overridden:
        recipe.trainer_arguments["output_dir"] = f"{output_folder(recipe)}-{path.stem}"
    # values of two evaluations are not compared, so another one is another search
    tried = {key: value for key, value in values.items() if key != "trials"}
    recipe.given["search"] = {**tried, "judged_by": evaluation_settings(recipe)}
    search = Search(recipe, plain, plan, path, name, list(arguments))
    for ends in search.ends():
        try:
            method_arm(search.trial(ends), None).check()
        except ValueError as error:
            raise ValueError(f"{path}: ranges: with {shown(ends)}: {error}") from error
    return search


def shown(values: dict[str, Any]) -> str:
    """Values of a trial, in a line."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _check_fields(plan: SearchPlan, path: str, known: Collection[str]) -> None:
    places = {"ranges": plan.ranges, "products": plan.products, "only_in_search": plan.only_in_search}
    places |= {f"products: {name}": factors for name, factors in plan.products.items()}
    for place, names in places.items():
        for name in names:
            if name not in known:
                raise ValueError(f"{path}: {place}: unknown field {name!r}.{nearest(name, known)}")
    for name in (*plan.ranges, *plan.products):
        if name in SEEDS:
            raise ValueError(
                f"{path}: ranges: {name}: the best of several seeds is luck. Compare seeds with --report."
            )
        if name in FIELDS_OF_EXPERIMENT or name in SHARED_FIELDS or name.startswith(SHARED_PREFIXES):
            raise ValueError(
                f"{path}: ranges: {name} is the same for all trials, which are trained on the same rows and judged "
                "alike. Set it for the recipe."
            )
    for name in plan.only_in_search:
        if name in NOT_IN_SEARCH:
            raise ValueError(f"{path}: only_in_search: {name} is the recipe's. Set it there, or on the command line.")
