"""Recipes: flat YAML mappings with the fields of our config and the trainer's; the command line overrides them.

A method's folder contains its recipes and its plans: sweeps, studies of concepts and searches.
"""

from __future__ import annotations

import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.origin import Origin, read_origin, train_command
from hfcomp.experiments.recipe_fields import convert_fields, field_hints, read_overrides, split_options
from hfcomp.experiments.recipe_files import find_recipe, study_kind, top_level_keys
from hfcomp.old_names import current_names
from hfcomp.reading import nearest, read_yaml
from hfcomp.sandbox.bases import FACTS_FILE
from hfcomp.schemas import parse
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.stages import is_push_field


class BatchSize(NamedTuple):
    """The size of a contrastive batch over all processes, and its limits."""

    rows: int
    fraction: float | None  # largest share of training images per batch, neighbors included; None keeps `rows`
    neighbors: int  # neighbor rows that each row adds


@dataclass(frozen=True)
class Recipe:
    """A recipe whose values have been converted to the types of their fields."""

    experiment: ExperimentConfig
    trainer_class: type
    trainer_arguments: dict[str, Any]  # the fields that do not belong to the experiment
    given: dict[str, Any]  # every field that the file, the command line or a plan sets, for `config.yaml`
    push: dict[str, Any]  # trainer fields about pushing the finished run
    batch: BatchSize
    seed: int  # seed of the rows, the training and a newly created base
    seeds: list[int]  # seeds that a run of the recipe trains with
    column_names: Mapping[str, str] | None  # the dataset's column names by contract name
    left_out: tuple[str, ...] = ()  # given fields that an objective other than the file's does not have
    origin: Origin = Origin()

    @property
    def folder(self) -> Path:
        """Output folder that the recipe requests."""
        return Path(self.trainer_arguments.get("output_dir") or f"runs/{self.experiment.method}".lower())

    def with_seed(self, seed: int) -> Recipe:
        return replace(self, seed=seed, trainer_arguments={**self.trainer_arguments, "seed": seed})


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file with command-line overrides, from which a recipe or the recipes of a plan's parts are built."""

    path: Path
    trainer_class: type
    hints: dict[str, Any]  # types of all fields by name
    values: dict[str, Any]
    overridden: dict[str, Any]
    origin: Origin

    @classmethod
    def read(cls, name: str, arguments: Sequence[str] = ()) -> RecipeFile:
        """Reads a recipe file, given by name, path or `--config` in the arguments, and the fields in the arguments."""
        options, words = split_options(arguments)
        path, values, trainer = read_file(name, options)
        hints = field_hints(trainer.config_class)
        values, overridden = convert_fields(values, hints, str(path)), read_overrides(words, hints)
        origin = read_origin(path, train_command(name, arguments), overridden)
        return cls(path, trainer, hints, values, overridden, origin)

    def recipe(
        self, changes: Mapping[str, Mapping[str, Any]] | None = None, *, objective: str | None = None, where: str = ""
    ) -> Recipe:
        """Builds the recipe, or the recipe of a part of a plan, which changes fields and may change the objective.

        `changes` maps places to fields; errors name a place this way, and `where` stands for all of them together.
        With an `objective`, the last of the changes contains fields of its trainer, and fields of the file that this
        trainer does not have are left out.
        """
        where, changes = where or str(self.path), changes or {}
        trainer = self.trainer_class if objective is None else trainer_class(objective, f"{where}: ")
        hints, values = field_hints(trainer.config_class), dict(self.values)
        for number, (place, changed) in enumerate(changes.items(), start=1):
            self.reject_overridden(changed, place)
            if objective is not None and number == len(changes):
                values |= convert_fields(changed, hints, f"{place}: {objective}")
            else:
                values |= convert_fields(changed, self.hints, place)
            if "seed" in changed:
                values.pop("seeds", None)  # a plan sets its own seeds
        given = self._override(values)
        left_out = tuple(name for name in given if name not in hints)
        if objective is not None:
            kept = {name: value for name, value in given.items() if name in hints}
            given = convert_fields({**kept, "objective": objective}, hints, where)
        chosen = "batch_size" in {*self.overridden, *(name for changed in changes.values() for name in changed)}
        recipe = _build(trainer, given, where)
        batch = recipe.batch._replace(fraction=None) if chosen else recipe.batch
        return replace(recipe, batch=batch, left_out=left_out, origin=self.origin)

    def reject_overridden(self, names: Iterable[str], where: str) -> None:
        """Raises for fields that both a plan and the command line set."""
        for name in names:
            if name in self.overridden:
                raise ValueError(f"command line: --{name} is set by {where}. Leave it out, or change it there.")

    def _override(self, values: dict[str, Any]) -> dict[str, Any]:
        """Applies the command line to the fields of the file."""
        local_table, overridden = self.path.parent / str(values.get("keyword_table")), self.overridden
        if local_table.is_file():
            # An absolute path, because `config.yaml` may be read from anywhere.
            values["keyword_table"] = str(local_table.resolve())
        # The file's primary endpoint belongs to the file's evaluation. With the sandbox, keywords may be scored too,
        # so another dataset changes the evaluation.
        sandbox_fields = {"dataset"} if values.get("dataset") == SANDBOX else set()
        if {"evaluation", "evaluation_benchmarks", "keyword_negatives", *sandbox_fields} & overridden.keys():
            values.pop("primary", None)
        # Either of the two on the command line replaces both in the file.
        if "seed" in overridden:
            values.pop("seeds", None)
        if "seeds" in overridden:
            values.pop("seed", None)
        # The learning rates of sandbox recipes suit a model with 0.7 million parameters and would ruin a real model.
        given = overridden.get("model") if "model" not in values and values.get("dataset") == SANDBOX else None
        if given is not None and not (Path(given) / FACTS_FILE).is_file():
            raise ValueError(
                f"{self.path.stem} has values for the sandbox's tiny model (learning_rate "
                f"{values.get('learning_rate')}). For your own model, start from another recipe: --config "
                f"{_real_model_recipe(self.path)} --dataset <yours>."
            )
        return dict(sorted((values | overridden).items()))


