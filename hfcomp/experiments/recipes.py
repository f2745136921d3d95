"""Recipes: where they lie, and how a YAML file and command-line overrides become checked configurations."""

from __future__ import annotations

import importlib
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from transformers import HfArgumentParser

import hfcomp
from hfcomp.data.columns import nearest
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.reading import parse_json, read_yaml


@dataclass
class Recipe:
    """A checked recipe.

    Attributes:
        experiment: the part that the program reads.
        trainer_class: the objective.
        trainer_arguments: fields of the trainer's config, as they were given.
        given: every field that YAML or command line set, for `config.yaml`.
    """

    experiment: ExperimentConfig
    trainer_class: type
    trainer_arguments: dict[str, Any]
    given: dict[str, Any]


def recipes_folder() -> Path:
    """Where the recipes lie: inside the installed package, or beside it in a clone.

    Raises:
        FileNotFoundError: when neither exists.
    """
    package = Path(hfcomp.__file__).parent
    for folder in (package / "recipes", package.parent / "recipes"):
        if any(folder.glob("*/*.yaml")):
            return folder
    raise FileNotFoundError(f"no recipes beside {package}; reinstall hfcomp, or pass --config <file>.")


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe: a path, `method` (its sandbox) or `method/file`.

    Raises:
        FileNotFoundError: naming the recipes that exist.
    """
    if Path(name).is_file():
        return Path(name)
    folder = recipes_folder()
    stem = name.removesuffix(".yaml")
    for candidate in (folder / f"{stem}.yaml", folder / stem / "sandbox.yaml"):
        if candidate.is_file():
            return candidate
    known = sorted(str(path.relative_to(folder).with_suffix("")) for path in recipe_files(folder))
    raise FileNotFoundError(f"no recipe {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")


def recipe_files(folder: Path) -> list[Path]:
    """The recipes in a folder of them; the YAML files of sweeps, which name no objective, are none."""
    files = sorted(folder.glob("*/*.yaml"))
    return [path for path in files if "objective" in (read_yaml(path) or {})]


def trainer_class(objective: str) -> type:
    """The trainer that `module:class` names; a module in the working directory is found too.

    Raises:
        ValueError: when it cannot be imported or is no trainer of hfcomp.
    """
    from hfcomp.trainers.base import CompositionalTrainer

    module, _, name = objective.partition(":")
    try:
        found = getattr(_imported(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"objective {objective!r}: expected module:class, and {error}.") from error
    if not (isinstance(found, type) and issubclass(found, CompositionalTrainer)):
        raise ValueError(f"objective {objective!r} is no subclass of CompositionalTrainer.")
    return found


def _imported(module: str) -> ModuleType:
    """Imports a module, and looks for one that is not found in the working directory, as a script's path omits it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        sys.path.insert(0, os.getcwd())
        importlib.invalidate_caches()
        try:
            return importlib.import_module(module)
        except ImportError:
            del sys.path[0]
            raise


def read_recipe(
    name: str, arguments: Sequence[str] = (), *, changes: dict[str, Any] | None = None, where: str = ""
) -> Recipe:
    """Reads a recipe and lays command-line overrides over it.

    Args:
        name: recipe name or path, used unless `arguments` holds `--config`.
        arguments: `--field value`, `--config name-or-path`.
        changes: further fields, of a part of a sweep.
        where: what errors call the place of `changes`.

    Raises:
        ValueError: for an unknown key in the file, the changes or on the command line, naming the nearest known one, a
            value of the wrong type, or a field that both the changes and the command line set.
    """
    options, arguments = split_options(arguments)
    path, values, found = read_file(name, options)
    known = {f.name for part in (ExperimentConfig, found.config_class) for f in fields(part) if f.init}
    _check_known(values, known, str(path))
    overridden = overridden_fields(arguments)
    _check_known(overridden, known, "command line")
    _check_known(changes or {}, known, where)
    for field_name in changes or {}:
        if field_name in overridden:
            raise ValueError(f"command line: --{field_name} is set by {where}. Leave it out, or change it there.")
    values = _with_file_beside(path, {**values, **(changes or {})})
    of_sandbox = {"dataset"} if values.get("dataset") == SANDBOX else set()  # whose keywords may be scored too
    if {"evaluation", "evaluation_benchmarks", "keyword_negatives", *of_sandbox} & set(overridden):
        values.pop("primary", None)  # it is of what the file evaluates
    experiment, config, given = _parse(found.config_class, values, arguments)
    if experiment.hard_images and not config.get("num_neighbours"):
        raise ValueError(
            f"{path}: hard_images={experiment.hard_images} finds neighbours that nobody reads. Set num_neighbours, or "
            "leave hard_images out."
        )
    if "model" in overridden and "model" not in values and values.get("dataset") == SANDBOX:
        raise ValueError(
            f"{path.stem} holds values for the sandbox's tiny model (learning_rate {values.get('learning_rate')}). "
            f"For a model of your own start from another recipe: --config {_for_other_models(path)} --dataset <yours>."
        )
    return Recipe(experiment, found, config, given)


