"""A recipe: one flat YAML mapping over our config and the trainer's, with the command line's fields laid over it.

Beside the recipes of a method are the plans of it: sweeps, studies of concepts and searches.
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
    """What decides how many rows a contrastive batch has, over all processes."""

    rows: int
    fraction: float | None  # of the training images that it may show, neighbors included; None keeps `rows`
    neighbors: int  # rows that each of them brings along


@dataclass(frozen=True)
class Recipe:
    """A recipe whose values are of their fields' types."""

    experiment: ExperimentConfig
    trainer_class: type
    trainer_arguments: dict[str, Any]  # the fields that are not the experiment's
    given: dict[str, Any]  # every field that the file, the command line or a plan sets, for `config.yaml`
    push: dict[str, Any]  # trainer's fields about a push of the finished run
    batch: BatchSize
    seed: int  # of rows, training and a base that is made
    seeds: list[int]  # that a run of the recipe trains with
    column_names: Mapping[str, str] | None  # contract name to the dataset's own
    left_out: tuple[str, ...] = ()  # given fields that another objective than the file's does not have
    origin: Origin = Origin()

    @property
    def folder(self) -> Path:
        """That the recipe asks for."""
        return Path(self.trainer_arguments.get("output_dir") or f"runs/{self.experiment.method}".lower())

    def with_seed(self, seed: int) -> Recipe:
        return replace(self, seed=seed, trainer_arguments={**self.trainer_arguments, "seed": seed})


@dataclass(frozen=True)
class RecipeFile:
    """A recipe's file and the command line over it: they make a recipe, or that of each part of a plan."""

    path: Path
    trainer_class: type
    hints: dict[str, Any]  # the type of every field, by name
    values: dict[str, Any]
    overridden: dict[str, Any]
    origin: Origin

    @classmethod
    def read(cls, name: str, arguments: Sequence[str] = ()) -> RecipeFile:
        """Reads a recipe's file, by its name or path or `--config` among the arguments, and the fields among these."""
        options, words = split_options(arguments)
        path, values, trainer = read_file(name, options)
        hints = field_hints(trainer.config_class)
        values, overridden = convert_fields(values, hints, str(path)), read_overrides(words, hints)
        origin = read_origin(path, train_command(name, arguments), overridden)
        return cls(path, trainer, hints, values, overridden, origin)

    def recipe(
        self, changes: Mapping[str, Mapping[str, Any]] | None = None, *, objective: str | None = None, where: str = ""
    ) -> Recipe:
        """The recipe, or that of a part of a plan, which sets fields and may train another objective.

        The `changes` are fields by what errors call their place; `where` is what they call all of them together. With
        an objective the last of the changes are fields of its own trainer, and the file's are left out where that does
        not have them.
        """
        where, changes = where or str(self.path), changes or {}
        trainer = self.trainer_class if objective is None else trainer_class(objective, f"{where}: ")
        hints, values = field_hints(trainer.config_class), dict(self.values)
        for number, (place, changed) in enumerate(changes.items(), start=1):
            self.refuse_overridden(changed, place)
            if objective is not None and number == len(changes):
                values |= convert_fields(changed, hints, f"{place}: {objective}")
            else:
                values |= convert_fields(changed, self.hints, place)
            if "seed" in changed:
                values.pop("seeds", None)  # a plan has seeds of its own
        given = self._override(values)
        left_out = tuple(name for name in given if name not in hints)
        if objective is not None:
            kept = {name: value for name, value in given.items() if name in hints}
            given = convert_fields({**kept, "objective": objective}, hints, where)
        chosen = "batch_size" in {*self.overridden, *(name for changed in changes.values() for name in changed)}
        recipe = _build(trainer, given, where)
        batch = recipe.batch._replace(fraction=None) if chosen else recipe.batch
        return replace(recipe, batch=batch, left_out=left_out, origin=self.origin)

    def refuse_overridden(self, names: Iterable[str], where: str) -> None:
        """Raises for fields that a plan sets and the command line too."""
        for name in names:
            if name in self.overridden:
                raise ValueError(f"command line: --{name} is set by {where}. Leave it out, or change it there.")

    def _override(self, values: dict[str, Any]) -> dict[str, Any]:
        """Lays the command line over the fields of the file."""
        beside, overridden = self.path.parent / str(values.get("keyword_table")), self.overridden
        if beside.is_file():
            # An absolute path, because `config.yaml` is read from anywhere.
            values["keyword_table"] = str(beside.resolve())
        # The file's primary endpoint belongs to what the file evaluates. With the sandbox keywords may be scored too,
        # so another dataset changes the evaluation.
        of_sandbox = {"dataset"} if values.get("dataset") == SANDBOX else set()
        if {"evaluation", "evaluation_benchmarks", "keyword_negatives", *of_sandbox} & overridden.keys():
            values.pop("primary", None)
        # Either of the two on the command line replaces both of the file.
        if "seed" in overridden:
            values.pop("seeds", None)
        if "seeds" in overridden:
            values.pop("seed", None)
        # The learning rates of the sandbox's recipes are for a model of 0.7 million parameters and ruin a real one.
        given = overridden.get("model") if "model" not in values and values.get("dataset") == SANDBOX else None
        if given is not None and not (Path(given) / FACTS_FILE).is_file():
            raise ValueError(
                f"{self.path.stem} holds values for the sandbox's tiny model (learning_rate "
                f"{values.get('learning_rate')}). For a model of your own start from another recipe: --config "
                f"{_for_other_models(self.path)} --dataset <yours>."
            )
        return dict(sorted((values | overridden).items()))