def read_recipe(name: str, arguments: Sequence[str] = ()) -> Recipe:
    """Reads a recipe and applies a command line to it, see [`RecipeFile`]."""
    return RecipeFile.read(name, arguments).recipe()


def _build(trainer: type, given: dict[str, Any], where: str) -> Recipe:
    """Builds a recipe from converted fields, after checking that they are consistent with each other."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if given.get("batch_size", 0) % processes:
        raise ValueError(f"{where}: batch_size={given['batch_size']} is not divisible by {processes} processes.")
    ours = {key: value for key, value in given.items() if key in ExperimentConfig.model_fields}
    theirs = {key: value for key, value in given.items() if key not in ours}
    experiment, neighbors = parse(ExperimentConfig, ours, where), int(theirs.get("num_neighbors") or 0)
    if experiment.hard_images and not neighbors:
        raise ValueError(
            f"{where}: hard_images={experiment.hard_images} has no effect, because {experiment.objective} reads no "
            "neighbors unless num_neighbors is set. Set num_neighbors if the objective has this field, or leave "
            "hard_images out."
        )
    if experiment.seeds:
        if "seed" in theirs:
            raise ValueError(
                f"{where}: found both seed={theirs['seed']} and seeds={experiment.seeds}. Leave one of the two out."
            )
        theirs["seed"] = experiment.seeds[0]
    if experiment.captions == "drawn":
        theirs["draw_captions"] = True
    batch = BatchSize(experiment.batch_size, experiment.max_batch_fraction, neighbors)
    push = {name: value for name, value in theirs.items() if is_push_field(name)}
    seed = int(theirs.get("seed", 42))
    seeds = experiment.seeds or [seed]
    return Recipe(experiment, trainer, theirs, given, push, batch, seed, seeds, theirs.get("column_names"))


def _real_model_recipe(recipe: Path) -> str:
    """The name of a recipe in the same folder that does not use the sandbox."""
    recipes = [path for path in sorted(recipe.parent.glob("*.yaml")) if "objective" in top_level_keys(path)]
    others = [path for path in recipes if read_yaml(path).get("dataset") != SANDBOX]
    return f"{recipe.parent.name}/{others[-1].stem}" if others else "slipform/vit_b32_coco"


def trainer_class(objective: str, where: str = "") -> type:
    """Imports the trainer `module:class`; the module may also be in the working directory."""
    module, _, name = objective.partition(":")
    try:
        trainer = getattr(_import(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}objective {objective!r}: expected module:class, but {error}.") from error
    if not (isinstance(trainer, type) and issubclass(trainer, CompositionalTrainer)):
        raise ValueError(f"{where}objective {objective!r} is not a subclass of CompositionalTrainer.")
    return trainer


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        # Neither a script nor the console script has the working directory on its path. It is added only for modules
        # that are not found elsewhere, because a local file must not hide an installed package.
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
        try:
            return importlib.import_module(module)
        except ImportError:
            del sys.path[0]
            raise


def read_file(name: str, options: Namespace) -> tuple[Path, dict[str, Any], type]:
    """Reads path, fields and trainer of a recipe without checking the fields; `--objective` replaces the file's."""
    path = find_recipe(name if options.config is None else options.config)
    values = current_names(read_yaml(path) or {})
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping of fields, found {type(values).__name__}.")
    if options.objective is not None:
        values["objective"] = options.objective
    if not isinstance(values.get("objective"), str):
        study = study_kind(values)
        alike = (f" {key!r} is unknown.{near}" for key in values if (near := nearest(str(key), ["objective"])))
        hint = f" This file is a {study.noun}, which --{study.option} {path.stem} runs." if study else next(alike, "")
        raise ValueError(f"{path}: 'objective' (module:class of a trainer) is missing.{hint}")
    where = path if options.objective is None else "command line"
    return path, values, trainer_class(values["objective"], f"{where}: ")