def _for_other_models(recipe: Path) -> str:
    """The name of a recipe beside this one that is not of the sandbox."""
    beside = [path for path in recipe_files(recipe.parent.parent) if path.parent == recipe.parent]
    others = [path for path in beside if read_yaml(path).get("dataset") != SANDBOX]
    return f"{recipe.parent.name}/{others[-1].stem}" if others else "slipform/vit_b32_coco"


def _with_file_beside(recipe: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a recipe, its keyword table by the place where it is found from anywhere."""
    beside = recipe.parent / str(values.get("keyword_table"))
    return {**values, "keyword_table": str(beside.resolve())} if beside.is_file() else values


def split_options(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Takes `--config`, `--objective`, `--report`, `--search` and `--help` out of a command line, in either spelling.

    Returns:
        These five, `search` without a name being `search`, and the words that are left: `--field value`.
    """
    parser = _OptionParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--objective")
    parser.add_argument("--report")
    parser.add_argument("--search", nargs="?", const="search")
    parser.add_argument("-h", "--help", action="store_true")
    return parser.parse_known_args(list(arguments))


def read_file(name: str, options: Namespace) -> tuple[Path, dict[str, Any], type]:
    """Path, fields and trainer of a recipe, unchecked but for these.

    Args:
        name: recipe name or path, used unless `options` has a `config`.
        options: of `split_options`; its `objective` takes the place of the file's.

    Raises:
        ValueError: when the file is no mapping or names no trainer.
    """
    path = find_recipe(name if options.config is None else options.config)
    values = read_yaml(path) or {}
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected a mapping of fields, found {type(values).__name__}.")
    if options.objective is not None:
        values["objective"] = options.objective
    if "objective" not in values:
        way = f" It is a sweep: --report {path.stem}." if "variants" in values else nearest("objective", values)
        way = f" It is a search: --search {path.stem}." if "ranges" in values else way
        raise ValueError(f"{path}: has no 'objective' (module:class of a trainer).{way}")
    return path, values, trainer_class(values["objective"])


def overridden_fields(arguments: Sequence[str]) -> list[str]:
    """The fields that a command line sets.

    Args:
        arguments: `--field value`, as `split_options` leaves them.

    Raises:
        ValueError: for a first word that belongs to no field.
    """
    stray = [word for index, word in enumerate(arguments[:1]) if not word.startswith("--")]
    if stray:
        raise ValueError(f"command line: {stray[0]!r} belongs to no field; overrides are --field value.")
    return [word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")]


def _check_known(names: Any, known: set[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: unknown field {name!r}.{nearest(name, known)}")


class _OptionParser(ArgumentParser):
    """Raises where argparse would print its usage and leave."""

    def error(self, message: str) -> None:
        raise ValueError(f"command line: {message}")


class _Parser(_OptionParser, HfArgumentParser):
    """The same for all fields; their usage would be hundreds of lines."""


def _parse(config_class: type, values: dict[str, Any], arguments: Sequence[str]) -> tuple[Any, dict, dict]:
    parser = _Parser([ExperimentConfig, config_class], allow_abbrev=False)
    for action in parser._actions:
        if action.dest in values:
            action.required = False
    parser.set_defaults(**values)
    namespace = vars(parser.parse_args(list(arguments)))
    ours = {f.name for f in fields(ExperimentConfig)}
    experiment = ExperimentConfig(**{name: value for name, value in namespace.items() if name in ours})
    set_names = set(values) | set(overridden_fields(arguments))
    given = {name: namespace[name] for name in sorted(set_names)}
    if "controls" in given:
        given["controls"] = experiment.controls
    if "column_names" in given:
        given["column_names"] = _column_names(given["column_names"])
    _check_given(given)
    return experiment, {name: value for name, value in given.items() if name not in ours}, given


def _column_names(value: Any) -> dict[str, str] | None:
    """The mapping, which a command line gives as JSON."""
    names = value
    if isinstance(value, str):
        try:
            names = parse_json(value)
        except ValueError:
            names = value
    if names is not None and not (isinstance(names, dict) and all(isinstance(own, str) for own in names.values())):
        raise ValueError(
            f"column_names={value!r} is no JSON object of names. Pass the contract's name first: "
            """--column_names '{"caption": "<its name in your data set>"}'."""
        )
    return names


def _check_given(given: dict[str, Any]) -> None:
    if given.get("hub_token"):
        raise ValueError(
            "hub_token would be written into the run's files. Log in with `hf auth login` or set HF_TOKEN."
        )
    if "per_device_train_batch_size" in given:
        raise ValueError(
            "per_device_train_batch_size: set batch_size instead, the rows of the contrastive batch over all "
            "processes; it is divided by their number."
        )
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if given["batch_size"] % processes:
        raise ValueError(f"batch_size={given['batch_size']} does not divide by {processes} processes.")