def read_recipe(name: str, arguments: Sequence[str] = ()) -> Recipe:
    """Reads a recipe and lays a command line over it, see [`RecipeFile`]."""
    return RecipeFile.read(name, arguments).recipe()


def _build(trainer: type, given: dict[str, Any], where: str) -> Recipe:
    """A recipe of fields that were converted, after what one of them allows of another was checked."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if given.get("batch_size", 0) % processes:
        raise ValueError(f"{where}: batch_size={given['batch_size']} does not divide by {processes} processes.")
    ours = {key: value for key, value in given.items() if key in ExperimentConfig.model_fields}
    theirs = {key: value for key, value in given.items() if key not in ours}
    experiment, neighbors = parse(ExperimentConfig, ours, where), int(theirs.get("num_neighbors") or 0)
    if experiment.hard_images and not neighbors:
        raise ValueError(
            f"{where}: hard_images={experiment.hard_images} finds neighbors that {experiment.objective} does not "
            "read. Set num_neighbors where it has the field, or leave hard_images out."
        )
    if experiment.seeds:
        if "seed" in theirs:
            raise ValueError(
                f"{where}: found seed={theirs['seed']} and seeds={experiment.seeds}. Leave one of the two out."
            )
        theirs["seed"] = experiment.seeds[0]
    if experiment.captions == "drawn":
        theirs["draw_captions"] = True
    batch = BatchSize(experiment.batch_size, experiment.max_batch_fraction, neighbors)
    push = {name: value for name, value in theirs.items() if is_push_field(name)}
    seed = int(theirs.get("seed", 42))
    seeds = experiment.seeds or [seed]
    return Recipe(experiment, trainer, theirs, given, push, batch, seed, seeds, theirs.get("column_names"))


def _for_other_models(recipe: Path) -> str:
    """The name of a recipe beside this one that is not of the sandbox."""
    beside = [path for path in sorted(recipe.parent.glob("*.yaml")) if "objective" in top_level_keys(path)]
    others = [path for path in beside if read_yaml(path).get("dataset") != SANDBOX]
    return f"{recipe.parent.name}/{others[-1].stem}" if others else "slipform/vit_b32_coco"


def trainer_class(objective: str, where: str = "") -> type:
    """The trainer that `module:class` names; a module in the working directory is found too."""
    module, _, name = objective.partition(":")
    try:
        found = getattr(_import(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}objective {objective!r}: expected module:class, and {error}.") from error
    if not (isinstance(found, type) and issubclass(found, CompositionalTrainer)):
        raise ValueError(f"{where}objective {objective!r} is not a subclass of CompositionalTrainer.")
    return found


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        # Neither a script nor the console script has the working directory on its path. It is added only for modules
        # that are not found elsewhere: a file there must not hide an installed package.
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
        try:
            return importlib.import_module(module)
        except ImportError:
            del sys.path[0]
            raise


def read_file(name: str, options: Namespace) -> tuple[Path, dict[str, Any], type]:
    """Path, fields and trainer of a recipe, unchecked but for these; the options' objective replaces the file's."""
    path = find_recipe(name if options.config is None else options.config)
    values = current_names(read_yaml(path) or {})
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping of fields, found {type(values).__name__}.")
    if options.objective is not None:
        values["objective"] = options.objective
    if not isinstance(values.get("objective"), str):
        study = study_kind(values)
        alike = (f" {key!r} is unknown.{near}" for key in values if (near := nearest(str(key), ["objective"])))
        hint = f" It is a {study.noun}: --{study.option} {path.stem}." if study else next(alike, "")
        raise ValueError(f"{path}: has no 'objective' (module:class of a trainer).{hint}")
    where = path if options.objective is None else "command line"
    return path, values, trainer_class(values["objective"], f"{where}: ")
